//! A program's last act if it is wrong: a panic.

use core::panic::PanicInfo;

use crate::println;

/// Status of a program that panicked, as of Rust programs elsewhere.
const PANICKED: u64 = 101;

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    println!("{info}");
    crate::exit(PANICKED)
}
