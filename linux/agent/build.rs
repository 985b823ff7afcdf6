//! Link arguments of the freestanding agent image.
//!
//! Position-independent code linked without `-pie` at a fixed high address: every reference is
//! relative to the instruction pointer, and nothing needs to be relocated at start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // `AGENT_BASE` of rcoe-linux-abi; checked against it at run time in `boot`.
    let args = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--image-base=0x6f0000000000",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,-z,max-page-size=4096",
        "-Wl,--gc-sections",
    ];
    for arg in args {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
