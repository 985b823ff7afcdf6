//! Link arguments of the freestanding programs: one segment for code, one for constants, one for
//! data, each beginning on a page.

/// For the linker itself.
const LINKER: [&str; 10] = [
    "-static",
    "--no-pie",
    "--image-base=0x400000",
    "--build-id=none",
    "-znorelro",
    "-znoexecstack",
    "-zseparate-code",
    "-zmax-page-size=4096",
    "--gc-sections",
    "--no-eh-frame-hdr",
];

/// For a compiler that calls it.
const COMPILER: [&str; 4] = ["-nostartfiles", "-nostdlib", "-static", "-no-pie"];

/// Where the guest is linked, for the linker itself: the last one counts.
const GUEST: &str = "--image-base=0x40200000";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let compiler = system != "none";
    if compiler {
        for arg in COMPILER {
            println!("cargo:rustc-link-arg-bins={arg}");
        }
    }
    for arg in LINKER.iter().skip(if compiler { 2 } else { 0 }) {
        let prefix = if compiler { "-Wl," } else { "" };
        println!("cargo:rustc-link-arg-bins={prefix}{arg}");
    }
    println!("cargo:rustc-link-arg-bin=guest-small={GUEST}");
}
