# OpenSSH's server: a key, commands, a terminal, and a file that is copied there and back.
. "$SCENES/prelude.sh"
port=$(free_port)
chmod a+rx .
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f client
cp client.pub allowed
cat >sshd.conf <<C
Port $port
ListenAddress 127.0.0.1
HostKey $PWD/host
AuthorizedKeysFile $PWD/allowed
StrictModes no
PidFile none
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
C
mkdir -p /run/sshd 2>/dev/null || true
options=(-i client -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
    -o IdentitiesOnly=yes)
there() { ssh "${options[@]}" -p "$port" "$(id -un)@127.0.0.1" "$@"; }
serve "$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f "$PWD/sshd.conf"
wait_for there true
there 'echo hello; seq 20000 | sha256sum; exit 4' || echo "ended with $?"
there -tt 'test -t 0 && echo a terminal' </dev/null
seq 50000 >sent
scp -q "${options[@]}" -P "$port" sent "$(id -un)@127.0.0.1:$PWD/there"
scp -q "${options[@]}" -P "$port" "$(id -un)@127.0.0.1:$PWD/there" back
cmp sent back && echo "there and back"
kill -TERM "${servers[-1]}"
served
