# Compressors with threads of their own: pigz, zstd and xz, there and back.
. "$SCENES/prelude.sh"
python3 -c '
x = 1
for i in range(300000):
    x = (x * 1103515245 + 12345) % 2**31
    print(i, x if i % 3 else i % 17)' >data
"${run[@]}" pigz -p 2 -n -c data >out/data.gz
"${run[@]}" pigz -p 2 -dc out/data.gz | cmp - data && echo pigz
"${run[@]}" zstd -q -T2 -B1048576 -5 -c data >out/data.zst
"${run[@]}" zstd -q -dc out/data.zst | cmp - data && echo zstd
"${run[@]}" xz -T2 --block-size=1MiB -1 -c data >out/data.xz
"${run[@]}" xz -T2 -dc out/data.xz | cmp - data && echo xz
sha256sum out/*
