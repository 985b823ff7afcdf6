//! Starting other programs.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, ensure};

/// The top folder of the repository: that of the checkout whose `cargo xtask` runs, which is not
/// always the one that this program was compiled in, because build folders are copied too.
static ROOT: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let current = std::env::current_dir().ok();
    checkout([manifest, current].into_iter().flatten())
});

/// The top folder of the repository.
///
/// # Panics
///
/// If there is none, which [`ensure_checkout`] says kindly.
pub(crate) fn root() -> PathBuf {
    ROOT.clone().expect("a checkout")
}

/// Fails unless there is a checkout to work on.
pub(crate) fn ensure_checkout() -> Result<()> {
    let why = "this is no checkout of rcoe: go into one and say cargo xtask";
    ROOT.as_ref().map(|_| ()).context(why)
}

/// The checkout that the first of these folders inside one is inside of.
fn checkout(folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let is_top = |folder: &&Path| folder.join("xtask/Cargo.toml").is_file();
    folders
        .into_iter()
        .find_map(|folder| folder.ancestors().find(is_top).map(Path::to_path_buf))
}

/// The folder cargo builds into.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command that [`build_commands`] has built.
pub(crate) fn built(name: &str) -> PathBuf {
    target().join("commands").join(name)
}

/// A cargo command in the top folder.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null());
    command
}

/// `command` with further arguments.
pub(crate) fn with(mut command: Command, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    command.args(arguments);
    command
}

/// A command with both outputs through one, so that what it says stays in its order.
pub(crate) fn joined(command: &Command) -> Command {
    let mut joined = Command::new("sh");
    joined.args(["-c", "exec \"$0\" \"$@\" 2>&1"]);
    joined.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        joined.current_dir(folder);
    }
    copy_variables(command, &mut joined);
    joined
}

/// Gives a command the variables of another one.
pub(crate) fn copy_variables(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// Runs a command to its end, its output going where ours goes; tells whether it succeeded.
pub(crate) fn succeeds(mut command: Command) -> Result<bool> {
    let status = command.stdin(Stdio::null()).status();
    Ok(status
        .with_context(|| format!("starting {command:?}"))?
        .success())
}

/// Standard output of a command that is expected to succeed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = output.with_context(|| format!("starting {command:?}"))?;
    anyhow::ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command, copies its standard output line by line and shows each line to `look`.
pub(crate) fn stream(command: Command, mut look: impl FnMut(&str)) -> Result<bool> {
    read(command, |line| {
        println!("{line}");
        look(line.trim_end());
    })
}

/// Runs a command and shows each line of its standard output to `look`; tells whether it succeeded.
pub(crate) fn read(mut command: Command, mut look: impl FnMut(&str)) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let mut reader = BufReader::new(child.stdout.take().context("a pipe")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        look(text.strip_suffix('\n').unwrap_or(&text));
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// How many cores this may use; one, if nobody says.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prints what the machine is, so that a log tells it.
pub(crate) fn print_machine() {
    let cores = cores();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model);
    println!("machine: {cores} cores, Linux {}, {model}", kernel.trim());
}

/// Builds programs as the whole workspace has them. By themselves they would have other features,
/// so that most of what they depend on would be compiled once more.
///
/// # Errors
/// If cargo cannot be started, or a program does not build.
pub(crate) fn build(profile: &str, names: &[&str]) -> Result<()> {
    let mut command = cargo(["build", "--quiet", "--workspace", "--profile", profile]);
    for name in names {
        command.args(["--bin", name]);
    }
    ensure!(succeeds(command)?, "{} does not build", names.join(", "));
    Ok(())
}

/// Builds commands in release mode and has them in a folder of their own, which is never without
/// one that it had. Cargo takes a command away for a moment when it puts it into its place anew;
/// who starts one from there beside such a build may find nothing.
///
/// # Errors
/// If one does not build, or cannot be put there.
pub(crate) fn build_commands(names: &[&str]) -> Result<()> {
    build("release", names)?;
    for name in names {
        replace(&target().join("release").join(name), &built(name))?;
    }
    Ok(())
}

/// Makes a path a name of this file, in one step.
fn replace(file: &Path, path: &Path) -> Result<()> {
    let identity = |path: &Path| std::fs::metadata(path).map(|it| (it.dev(), it.ino()));
    if identity(path).is_ok_and(|it| identity(file).is_ok_and(|of_file| it == of_file)) {
        return Ok(());
    }
    let folder = path.parent().context("a folder")?;
    std::fs::create_dir_all(folder)?;
    let aside = tempfile::tempdir_in(folder)?;
    let fresh = aside.path().join("fresh");
    std::fs::hard_link(file, &fresh).with_context(|| file.display().to_string())?;
    std::fs::rename(&fresh, path).with_context(|| path.display().to_string())
}

/// Runs a program of the tests, on the rcoe that is built.
///
/// # Errors
/// If it does not build.
pub(crate) fn runner(name: &str, words: &[&str]) -> Result<Command> {
    build("dev", &[name])?;
    let mut command = Command::new(target().join("debug").join(name));
    command.args(words).env("RCOE_BIN", built("rcoe"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_where_one_stands_not_where_this_was_compiled() {
        let copy = tempfile::tempdir().unwrap();
        let inside = copy.path().join("linux/agent");
        for folder in ["xtask", "linux/agent"] {
            std::fs::create_dir_all(copy.path().join(folder)).unwrap();
        }
        std::fs::write(copy.path().join("xtask/Cargo.toml"), "").unwrap();
        let outside = PathBuf::from("/");
        let found = |folders: &[&Path]| checkout(folders.iter().map(|path| path.to_path_buf()));
        assert_eq!(found(&[&inside]).as_deref(), Some(copy.path()));
        assert_eq!(found(&[&outside, &inside]).as_deref(), Some(copy.path()));
        assert_eq!(found(&[&outside]), None);
    }

    #[test]
    fn a_path_is_replaced_without_ever_being_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("commands/name");
        let files = ["first", "second"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, file.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
        replace(&files[0], &path).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let missing = scope.spawn(|| {
                let mut missing = 0;
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    missing += u32::from(!path.exists());
                }
                missing
            });
            for round in 0..200 {
                let file = &files[round % 2];
                replace(file, &path).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(file).unwrap());
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(missing.join().unwrap(), 0);
        });
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn no_path_of_the_build_stays_in_this_program() {
        let own = include_str!("shell.rs");
        assert!(!own.contains(concat!("env", "!(\"CARGO")));
    }
}
