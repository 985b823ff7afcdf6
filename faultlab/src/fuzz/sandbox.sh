# Runs a command, words 2 and following, where it can touch nothing but the folder in word 1.
set -eu
folder=$1
shift
mount --make-rprivate /
mount -t tmpfs -o size=64m,mode=1777,nosuid,nodev none "$folder/scratch"
cp "$folder/fuzz" "$folder/scratch/fuzz"
chmod 755 "$folder/scratch/fuzz"
while read -r _ _ _ _ point _; do
    case $point in
    "$folder/scratch" | /proc | /proc/* | /sys | /sys/*) ;;
    *) mount -o remount,bind,ro "$point" ;;
    esac
done </proc/self/mountinfo
cd "$folder/scratch"
umask 022
ulimit -f 65536
ulimit -c 0
ids=
[ "$(id -u)" != 0 ] || ids="--reuid 65534 --regid 65534 --clear-groups"
# shellcheck disable=SC2086
exec setpriv $ids --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs \
    env -i PATH=/usr/bin:/bin LC_ALL=C HOME="$folder/scratch" XDG_RUNTIME_DIR="$folder/scratch" "$@"
