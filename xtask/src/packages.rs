//! Debian packages that tests and the demonstration need.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Installs what is missing of `packages` where we may; else prints the line to run and fails.
pub(crate) fn ensure(packages: &[String]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .map(String::as_str)
        .filter(|p| !installed(p))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let Some(prefix) = privilege() else {
        bail!(
            "these Debian packages are missing; run this, then try again:\n  {}",
            line(&list)
        );
    };
    println!("installing {} Debian packages: {list}", missing.len());
    let update = apt(prefix, &["update", "-q"]);
    let install = apt(prefix, &["install", "-y", "-q", "--no-install-recommends"]);
    for command in [update, crate::shell::with(install, &missing)] {
        run_quietly(command).with_context(|| format!("by hand: {}", line(&list)))?;
    }
    Ok(())
}

fn line(list: &str) -> String {
    format!("sudo apt-get update && sudo apt-get install -y --no-install-recommends {list}")
}

fn installed(package: &str) -> bool {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}

/// How to become root without being asked anything: not at all, by sudo, or impossible.
fn privilege() -> Option<&'static [&'static str]> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return None;
    }
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() == b"0" {
        return Some(&[]);
    }
    let sudo = Command::new("sudo")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status();
    sudo.is_ok_and(|status| status.success())
        .then_some(&["sudo", "-n"])
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Command {
    let mut words: Vec<&str> = prefix.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    words.extend(["-o", "DPkg::Lock::Timeout=600"]);
    words.extend(arguments);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// Runs a command and shows its output only if it fails.
fn run_quietly(mut command: Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&text));
    }
    Ok(())
}
