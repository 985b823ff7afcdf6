//! `docs/SYSCALLS.md` says what the table says.
#![forbid(unsafe_code)]

#[path = "../examples/syscalls-md/page.rs"]
mod page;

const COMMAND: &str = "cargo run -p rcoe-linux-syscalls --example syscalls-md > docs/SYSCALLS.md";

#[test]
fn page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SYSCALLS.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page::page(),
        "docs/SYSCALLS.md is stale; run: {COMMAND}"
    );
}
