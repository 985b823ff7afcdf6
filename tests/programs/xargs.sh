# find, and two processes of xargs at a time.
. "$SCENES/prelude.sh"
mkdir tree
for i in $(seq 60); do mkdir -p "tree/d$((i % 6))" && seq "$i" $((i * 40)) >"tree/d$((i % 6))/f$i"; done
"${run[@]}" sh -c 'find tree -type f -print0 | xargs -0 -P2 -n4 sha256sum | sort'
"${run[@]}" sh -c 'find tree -name "f*" | sort | xargs -P2 -I{} sh -c "gzip -nk {}; test -s {}.gz"'
"${run[@]}" find tree -name '*.gz' -newer tree/d0/f6 -exec sha256sum {} + | sort | sha256sum
