# squid and haproxy, one in front of the other, in front of a plain server: bodies, another cached
# answer, one that is not there, a client that leaves.
. "$SCENES/prelude.sh"
origin=$(free_port) port=$(free_port) front=$(free_port)
mkdir site
seq 50000 >site/big.txt
echo small >site/small.txt
chmod a+rwx .
(cd site && exec python3 -m http.server --bind 127.0.0.1 "$origin" >../origin.log 2>&1) &
servers+=($!)
cat >squid.conf <<C
http_port 127.0.0.1:$port accel no-vhost defaultsite=scene
cache_peer 127.0.0.1 parent $origin 0 no-query originserver
http_access allow all
pinger_enable off
pid_filename $PWD/pid
cache_log $PWD/cache.log
access_log none
cache_store_log none
coredump_dir $PWD
shutdown_lifetime 1 second
C
cat >haproxy.conf <<C
global
    nbthread 2
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind 127.0.0.1:$front
    default_backend back
backend back
    http-request set-header Host scene
    server squid 127.0.0.1:$port
C
wait_for curl -sf "http://127.0.0.1:$origin/"
serve squid -N -f "$PWD/squid.conf"
wait_for curl -sf "http://127.0.0.1:$port/small.txt"
serve haproxy -f "$PWD/haproxy.conf"
url=http://127.0.0.1:$front
wait_for curl -sf "$url/small.txt"
for _ in 1 2 3; do curl -sf "$url/big.txt" | sha256sum; done
curl -s -o /dev/null -w '%{http_code}\n' "$url/none"
{ curl -sf "$url/big.txt" || true; } | head -n 1
curl -sf "$url/small.txt"
kill -TERM "${servers[-1]}"
served 143
kill -TERM "${servers[-1]}"
served
