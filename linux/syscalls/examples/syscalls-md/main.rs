//! Prints `docs/SYSCALLS.md`:
//! `cargo run -p rcoe-linux-syscalls --example syscalls-md > docs/SYSCALLS.md`
#![forbid(unsafe_code)]

mod page;

fn main() {
    print!("{}", page::page());
}
