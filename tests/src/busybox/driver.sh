# Runs busybox's own tests one after the other, and tells what each case came to: on Linux and in
# the machine alike. Its words: the folder with all that is needed, and units from the list there.
#
# A unit is a script of the shell's tests with the output it should have, a script that tells of
# many cases, or one that fails or does not. Lines for rcoe begin with "@"; all else is for people.

top=$1
cd "$top" || exit 1
unset LANG LC_ALL
. "$top/config"
export OPTIONFLAGS
THIS_SH=$top/bin/ash
# No others: the tests are to try this busybox and nothing else.
PATH=$top/bin
bindir=$top/testsuite
tsdir=$top/testsuite
ECHO=echo
export THIS_SH PATH bindir tsdir ECHO

# Shows a file, as far as people will read it.
show() {
	head -n 40 "$1" | sed 's/^/| /'
}

shell_unit() {
	cd "$top/shell/${1%/*}" || return
	name=${1##*/}
	"$THIS_SH" "./$name.tests" </dev/null 2>&1 |
		grep -va '^ash: using fallback suid method$' >"$top/out"
	if cmp -s "$top/out" "$name.right"; then
		echo "@ pass $1"
	else
		echo "@ fail $1"
		diff -u "$name.right" "$top/out" >"$top/difference"
		show "$top/difference"
	fi
}

# Cases tell of themselves; where none does, the status counts.
many_unit() {
	cd "$tsdir" || return
	{
		PATH=$tsdir:$PATH "$THIS_SH" "./$1" </dev/null
		echo "STATUS: $?"
	} 2>&1 | tell_cases "${1%.tests}"
}

tell_cases() {
	told=
	while IFS= read -r line; do
		case $line in
		"PASS: "*) echo "@ pass $1: ${line#*: }" ;;
		"FAIL: "*) echo "@ fail $1: ${line#*: }" ;;
		"SKIPPED: "* | "UNTESTED: "*) echo "@ skip $1: ${line#*: }" ;;
		"STATUS: 0") [ "$told" ] || echo "@ pass $1" ;;
		"STATUS: "*) [ "$told" ] || echo "@ fail $1" ;;
		*)
			echo "| $line"
			continue
			;;
		esac
		told=y
	done
}

single_unit() {
	rm -rf "$tsdir/.tmpdir"
	mkdir "$tsdir/.tmpdir"
	cd "$tsdir/.tmpdir" || return
	if d=$tsdir "$THIS_SH" -x -e "$tsdir/$1" </dev/null >"$top/out" 2>&1; then
		echo "@ pass $1"
	else
		echo "@ fail $1"
		show "$top/out"
	fi
	cd "$top" || return
	rm -rf "$tsdir/.tmpdir"
}

for unit in $(cat "$top/list"); do
	echo "@ begin $unit"
	case $unit in
	ash-*) shell_unit "$unit" ;;
	*.tests) many_unit "$unit" ;;
	*) single_unit "$unit" ;;
	esac
	echo "@ end $unit"
done
cd "$top"
echo "@ over"
