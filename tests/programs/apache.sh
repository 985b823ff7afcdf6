# Apache with threads in two processes, under load.
. "$SCENES/prelude.sh"
port=$(free_port)
modules=/usr/lib/apache2/modules
mkdir site
seq 20000 >site/big.txt
echo small >site/small.txt
chmod -R a+rX . && chmod a+x .
cat >apache.conf <<C
ServerName scene
Listen 127.0.0.1:$port
DocumentRoot $PWD/site
PidFile $PWD/pid
ErrorLog $PWD/error.log
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule deflate_module $modules/mod_deflate.so
LoadModule filter_module $modules/mod_filter.so
User www-data
Group www-data
StartServers 2
SetOutputFilter DEFLATE
<Directory $PWD/site>
    Require all granted
</Directory>
C
url=http://127.0.0.1:$port
serve apache2 -D FOREGROUND -f "$PWD/apache.conf"
wait_for curl -sf "$url/small.txt"
curl -sf "$url/big.txt" | sha256sum
curl -sf --compressed "$url/big.txt" | sha256sum
curl -sf -r 100-199 "$url/big.txt" | sha256sum
curl -s -o /dev/null -w '%{http_code}\n' "$url/none"
load() {
    wrk -t 1 -c 8 -d "${LOAD_SECONDS:-2}s" "$url/$1" >wrk.log
    ! grep -E 'Socket errors|Non-2xx' wrk.log >&2 || fail "errors under load"
    grep -qE '^ +[1-9][0-9]* requests in' wrk.log || fail "$(cat wrk.log)"
}
load small.txt
load big.txt
curl -sf "$url/small.txt"
kill -TERM "${servers[-1]}"
served
