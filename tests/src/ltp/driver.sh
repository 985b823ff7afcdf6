# Runs tests of LTP one after the other, on Linux and in the machine alike. Its words: the folder
# with all that is needed, the seconds that a test may take, and the words by which a test is begun
# as replicas of its own, if it is. Which tests there are stands in the folder, a line each: its
# name, and the command.
#
# Lines for rcoe begin with "@"; all else is what tests say. A test that takes too long ends the
# run, and with it the machine or the namespace, so that nothing of it stays behind.

top=$1
limit=$2
shift 2
PATH=$top/testcases/bin:/bin:/usr/bin:/sbin:/usr/sbin
LTPROOT=$top
TMPDIR=$top/tmp
LTP_COLORIZE_OUTPUT=n
# What the machine has is seen by trying, not by a kernel's configuration, of which it has none.
KCONFIG_SKIP_CHECK=y
# An emulated processor is slow; the limit above holds all the same.
LTP_TIMEOUT_MUL=10
export PATH LTPROOT TMPDIR LTP_COLORIZE_OUTPUT KCONFIG_SKIP_CHECK LTP_TIMEOUT_MUL
umask 022
mkdir -p "$TMPDIR"
chmod 777 "$TMPDIR"

while read -r name command; do
	cd "$TMPDIR" || exit 1
	echo "@ begin $name"
	timeout -s KILL "$limit" "$@" sh -c "exec $command" </dev/null 2>&1
	status=$?
	[ "$status" = 137 ] && exit 1
	# What a test leaves behind when it breaks can fill the memory, so that nothing can be begun.
	for file in "$TMPDIR"/* "$TMPDIR"/*/*; do
		[ -f "$file" ] && : >"$file"
	done
	cd "$top" && rm -rf "$TMPDIR"/*
	# Some tests end within a line.
	echo
	echo "@ end $name $status"
done <"$top/list"
echo "@ over"
