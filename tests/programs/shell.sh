# bash: traps, background jobs, waiting for them, and killing them.
. "$SCENES/prelude.sh"
cat >script.bash <<'B'
trap 'echo caught usr1' USR1
trap 'echo leaving $?' EXIT
kill -USR1 $$
(trap 'echo child term; exit 7' TERM; echo ready >fifo.ready; while :; do sleep 0.05; done) &
child=$!
until [[ -s fifo.ready ]]; do sleep 0.02; done
kill -TERM $child
wait $child; echo "child: $?"
for i in 1 2 3; do (exit "$i") & pids[i]=$!; done
for i in 3 2 1; do wait "${pids[i]}"; echo "$i: $?"; done
sleep 100 & kill -9 $!; wait $! 2>/dev/null; echo "killed: $?"
coproc { while read -r line; do echo "got $line"; done; }
echo hello >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"
eval "exec ${COPROC[1]}>&-"; wait
mkfifo pipe; (seq 5 >pipe) & sum=0; while read -r n; do ((sum += n)); done <pipe; echo "sum $sum"
diff <(seq 5) <(seq 2 6); echo "diff: $?"
(ulimit -c 0; kill -SEGV $BASHPID); echo "crash: $?"
timeout 0.2 sleep 50; echo "timeout: $?"
cat <<T | tr a-z A-Z | { read -r first; echo "$first"; cat; }
here is
text
T
exit 3
B
status=0
"${run[@]}" bash script.bash 2>errors || status=$?
echo "status $status"
sed 's/line [0-9]*: *[0-9]* /line: /' errors
