//! Builds the agent with a nested cargo and leaves its path to `src/agent.rs`.
//!
//! The agent is an executable of its own with its own profile and features; cargo cannot yet
//! embed one crate's binary into another on stable. The nested build uses another target folder,
//! hence another lock, than the build it runs in.
//!
//! Its target has no vector registers, so they are the program's while the agent works. Functions
//! may use the memory below the stack pointer there, too: signals leave it alone.

use std::env;
use std::error::Error;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("no manifest folder")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no output folder")?);
    let root = manifest
        .ancestors()
        .nth(2)
        .ok_or("not inside the workspace")?;
    for path in [
        "linux/agent",
        "linux/abi",
        "linux/sys",
        "linux/syscalls",
        "core",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    // <target>/<profile>/build/<package>/out
    let target = out
        .ancestors()
        .nth(4)
        .ok_or("unexpected output folder")?
        .join("agent");
    build_agent(root, &target)?;
    let built = target.join(TARGET).join("blob/rcoe-agent");
    let missing = |error| format!("no agent at {}: {error}", built.display());
    let agent = std::fs::read(&built).map_err(missing)?;
    std::fs::write(out.join("rcoe-agent"), &agent)?;
    // By which what one agent has kept is told from what another one would look for.
    let mut digest = DefaultHasher::new();
    agent.hash(&mut digest);
    println!("cargo::rustc-env=RCOE_AGENT_DIGEST={:x}", digest.finish());
    Ok(())
}

/// What the agent is compiled for.
const TARGET: &str = "x86_64-unknown-none";
/// The compiler's flags for that target, by the name that cargo gives them.
const FLAGS: (&str, &str) = (
    "CARGO_TARGET_X86_64_UNKNOWN_NONE_RUSTFLAGS",
    "-Cno-redzone=no",
);

/// Does the compiler have the target? What cargo says where it has not is not what is to be done.
fn find_target() -> Result<(), Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").ok_or("not run by cargo")?;
    let mut command = Command::new(rustc);
    command.args(["--print", "target-libdir", "--target", TARGET]);
    let libraries = command.output()?;
    let libraries = String::from_utf8(libraries.stdout)?;
    if Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    let line = format!("rustup target add {TARGET}");
    Err(
        format!("a target of the Rust compiler is missing; run this, then try again: {line}")
            .into(),
    )
}

fn build_agent(root: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    find_target()?;
    let cargo = env::var_os("CARGO").ok_or("not run by cargo")?;
    let mut command = Command::new(cargo);
    command.current_dir(root).args([
        "build",
        "--package=rcoe-agent",
        "--bin=rcoe-agent",
        "--features=blob",
        "--profile=blob",
        "--target",
        TARGET,
    ]);
    command.arg("--target-dir").arg(target);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_outer_build) {
            command.env_remove(&name);
        }
    }
    command.env(FLAGS.0, FLAGS.1);
    let status = command.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the agent did not build: {status}").into())
    }
}

/// Whether a variable describes the outer build and would mislead the nested one.
fn belongs_to_outer_build(name: &str) -> bool {
    const KEPT: [&str; 3] = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR"];
    const DROPPED: [&str; 12] = [
        "RUSTFLAGS",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "RUSTDOC",
        "CLIPPY_ARGS",
        "TARGET",
        "HOST",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
    ];
    let kept = KEPT.contains(&name)
        || name.starts_with("CARGO_HTTP_")
        || name.starts_with("CARGO_REGISTRIES_")
        || name.starts_with("CARGO_SOURCE_");
    (name.starts_with("CARGO_") && !kept) || DROPPED.contains(&name)
}
