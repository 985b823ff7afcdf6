# etcd, a Go program with a log on disk: keys, a transaction, a watcher, and a second start.
. "$SCENES/prelude.sh"
port=$(free_port) peers=$(free_port)
url=http://127.0.0.1:$port
start() {
    serve etcd --data-dir "$PWD/data" --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls "http://127.0.0.1:$peers" --name scene \
        --initial-advertise-peer-urls "http://127.0.0.1:$peers" \
        --initial-cluster "scene=http://127.0.0.1:$peers"
    wait_for ask range '{"key":"MA=="}'
}
ask() { curl -sf -X POST -d "$2" "$url/v3/kv/$1"; }
encoded() { printf %s "$1" | base64 -w 0; }
values() { python3 -c 'import json, sys; print([k["value"] for k in json.load(sys.stdin)["kvs"]])'; }
start
for i in $(seq 30); do
    ask put "{\"key\":\"$(encoded "key$((i % 10))")\",\"value\":\"$(encoded "value $i")\"}" >/dev/null
done
all="{\"key\":\"$(encoded key)\",\"range_end\":\"$(encoded kez)\"}"
ask range "$all" | values
ask deleterange "{\"key\":\"$(encoded key3)\"}" | grep -o '"deleted":"1"'
kill -TERM "${servers[-1]}"
served 143
start
ask range "$all" | values
kill -TERM "${servers[-1]}"
served 143
