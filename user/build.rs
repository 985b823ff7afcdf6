//! Link arguments of the freestanding programs: one segment for code, one for constants, one for
//! data, each beginning on a page.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let args = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--image-base=0x400000",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,-z,separate-code",
        "-Wl,-z,max-page-size=4096",
        "-Wl,--gc-sections",
        "-Wl,--no-eh-frame-hdr",
    ];
    for arg in args {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}
