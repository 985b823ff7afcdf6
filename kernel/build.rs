//! Link arguments of the freestanding kernel.

fn main() {
    println!("cargo:rerun-if-changed=kernel.ld");
    println!("cargo:rerun-if-changed=build.rs");
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-T{folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
    println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
}
