# PostgreSQL: a scratch cluster, its benchmark, and the sums that must agree afterwards.
. "$SCENES/prelude.sh"
user=()
if ((UID == 0)); then
    chmod a+rx . && mkdir cluster && chown postgres: . cluster
    user=(setpriv --reuid=postgres --regid=postgres --clear-groups)
fi
port=$(free_port)
data=$PWD/cluster/data
"${user[@]}" "${run[@]}" initdb -D "$data" -A trust -U bench --no-instructions >initdb.log
echo "initdb done"
run=("${user[@]}" "${run[@]}")
serve postgres -D "$data" -k "$PWD/cluster" -p "$port" -h 127.0.0.1
server=${servers[-1]}
ask() { psql -h 127.0.0.1 -p "$port" -U bench -d postgres -XAtc "$1"; }
wait_for ask 'select 1'
pgbench -h 127.0.0.1 -p "$port" -U bench -i -s 1 -q postgres >/dev/null 2>&1
pgbench -h 127.0.0.1 -p "$port" -U bench -c 2 -t 100 postgres >pgbench.log 2>&1
grep -E 'number of transactions actually|failed' pgbench.log
ask 'select count(*) from pgbench_history'
ask 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)'
ask 'select (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)'
# The leader of a parallel query polls for its workers without a system call.
export PGOPTIONS="-c parallel_setup_cost=0 -c parallel_tuple_cost=0 -c min_parallel_table_scan_size=0"
ask 'explain (analyze, timing off, summary off, costs off) select sum(abalance) from pgbench_accounts' | grep 'Launched'
ask 'select count(*), sum(bid) from pgbench_accounts'
ask 'create index on pgbench_accounts (bid, abalance)'
ask 'select md5(string_agg(i::text, chr(44))) from generate_series(1, 20000) i'
kill -INT "$server"
served
