# tokio: a Rust program with a runtime of four workers; built plainly.
. "$SCENES/prelude.sh"
PATH=${CARGO%/*}:$PATH
cp -r "$SCENES/tokio" guest
CARGO_TARGET_DIR=$CACHE/tokio "$CARGO" build --quiet --release --locked --manifest-path guest/Cargo.toml
"${run[@]}" "$CACHE/tokio/release/tokio-guest"
