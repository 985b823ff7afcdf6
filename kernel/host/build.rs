//! The identity of the build, which a system image has to have, too.

#[path = "../identity.rs"]
mod identity;

fn main() -> std::io::Result<()> {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    identity::tell(std::path::Path::new(&folder))
}
