# Redis with its background threads: every default test of its benchmark, then a snapshot and a log
# that other servers must read back to the same data.
. "$SCENES/prelude.sh"
port=$(free_port)
cli() { redis-cli -p "$port" "$@"; }
start() {
    serve redis-server --port "$port" --bind 127.0.0.1 --dir "$PWD" --save "" \
        --enable-debug-command local "$@"
    wait_for cli exec ping
    wait_for loaded
}
loaded() { cli info persistence | grep -q '^loading:0'; }
stop() { cli shutdown "$1" || true; served; }
idle() { cli info persistence | tr -d '\r' | grep -qx "$1_in_progress:0"; }
state() { echo "$1: $(cli dbsize) keys, $(cli debug digest)"; }
fill() {
    python3 - "$1" <<'P' | cli --pipe >pipe.log
import sys
start = int(sys.argv[1])
out = []
for i in range(start, start + 3000):
    out.append(f'SET key:{i} {"v%d" % i * (i % 40 + 1)}')
    out.append(f'HSET hash:{i % 50} field:{i} {i * i}')
    out.append(f'ZADD zset:{i % 7} {i % 101} member:{i}')
    out.append(f'RPUSH list:{i % 9} {i}')
    out.append(f'SADD set:{i % 11} {i % 500}')
print("\r\n".join(out), end="\r\n")
P
    grep -q 'errors: 0, replies: 15000' pipe.log || fail "$(cat pipe.log)"
}

start --appendonly no
redis-benchmark -p "$port" -n "${REQUESTS:-2000}" -c 20 -q >bench.log 2>&1
echo "tests done: $(tr '\r' '\n' <bench.log | grep -c 'requests per second, p50')"
! grep -iE 'err|fail' bench.log >&2 || fail "the benchmark saw errors"
cli flushall
fill 0
state filled
cli bgsave
wait_for idle rdb_bgsave
cli info persistence | tr -d '\r' | grep rdb_last_bgsave_status
stop nosave
redis-check-rdb dump.rdb | grep -q 'RDB looks OK' || fail "the snapshot is broken"
start --appendonly no
state "snapshot loaded"
cli config set appendonly yes
wait_for idle aof_rewrite
fill 3000
cli bgrewriteaof
fill 6000
wait_for idle aof_rewrite
cli info persistence | tr -d '\r' | grep aof_last_bgrewrite_status
state logged
stop nosave
rm dump.rdb
start --appendonly yes
state "log loaded"
stop nosave
# What a server without replicas makes of the same files.
run=()
start --appendonly yes
state "log loaded plainly"
stop nosave
