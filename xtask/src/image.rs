//! `cargo xtask image`: the kernel and the programs of the system sphere.
//!
//! The kernel is built for a target without an operating system, programs for the host's but
//! without its library. Both are linked to fixed addresses.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::counted::{self, Counting};
use crate::{packages, shell};

/// What is built for one machine.
pub(crate) struct Machine {
    /// Its processor.
    pub(crate) arch: &'static str,
    /// Where it goes, in the folder of the image.
    folder: &'static str,
    /// The kernel's target.
    kernel: &'static str,
    /// The programs' target.
    programs: &'static str,
    /// Features of the programs.
    features: &'static str,
    /// The target of programs in Rust that count their own branches, with features, and those of
    /// which there are none.
    counted: [&'static str; 2],
    not_counted: &'static [&'static str],
    /// The package with what runs the machine.
    emulator: &'static str,
    /// The compiler for programs in C, and the package that it is in.
    pub(crate) c: [&'static str; 2],
    /// What that needs besides [`C_FLAGS`].
    c_flags: &'static [&'static str],
    /// Does the emulator need a plugin for its processors to count branches?
    counter: bool,
}

static MACHINES: [Machine; 2] = [
    Machine {
        arch: "x86_64",
        folder: "",
        kernel: "x86_64-unknown-none",
        programs: HOST,
        features: "bare,linux,pc",
        counted: [HOST, "bare,linux,pc"],
        not_counted: &["system-linux"],
        emulator: "qemu-system-x86",
        c: ["cc", "gcc"],
        c_flags: &["-fcf-protection=none"],
        counter: true,
    },
    // The kernel must not touch the registers of floating point, which are the programs'.
    Machine {
        arch: "aarch64",
        folder: "aarch64",
        kernel: "aarch64-unknown-none-softfloat",
        programs: "aarch64-unknown-none",
        features: "bare,guests,linux",
        // Compilers use all registers of vectors, unless they know of none.
        counted: ["aarch64-unknown-none-softfloat", "bare"],
        not_counted: &["system-float"],
        emulator: "qemu-system-arm",
        c: ["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"],
        c_flags: &[],
        counter: false,
    },
];

/// The folder of programs that count their own branches, in that of the image.
const COUNTED: &str = "counted";

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

impl Machine {
    /// What its programs in C are built with.
    pub(crate) fn c_arguments(&self) -> Vec<String> {
        let include = shell::root().join("user/include");
        let flags = C_FLAGS.iter().chain(self.c_flags);
        let mut words: Vec<String> = flags.map(|&it| it.to_owned()).collect();
        words.extend(["-I".to_owned(), include.display().to_string()]);
        words
    }

    /// Is there a compiler of C for it?
    fn has_c(&self) -> bool {
        Command::new(self.c[0]).arg("--version").output().is_ok()
    }
}

/// The machine with this processor.
///
/// # Panics
/// If there is none.
pub(crate) fn machine(arch: &str) -> &'static Machine {
    let mut all = MACHINES.iter();
    all.find(|it| it.arch == arch).expect("a known processor")
}

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
        let is_ours = |name: &&str| name.starts_with(PREFIX) || name.starts_with("guest-");
        let Some(name) = name.filter(is_ours) else {
            continue;
        };
        if path.extension().is_none() {
            std::fs::copy(&path, image.join(name)).with_context(|| name.to_owned())?;
        }
    }
    counted_programs(machine, &image)
}

/// What a program's name in the image begins with.
const PREFIX: &str = "system-";

/// Programs that count their own branches. Of the personality and the monitor there are none, as
/// what runs in them does not.
fn counted_programs(machine: &Machine, image: &Path) -> Result<bool> {
    if !machine.has_c() {
        return Ok(true);
    }
    let [target, features] = machine.counted;
    if target != machine.programs && !build("rcoe-user", target, features)? {
        return Ok(false);
    }
    let Some(tool) = counted::tool()? else {
        return Ok(false);
    };
    let counting = Counting { machine, tool };
    let folder = image.join(COUNTED);
    std::fs::create_dir_all(&folder)?;
    let mut sources = texts(machine)?;
    for entry in std::fs::read_dir(shell::root().join("user/c"))? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            sources.push((format!("{PREFIX}{name}"), path.clone()));
        }
    }
    for old in std::fs::read_dir(&folder)? {
        let old = old?;
        if !sources.iter().any(|(name, _)| old.file_name() == **name) {
            std::fs::remove_file(old.path())?;
        }
    }
    for (name, source) in sources {
        if !counting.renew(&source, &folder.join(&name))? {
            println!("{name} could not be counted");
            return Ok(false);
        }
    }
    Ok(true)
}

/// The assembler text of each program in Rust, by name.
fn texts(machine: &Machine) -> Result<Vec<(String, PathBuf)>> {
    let built = shell::target().join("system").join(machine.counted[0]);
    let built = built.join("blob");
    let (mut programs, mut texts) = (HashMap::new(), Vec::new());
    for entry in std::fs::read_dir(&built)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.filter(|it| it.starts_with(PREFIX) && path.extension().is_none());
        if let Some(name) = name.filter(|it| !machine.not_counted.contains(it)) {
            programs.insert(path.metadata()?.ino(), name.to_owned());
        }
    }
    // A program is one file with the one that the compiler made, beside which its text is.
    for entry in std::fs::read_dir(built.join("deps"))? {
        let path = entry?.path();
        if let Some(name) = programs.remove(&path.metadata()?.ino()) {
            texts.push((name, path.with_added_extension("s")));
        }
    }
    let without = programs.values().cloned().collect::<Vec<_>>().join(", ");
    ensure!(without.is_empty(), "no assembler text of {without}");
    Ok(texts)
}

/// Builds the programs in C; without a compiler for this machine there are none, and it says so.
fn c_programs(machine: &Machine, image: &Path) -> Result<bool> {
    if !machine.has_c() {
        let [compiler, package] = machine.c;
        println!(
            "no programs in C for {}, and none that count their branches: {compiler} is missing \
             (package {package})",
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
        let mut command = Command::new(machine.c[0]);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        command.args(machine.c_arguments());
        command.arg(&path).arg("-o");
        command.arg(image.join(format!("{PREFIX}{name}")));
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
    let mut flags = "-Crelocation-model=static".to_owned();
    // Where there are atomic instructions that an interruption does not have fail, as close
    // coupling needs.
    if package == "rcoe-user" && target.starts_with("aarch64") {
        flags += " -Ctarget-feature=+lse";
    }
    // What counts is put into the text of programs, in which nothing for debuggers is of use.
    let counted = MACHINES.iter().any(|it| it.counted[0] == target);
    if action == "build" && package == "rcoe-user" && counted {
        flags += " --emit=asm -Cdebuginfo=0";
    }
    command.env("RUSTFLAGS", flags);
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
    for machine in &MACHINES {
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
        let [pc, other] = [0, 1].map(|at| [C_FLAGS, MACHINES[at].c_flags].concat());
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
