# nginx: a master and two workers, under load, reloaded in the middle of it.
. "$SCENES/prelude.sh"
port=$(free_port)
mkdir site
python3 -c 'print("\n".join(f"line {i} {i * i}" for i in range(20000)))' >site/big.txt
echo small >site/small.txt
chmod -R a+rX . && chmod a+x .
cat >nginx.conf <<C
daemon off;
worker_processes 2;
pid $PWD/nginx.pid;
error_log $PWD/error.log notice;
events { worker_connections 128; }
http {
    access_log $PWD/access.log;
    client_body_temp_path $PWD/body;
    proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi;
    uwsgi_temp_path $PWD/uwsgi;
    scgi_temp_path $PWD/scgi;
    sendfile on;
    gzip on;
    gzip_types text/plain;
    server { listen 127.0.0.1:$port; root $PWD/site; }
}
C
url=http://127.0.0.1:$port
load() {
    wrk -t 1 -c 8 -d "${LOAD_SECONDS:-2}s" "$url/$1" >wrk.log
    ! grep -E 'Socket errors|Non-2xx' wrk.log >&2 || fail "errors under load"
    grep -qE '^ +[1-9][0-9]* requests in' wrk.log || fail "$(cat wrk.log)"
}
replaced() { (($(grep -c 'worker process [0-9]* exited with code 0' error.log) == 2)); }
serve nginx -e "$PWD/error.log" -c "$PWD/nginx.conf"
server=${servers[-1]}
wait_for curl -sf "$url/small.txt"
curl -sf "$url/big.txt" | sha256sum
curl -sf --compressed "$url/big.txt" | sha256sum
curl -s -o /dev/null -w '%{http_code}\n' "$url/none"
curl -sf -r 100-199 "$url/big.txt"
echo
load small.txt
load big.txt
echo changed >site/small.txt
kill -HUP "$server"
wait_for replaced
load small.txt
curl -sf "$url/small.txt"
kill -QUIT "$server"
served
grep -vE ' \[notice\] |No such file' error.log || true
