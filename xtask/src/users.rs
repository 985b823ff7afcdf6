//! End-to-end tests as users other than the one who builds: one without any privilege, and root
//! with no more capabilities than containers usually give.
//!
//! The test programs are copied to where everybody may read them. Whoever is not root runs the
//! whole suite without privileges anyway, and can become nobody else.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::Counts;
use crate::{cargo_tests, shell};

/// How to become the user, and the tests.
const USERS: [(&str, &[&str]); 2] = [
    (
        "--reuid=65534 --regid=65534 --clear-groups --bounding-set=-all",
        &["status", "takeover", "children", "security"],
    ),
    (
        "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
         +net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap",
        &["status", "takeover", "security"],
    ),
];

/// Copies a test program and runs it as the user.
const RUNNER: &str = "#!/bin/sh
folder=$(mktemp -d) && chmod 755 \"$folder\" && cp \"$1\" \"$folder/test\" || exit 1
shift
cd /
# shellcheck disable=SC2086
setpriv --inh-caps=-all --ambient-caps=-all $RCOE_BECOME \"$folder/test\" \"$@\"
status=$?
rm -r \"$folder\"
exit $status
";

/// Runs the tests.
pub(crate) fn run() -> Result<Counts> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        println!("not run by root: all tests have run without privileges");
        return Ok(Counts::one(true));
    }
    let folder = std::env::temp_dir().join(format!("rcoe-users-{}", std::process::id()));
    fs::create_dir(&folder).context("a folder that everybody may read")?;
    let counts = run_in(&folder);
    fs::remove_dir_all(&folder)?;
    counts
}

fn run_in(folder: &Path) -> Result<Counts> {
    let (rcoe, runner) = (folder.join("rcoe"), folder.join("runner"));
    fs::copy(shell::built("rcoe"), &rcoe)?;
    fs::write(&runner, RUNNER)?;
    for path in [folder, &rcoe, &runner] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    let mut counts = Counts::default();
    for (user, tests) in USERS {
        println!("setpriv {user}");
        let make = || {
            let mut command = tests_through(&runner, tests);
            command.env("RCOE_BECOME", user).env("RCOE_BIN", &rcoe);
            command
        };
        counts.add(cargo_tests::run(make)?);
    }
    Ok(counts)
}

/// The command that runs these tests, each program by the runner.
fn tests_through(runner: &Path, tests: &[&str]) -> Command {
    let mut command = shell::cargo(["test", "--workspace", "--no-fail-fast"]);
    for test in tests {
        command.args(["--test", test]);
    }
    let target = format!(
        "{}_UNKNOWN_LINUX_GNU",
        std::env::consts::ARCH.to_uppercase()
    );
    command.env(format!("CARGO_TARGET_{target}_RUNNER"), runner);
    command
}
