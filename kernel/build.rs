//! Link arguments of the freestanding kernel, and the identity of its build.

mod identity;

fn main() -> std::io::Result<()> {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let processor = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let script = format!("{folder}/src/arch/{processor}/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
    println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
    identity::tell(std::path::Path::new(&folder))
}
