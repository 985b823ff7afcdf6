//! Whole systems in QEMU, as the behaviour tests start them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::launch::Outcome;
use crate::rcoe::{Scene, binary};

/// The folder of the system image: that of the environment, else built here.
static IMAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(folder) = std::env::var_os("RCOE_SYSTEM_IMAGE") {
        return folder.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["xtask", "image"]).current_dir(root);
    assert!(command.status().unwrap().success(), "the image builds");
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    target.join("system/image")
});

/// The processor of machines for which a test names none, if it is not to be the usual one.
static ARCH: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("RCOE_TEST_ARCH").ok());

/// Are machines AArch64's for which a test names no processor?
#[must_use]
pub fn is_aarch64() -> bool {
    ARCH.as_deref() == Some("aarch64")
}

/// The folder of the system image.
#[must_use]
pub fn image() -> &'static Path {
    &IMAGE
}

/// A command that runs a program in a system of its own.
///
/// # Panics
/// If rcoe cannot be built.
#[must_use]
pub fn words(options: &[&str], command: &[&str]) -> Vec<String> {
    let image = format!("RCOE_SYSTEM_IMAGE={}", IMAGE.display());
    let binary = binary().unwrap();
    // On a loaded machine an emulated core may wait for seconds for another that does not get its
    // share. Tests of lateness count instructions instead of time.
    let run = ["run", "--sphere", "system", "--timeout", "60s"];
    let run = &run[..if options.contains(&"--timeout") { 3 } else { 5 }];
    let mut words = vec!["env", &image, binary.to_str().unwrap()];
    words.extend(run);
    let names_arch = options.iter().any(|option| option.starts_with("--arch"));
    if let (false, Some(arch)) = (names_arch, ARCH.as_deref()) {
        words.extend(["--arch", arch]);
    }
    words.extend(options.iter().chain(&["--"]).chain(command));
    words.into_iter().map(str::to_owned).collect()
}

/// Runs a program in a system of its own.
#[must_use]
pub fn system(scene: &Scene, options: &[&str], command: &[&str]) -> Outcome {
    let words = words(options, command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    scene.run(&words)
}

/// As [`system`], with words for the kernel, by which tests have it do what it should not.
#[must_use]
pub fn system_with(scene: &Scene, kernel: &str, options: &[&str], command: &[&str]) -> Outcome {
    let mut words = words(options, command);
    words.insert(1, format!("RCOE_SYSTEM_WORDS={kernel}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    scene.run(&words)
}
