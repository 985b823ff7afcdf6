# What all scenes share; sourced by each. A scene runs in an empty directory of its own and starts
# what is to be replicated as "${run[@]}" PROGRAM: nothing is put before it in the plain run,
# `rcoe run …` otherwise. What it prints is compared between the two; so is the folder `out`. The
# folder $CACHE is kept between the runs of one table.
set -euo pipefail
PATH=$PATH:/usr/local/bin:/usr/local/go/bin
for folder in /usr/lib/postgresql/*/bin; do PATH=$PATH:$folder; done
read -ra run <<<"${RCOE_RUN-}"
servers=()
mkdir out

# Ends the scene with a reason.
fail() {
    echo "$*" >&2
    exit 1
}

# Repeats a quiet command until it succeeds, for a minute at most.
wait_for() {
    local deadline=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || fail "waited in vain for: $*"
        sleep 0.02
    done
}

# A port of the loopback interface that nobody uses.
free_port() {
    python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts a replicated server in the background; it ends with the scene at the latest.
serve() {
    "${run[@]}" "$@" >>server.log 2>&1 &
    servers+=($!)
}

# Waits for the server started last; it must end with this status.
served() {
    local pid=${servers[-1]} status=0
    unset 'servers[-1]'
    wait "$pid" || status=$?
    ((status == ${1:-0})) || fail "the server ended with $status: $(tail -n 5 server.log)"
}

clean_up() {
    local status=$?
    trap - EXIT
    for pid in "${servers[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" || true
    done
    if ((status != 0)) && [[ -s server.log ]]; then tail -n 5 server.log >&2; fi
    grep -h '^rcoe: ' server.log 2>/dev/null >&2 || true
    exit "$status"
}
trap clean_up EXIT
