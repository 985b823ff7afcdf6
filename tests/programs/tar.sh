# Pipelines of tar and compressors, there and back.
. "$SCENES/prelude.sh"
mkdir tree
for i in $(seq 30); do seq "$i" $((i * 700)) >"tree/f$i"; done
ln -s f1 tree/link && chmod 600 tree/f2
"${run[@]}" bash -o pipefail -c '
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - tree | xz -T2 -1 >out/tree.tar.xz
    xz -dc out/tree.tar.xz | tar -tvf - | sort | head -n 5
    mkdir back && xz -dc out/tree.tar.xz | tar -C back -xf -
    diff -r tree back/tree && echo same
    tar -cf - --sort=name --mtime=@0 tree | gzip -n | tee >(sha256sum >sum1) | gzip -dc | tar -tf - | wc -l
    tar -c --zstd --sort=name --mtime=@0 --owner=0 --group=0 -f out/tree.tar.zst tree
    tar -c -I "xz -1" --sort=name --mtime=@0 --owner=0 --group=0 -f out/two.tar.xz tree
'
