# git: a repository with branches, a merge, a pack, and a clone through upload-pack.
. "$SCENES/prelude.sh"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git() { "${run[@]}" /usr/bin/git "$@"; }
git init -q -b main one
cd one
for i in $(seq 40); do
    mkdir -p "d$((i % 5))"
    seq "$i" $((i * 30)) >"d$((i % 5))/f$i.txt"
done
git add .
git commit -q -m first
git checkout -q -b side
seq 5000 >d1/side.txt
git add . && git commit -q -m side
git checkout -q main
sed -i 's/1/one/' d0/f5.txt
git commit -q -am main
git merge -q -m merged side
git log --graph --format='%h %s %T'
git diff --stat HEAD~1 HEAD
git gc -q
cd ..
git clone -q --no-local "file://$PWD/one" two
git -C two fsck --strict 2>&1
git -C two rev-parse HEAD
git -C two grep -c 77 | sort | sha256sum
cp -r two/d0 two/d1 out/
