//! `cargo xtask image`: the kernel and the programs of the system sphere.
//!
//! The kernel is built for a target without an operating system, programs for the host's but
//! without its library. Both are linked to fixed addresses.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{packages, shell};

/// What is built for one machine.
struct Machine {
    /// Where it goes, in the folder of the image.
    folder: &'static str,
    /// The kernel's target.
    kernel: &'static str,
    /// The programs' target.
    programs: &'static str,
    /// Features of the programs.
    features: &'static str,
    /// The package with what runs the machine.
    emulator: &'static str,
    /// The compiler for programs in C, and the package that it is in.
    c: [&'static str; 2],
    /// What that needs besides [`C_FLAGS`].
    c_flags: &'static [&'static str],
    /// Does the emulator need a plugin for its processors to count branches?
    counter: bool,
}

const MACHINES: [Machine; 2] = [
    Machine {
        folder: "",
        kernel: "x86_64-unknown-none",
        programs: HOST,
        features: "bare,linux,pc",
        emulator: "qemu-system-x86",
        c: ["cc", "gcc"],
        c_flags: &["-fcf-protection=none"],
        counter: true,
    },
    // The kernel must not touch the registers of floating point, which are the programs'.
    Machine {
        folder: "aarch64",
        kernel: "aarch64-unknown-none-softfloat",
        programs: "aarch64-unknown-none",
        features: "bare,guests,linux",
        emulator: "qemu-system-arm",
        c: ["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"],
        c_flags: &[],
        counter: false,
    },
];

/// What a program in C is built with; `user/include/rcoe-system.h` tells users the same.
const C_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-ffreestanding",
    "-fno-pie",
    "-fno-stack-protector",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,-Ttext-segment=0x400000",
    "-Wl,-z,max-page-size=4096",
    "-Wl,-z,separate-code",
    "-Wl,-z,noexecstack",
    "-Wl,--build-id=none",
];

/// The folder that the image's files are put into.
pub(crate) fn folder() -> PathBuf {
    shell::target().join("system/image")
}

/// Installs what is missing to build and run the system sphere, or says how.
pub(crate) fn prepare() -> Result<()> {
    let needed = MACHINES.iter().flat_map(|it| [it.emulator, it.c[1]]);
    packages::ensure(&needed.map(str::to_owned).collect::<Vec<_>>())?;
    let missing = missing_targets()?;
    if missing.is_empty() {
        return Ok(());
    }
    println!("adding the targets {}", missing.join(" "));
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add"]).args(&missing);
    let added = rustup.status().is_ok_and(|status| status.success());
    ensure!(added, line(&missing));
    Ok(())
}

/// The line by which somebody gets these targets.
fn line(missing: &[&str]) -> String {
    format!(
        "targets of the Rust compiler are missing; run this, then try again:\n  \
         rustup target add {}",
        missing.join(" ")
    )
}

/// Targets of the system sphere that the compiler does not have.
fn missing_targets() -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for target in MACHINES.iter().flat_map(|it| [it.kernel, it.programs]) {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", target]);
        let libraries = rustc.output().context("starting rustc")?;
        let path = PathBuf::from(String::from_utf8_lossy(&libraries.stdout).trim());
        if !path.is_dir() && !missing.contains(&target) {
            missing.push(target);
        }
    }
    Ok(missing)
}

/// Builds everything; tells whether that went well. It installs nothing: what it lacks is said as
/// the line to run, and an emulator is needed only to run what was built.
pub(crate) fn run() -> Result<bool> {
    let missing = missing_targets()?;
    ensure!(missing.is_empty(), line(&missing));
    for machine in &MACHINES {
        if !build_for(machine)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Builds what one machine runs.
fn build_for(machine: &Machine) -> Result<bool> {
    if !build("rcoe-kernel", machine.kernel, "bare")?
        || !build("rcoe-user", machine.programs, machine.features)?
    {
        return Ok(false);
    }
    let target = shell::target().join("system");
    let image = folder().join(machine.folder);
    std::fs::create_dir_all(&image)?;
    for old in std::fs::read_dir(&image)? {
        let old = old?.path();
        if old.is_file() {
            std::fs::remove_file(old)?;
        }
    }
    let kernel = target.join(machine.kernel).join("blob/rcoe-kernel");
    std::fs::copy(&kernel, image.join("rcoe-kernel")).context("the kernel")?;
    if !c_programs(machine, &image)? {
        return Ok(false);
    }
    if machine.counter {
        if !counter()? {
            return Ok(false);
        }
        let built = target.join(HOST).join("blob").join(COUNTER);
        std::fs::copy(&built, image.join(COUNTER)).context("the counter")?;
    }
    for entry in std::fs::read_dir(target.join(machine.programs).join("blob"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_ours = |name: &&str| name.starts_with("system-") || name.starts_with("guest-");
        let Some(name) = name.filter(is_ours) else {
            continue;
        };
        if path.extension().is_none() {
            std::fs::copy(&path, image.join(name)).with_context(|| name.to_owned())?;
        }
    }
    Ok(true)
}

/// Builds the programs in C; without a compiler for this machine there are none, and it says so.
fn c_programs(machine: &Machine, image: &Path) -> Result<bool> {
    let [compiler, package] = machine.c;
    let there = Command::new(compiler).arg("--version").output().is_ok();
    if !there {
        println!(
            "no programs in C for {}: {compiler} is missing (package {package})",
            machine.kernel
        );
        return Ok(true);
    }
    let folder = shell::root().join("user/c");
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        command.args(C_FLAGS).args(machine.c_flags);
        command.arg("-I").arg(shell::root().join("user/include"));
        command.arg(&path).arg("-o");
        command.arg(image.join(format!("system-{name}")));
        if !shell::succeeds(command)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A cargo command for a package of the system sphere. It uses another target folder, hence another
/// lock, than the build it may run in.
fn command(action: &str, package: &str, target: &str, features: &str) -> Command {
    let mut command = shell::cargo([action, "--quiet", "--package", package]);
    command.args(["--no-default-features", "--features", features]);
    command.arg("--target").arg(target);
    command
        .arg("--target-dir")
        .arg(shell::target().join("system"));
    // Where there are atomic instructions that an interruption does not have fail, as close
    // coupling needs.
    let features = match target {
        "aarch64-unknown-none" => " -Ctarget-feature=+lse",
        _ => "",
    };
    command.env("RUSTFLAGS", format!("-Crelocation-model=static{features}"));
    // Clippy looks at a debug build, and without a library nothing can unwind.
    command.env("CARGO_PROFILE_DEV_PANIC", "abort");
    command
}

fn build(package: &str, target: &str, features: &str) -> Result<bool> {
    let mut command = command("build", package, target, features);
    command.arg("--profile=blob");
    shell::succeeds(command)
}

/// What a plugin of the emulator is built for, and its file.
const HOST: &str = "x86_64-unknown-linux-gnu";
const COUNTER: &str = "librcoe_counter.so";

/// Builds the emulator's plugin that counts branches.
fn counter() -> Result<bool> {
    let mut command = shell::cargo(["build", "--quiet", "--package", "rcoe-counter"]);
    command.args(["--target", HOST, "--profile=blob"]);
    command
        .arg("--target-dir")
        .arg(shell::target().join("system"));
    shell::succeeds(command)
}

/// Clippy for the parts that a build of the workspace leaves out.
pub(crate) fn clippy() -> Result<bool> {
    prepare()?;
    let mut good = true;
    for machine in MACHINES {
        for (package, target, features) in [
            ("rcoe-kernel", machine.kernel, "bare"),
            ("rcoe-user", machine.programs, machine.features),
        ] {
            let mut command = command("clippy", package, target, features);
            command.args(["--", "-Dwarnings"]);
            good &= shell::succeeds(command)?;
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_what_programs_in_c_are_built_with() {
        let header = include_str!("../../user/include/rcoe-system.h");
        let start = header.find("gcc -std").expect("a command");
        let command = &header[start..header[start..].find("-I ").expect("its end") + start];
        let told: Vec<&str> = command
            .split_whitespace()
            .filter(|word| !["gcc", "*", "\\"].contains(word))
            .collect();
        let [pc, other] = MACHINES.map(|machine| [C_FLAGS, machine.c_flags].concat());
        let sorted = |mut flags: Vec<&'static str>| {
            flags.sort_unstable();
            flags
        };
        assert_eq!(sorted(told), sorted(pc));
        assert_eq!(sorted(other), sorted(C_FLAGS.to_vec()));
        assert!(
            header.contains("aarch64-linux-gnu-gcc with the same words but -fcf-protection=none")
        );
    }
}
