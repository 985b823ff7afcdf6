//! `cargo xtask dist`: a tarball and a Debian package of one folder.
//!
//! The folder is laid out as `/usr` is: `bin/rcoe` finds the system image in `lib/rcoe/system`, so
//! the same tree works wherever it is unpacked and where Debian installs it. The package is built
//! by `dpkg-deb` from it: what is tried from the tarball is what is in the package, every Debian
//! has `dpkg-deb`, and nothing is compiled for it, as cargo-deb and all it needs would be.
//!
//! The command, and the fault lab beside it, are those of the release build, linked to a static C
//! library by `.cargo/static-commands`. QEMU is suggested only: it brings a desktop's libraries
//! along where packages are installed with all that they recommend.
//!
//! Not covered: machines other than x86-64, signatures, and a repository of packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::count::Counts;
use crate::{image, shell};

/// What the package is for, in Debian's words.
const CONTROL: &str = "\
Package: rcoe
Version: @VERSION@
Architecture: amd64
Maintainer: the rcoe contributors <rcoe@localhost>
Installed-Size: @SIZE@
Suggests: qemu-system-x86, qemu-system-arm
Section: admin
Priority: optional
Description: runs ordinary software as redundant replicas
 rcoe runs a program two, three or more times at once on different cores and
 lets nothing out that the copies do not agree on. A flipped bit is caught
 before wrong output leaves the machine, and masked by three or more copies.
";

/// Files that are copied as they are: from the checkout, into the folder.
const FILES: [(&str, &str); 6] = [
    ("docs/rcoe@.service", "lib/systemd/system/rcoe@.service"),
    ("include/rcoe.h", "include/rcoe.h"),
    ("user/include/rcoe-system.h", "include/rcoe-system.h"),
    ("LICENSE-MIT", "share/doc/rcoe/copyright"),
    ("LICENSE-APACHE", "share/doc/rcoe/LICENSE-APACHE"),
    ("README.md", "share/doc/rcoe/README.md"),
];

/// What is compiled.
const PROGRAMS: [&str; 2] = ["rcoe", "rcoe-faultlab"];

/// Completions: the shell, and where it looks for those of `@`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/@"),
    ("zsh", "share/zsh/vendor-completions/_@"),
    ("fish", "share/fish/vendor_completions.d/@.fish"),
];

/// Where pages of the manual lie.
const MANUAL: &str = "share/man/man1";

/// What is made.
struct Made {
    tarball: PathBuf,
    package: PathBuf,
}

/// Makes both and says where they are.
pub(crate) fn run() -> Result<bool> {
    ensure!(image::run()?, "the system image does not build");
    let made = make(&shell::target().join("dist"))?;
    for path in [made.tarball, made.package] {
        println!("{}", path.display());
    }
    Ok(true)
}

/// The name of the folder in the tarball.
fn name() -> String {
    format!("rcoe-{}-x86_64-linux", env!("CARGO_PKG_VERSION"))
}

/// Makes both in `folder`.
fn make(folder: &Path) -> Result<Made> {
    let tree = folder.join(name());
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    lay_out(&tree)?;
    let tarball = folder.join(format!("{}.tar.gz", name()));
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-C",
    ]);
    tar.arg(folder).arg("-czf").arg(&tarball).arg(name());
    ensure!(shell::succeeds(tar)?, "tar failed");
    let package = package(folder, &tree)?;
    Ok(Made { tarball, package })
}

/// A program without what is for debuggers, which would name the folder it was built in.
fn command(name: &str, to: &Path) -> Result<()> {
    put(&shell::built(name), to)?;
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg(to);
    ensure!(shell::succeeds(strip)?, "strip failed");
    let mut readelf = Command::new("readelf");
    readelf.arg("--program-headers").arg(to);
    let interpreted = shell::output(readelf)?.contains("INTERP");
    ensure!(
        !interpreted,
        "{name} needs the C library of this machine: install the static one (libc6-dev), and let \
         no other RUSTC_WRAPPER take the place of .cargo/static-commands"
    );
    Ok(())
}

/// Lays out the folder.
fn lay_out(tree: &Path) -> Result<()> {
    shell::build_commands(&PROGRAMS)?;
    for name in PROGRAMS {
        command(name, &tree.join("bin").join(name))?;
        help(tree, name)?;
    }
    for (from, to) in FILES {
        put(&shell::root().join(from), &tree.join(to))?;
    }
    let pc = fs::read_to_string(shell::root().join("include/rcoe.pc"))?;
    let pc = pc.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    write(&tree.join("share/pkgconfig/rcoe.pc"), pc.as_bytes())?;
    copy_all(&image::folder(), &tree.join("lib/rcoe/system"))
}

/// Writes a program's completions and its pages of the manual.
fn help(tree: &Path, name: &str) -> Result<()> {
    let program = || Command::new(tree.join("bin").join(name));
    for (kind, to) in COMPLETIONS {
        let completions = shell::output(shell::with(program(), &["completions", kind]))?;
        write(&tree.join(to.replace('@', name)), completions.as_bytes())?;
    }
    let pages = tree.join(MANUAL);
    fs::create_dir_all(&pages)?;
    let mut manual = program();
    manual.arg("manual").arg(&pages);
    ensure!(
        shell::succeeds(manual)?,
        "{name}: the manual was not written"
    );
    Ok(())
}

fn put(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder")?)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

fn write(to: &Path, content: &[u8]) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder")?)?;
    fs::write(to, content).with_context(|| to.display().to_string())
}

/// Copies a folder of files, and of folders of files.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    let listing = fs::read_dir(from).with_context(|| from.display().to_string())?;
    for entry in listing {
        let path = entry?.path();
        let goal = to.join(path.file_name().context("a name")?);
        if path.is_dir() {
            copy_all(&path, &goal)?;
        } else {
            put(&path, &goal)?;
        }
    }
    Ok(())
}

/// The Debian package of the tree, which it has as `/usr`.
fn package(folder: &Path, tree: &Path) -> Result<PathBuf> {
    let root = folder.join("package");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    copy_all(tree, &root.join("usr"))?;
    let mut du = Command::new("du");
    du.arg("-sk").arg(&root);
    let size = shell::output(du)?;
    let size = size.split_whitespace().next().unwrap_or("0");
    let control = CONTROL.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    let control = control.replace("@SIZE@", size);
    write(&root.join("DEBIAN/control"), control.as_bytes())?;
    let path = folder.join(format!("rcoe_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(&root)
        .arg(&path);
    ensure!(shell::output(build).is_ok(), "dpkg-deb failed");
    fs::remove_dir_all(&root)?;
    Ok(path)
}

/// Makes the tarball in a temporary folder, unpacks it elsewhere and runs both spheres from it,
/// with nothing of this checkout in the environment.
pub(crate) fn check() -> Result<Counts> {
    let (made, unpacked) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let tarball = make(made.path())?.tarball;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&tarball).arg("-C").arg(unpacked.path());
    ensure!(shell::succeeds(tar)?, "the tarball does not unpack");
    drop(made);
    let bin = unpacked.path().join(name()).join("bin");
    let mut counts = Counts::default();
    for name in PROGRAMS {
        counts.add(Counts::one(!names_checkout(&bin.join(name))?));
        let help = shell::output(shell::with(Command::new(bin.join(name)), &["--help"]))?;
        let missing = without_help(&unpacked.path().join(self::name()), name, &help)?;
        missing.iter().for_each(|path| println!("no {path}"));
        counts.add(Counts::one(missing.is_empty()));
    }
    for (words, expected) in [
        ("rcoe run --no-ledger -n 3 -- /bin/echo there", "there\n"),
        (
            "rcoe run --sphere system -n 3 -- hello",
            "hello from a replicated system\n",
        ),
        ("rcoe-faultlab show --sphere process", "\nmasked: "),
        ("rcoe-faultlab show --sphere system", "\nmasked: "),
    ] {
        let (program, words) = words.split_once(' ').context("arguments")?;
        let mut command = Command::new(bin.join(program));
        command.args(words.split(' ')).current_dir(unpacked.path());
        command.env_clear().env("PATH", "/usr/bin:/bin");
        let said = shell::output(command)?;
        println!("{program} {words}: {}", said.trim_end());
        counts.add(Counts::one(said.contains(expected)));
    }
    Ok(counts)
}

/// Pages of the manual and completions that a program lacks: of pages one for itself and one for
/// each subcommand that its own help lists.
fn without_help(tree: &Path, name: &str, help: &str) -> Result<Vec<String>> {
    let subcommands = subcommands(help);
    ensure!(!subcommands.is_empty(), "{name} lists no subcommands");
    let pages = subcommands
        .iter()
        .map(|it| format!("{MANUAL}/{name}-{it}.1"));
    let completions = COMPLETIONS.iter().map(|(_, to)| to.replace('@', name));
    let all = pages
        .chain(completions)
        .chain([format!("{MANUAL}/{name}.1")]);
    Ok(all.filter(|path| !tree.join(path).is_file()).collect())
}

/// The subcommands that a program's help lists. What they are for goes on in deeper lines.
fn subcommands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter_map(|rest| rest.split(' ').next());
    names
        .filter(|name| !name.is_empty() && *name != "help")
        .collect()
}

/// Whether a file names the checkout, and so could reach into it.
fn names_checkout(path: &Path) -> Result<bool> {
    let top = shell::root().display().to_string().into_bytes();
    let found = fs::read(path)?.windows(top.len()).any(|part| part == top);
    if found {
        println!("{} names the folder it was built in", path.display());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{COMPLETIONS, without_help, write};

    const HELP: &str = "Does.\n\nCommands:\n  run      Runs\n           much\n  top-all  Shows\n  \
                        help  Helps\n\nOptions:\n  -h, --help\n";

    #[test]
    fn each_subcommand_has_a_page_and_each_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        let missing = || without_help(tree, "p", HELP).unwrap();
        let pages = ["p-run.1", "p-top-all.1", "p.1"].map(|name| format!("share/man/man1/{name}"));
        let mut all: Vec<String> = COMPLETIONS.map(|(_, to)| to.replace('@', "p")).to_vec();
        all.extend(pages);
        assert_eq!(missing().len(), all.len());
        for (at, path) in all.iter().enumerate() {
            assert!(missing().contains(path), "{path}");
            write(&tree.join(path), b"").unwrap();
            assert_eq!(missing().len(), all.len() - at - 1, "{path}");
        }
        assert!(without_help(tree, "p", "Options:\n  -h\n").is_err());
    }
}
