# bash with job control: stopping, listing and continuing jobs.
. "$SCENES/prelude.sh"
cat >script.bash <<'B'
set -m
stopped() { until jobs -l | grep -q Stopped; do sleep 0.02; done; }
sleep 1000 &
kill -STOP %1; stopped; jobs | sed 's/  */ /g'
kill -CONT %1
until jobs | grep -q Running; do sleep 0.02; done
jobs | sed 's/  */ /g'
kill %1; wait %1; echo "first: $?"
(sleep 0.1; exit 5) &
fg %%; echo "second: $?"
bash -c 'kill -STOP $$; echo continued; exit 6' &
stopped
fg %%; echo "third: $?"
bash -c 'kill -TSTP $$; exit 4' &
stopped
bg %%; wait %%; echo "fourth: $?"
trap 'echo chld' CHLD; (exit 0); trap - CHLD
set +m
echo done
B
status=0
"${run[@]}" bash script.bash 2>errors || status=$?
echo "status $status"
sed 's/ [0-9][0-9]* / PID /' errors
