# memcached with two worker threads: four clients at once write and read back values of all sizes.
. "$SCENES/prelude.sh"
port=$(free_port)
as=()
((UID == 0)) && as=(-u root)
serve memcached "${as[@]}" -l 127.0.0.1 -p "$port" -U 0 -t 2 -m 64
wait_for bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"
python3 - "$port" "${ROUNDS:-400}" <<'P'
import socket, sys, threading
port, rounds = int(sys.argv[1]), int(sys.argv[2])
wrong = []
def client(number):
    with socket.create_connection(("127.0.0.1", port)) as s, s.makefile("rb") as f:
        for i in range(rounds):
            key = f"k{number}-{i % 50}"
            value = (f"{number}:{i};" * (i * 7 % 900 + 1)).encode()
            s.sendall(f"set {key} {i} 0 {len(value)}\r\n".encode() + value + b"\r\n")
            if f.readline() != b"STORED\r\n":
                wrong.append(key)
            s.sendall(f"get {key}\r\n".encode())
            head = f.readline()
            if head != f"VALUE {key} {i} {len(value)}\r\n".encode() or f.read(len(value) + 2)[:-2] != value:
                wrong.append(key)
            if f.readline() != b"END\r\n":
                wrong.append(key)
            s.sendall(b"incr shared 1\r\n")
            f.readline()
with socket.create_connection(("127.0.0.1", port)) as s:
    s.sendall(b"set shared 0 0 1\r\n0\r\n")
    s.recv(64)
    clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for c in clients: c.start()
    for c in clients: c.join()
    s.sendall(b"get shared\r\n")
    print("counted", s.recv(64).split()[4].decode(), "wrong", len(wrong), wrong[:3])
    s.sendall(b"stats\r\n")
    stats = dict(l.split()[1:3] for l in s.makefile() if False) if False else s.recv(65536).decode()
    for line in stats.splitlines():
        if line.split()[1:2] and line.split()[1] in ("curr_items", "threads", "cmd_set", "get_hits"):
            print(line)
P
kill -TERM "${servers[-1]}"
served
