# python3 -m http.server: a thread for each request, four clients at once.
. "$SCENES/prelude.sh"
port=$(free_port)
mkdir site
for i in $(seq 20); do seq $((i * 500)) >"site/f$i.txt"; done
serve python3 -m http.server --bind 127.0.0.1 --directory site "$port"
wait_for curl -sf "http://127.0.0.1:$port/"
python3 - "$port" <<'P'
import hashlib, sys, threading, urllib.request
port, found, lock = int(sys.argv[1]), {}, threading.Lock()
def client(number):
    for i in range(30):
        name = f"f{(i * 7 + number) % 20 + 1}.txt"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}") as answer:
            digest = hashlib.sha256(answer.read()).hexdigest()
        with lock:
            found.setdefault(name, set()).add(digest)
clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
for c in clients: c.start()
for c in clients: c.join()
for name in sorted(found):
    print(name, *sorted(found[name]))
P
curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$port/none"
curl -sf "http://127.0.0.1:$port/" | grep -c f1
kill -TERM "${servers[-1]}"
served 143
