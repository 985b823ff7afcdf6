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

/// Completions: the shell, and where it looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/rcoe"),
    ("zsh", "share/zsh/vendor-completions/_rcoe"),
    ("fish", "share/fish/vendor_completions.d/rcoe.fish"),
];

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
    let rcoe = tree.join("bin/rcoe");
    shell::build("release", &PROGRAMS)?;
    for name in PROGRAMS {
        command(name, &tree.join("bin").join(name))?;
    }
    for (from, to) in FILES {
        put(&shell::root().join(from), &tree.join(to))?;
    }
    let pc = fs::read_to_string(shell::root().join("include/rcoe.pc"))?;
    let pc = pc.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    write(&tree.join("share/pkgconfig/rcoe.pc"), pc.as_bytes())?;
    for (kind, to) in COMPLETIONS {
        let mut completions = Command::new(&rcoe);
        completions.args(["completions", kind]);
        write(&tree.join(to), shell::output(completions)?.as_bytes())?;
    }
    let pages = tree.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    let mut manual = Command::new(&rcoe);
    manual.arg("manual").arg(&pages);
    ensure!(shell::succeeds(manual)?, "the manual was not written");
    copy_all(&image::folder(), &tree.join("lib/rcoe/system"))
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

/// Whether a file names the checkout, and so could reach into it.
fn names_checkout(path: &Path) -> Result<bool> {
    let top = shell::root().display().to_string().into_bytes();
    let found = fs::read(path)?.windows(top.len()).any(|part| part == top);
    if found {
        println!("{} names the folder it was built in", path.display());
    }
    Ok(found)
}
