# MariaDB: a scratch data folder, InnoDB, clients beside each other, and another start on what the
# first one has left.
. "$SCENES/prelude.sh"
port=$(free_port)
mariadb-install-db --no-defaults --datadir="$PWD/data" --user="$(id -un)" --skip-test-db \
    --auth-root-authentication-method=normal >install.log 2>&1
options=(--no-defaults --user="$(id -un)" --datadir="$PWD/data" --port="$port"
    --bind-address=127.0.0.1 --socket="$PWD/socket" --pid-file="$PWD/pid"
    --innodb-buffer-pool-size=16M)
ask() { mariadb --no-defaults -h 127.0.0.1 -P "$port" -u root -N "$@"; }
start() {
    serve mariadbd "${options[@]}"
    wait_for ask -e 'select 1'
}
start
ask -e 'create database scene; create table scene.items(i int primary key, s varchar(50), key(s)) engine=innodb'
fill() {
    for part in $(seq 10); do
        ask scene -e "insert into items select seq + $1 * 10000 + $part * 1000, md5(seq) from seq_1_to_200"
    done
}
fill 1 &
first=$!
fill 2 &
wait "$first" $! || fail "a client has failed"
ask scene -e 'begin; delete from items; rollback; select count(*), sum(i), min(s), max(s) from items'
kill -TERM "${servers[-1]}"
served
start
ask scene -e 'check table items; select md5(group_concat(s order by i)) from (select * from items order by i limit 500) r'
kill -TERM "${servers[-1]}"
served
