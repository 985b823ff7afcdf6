//! Where tests are run: as processes on Linux, as replicas of such processes, and in a machine.
//!
//! Each place is a folder with all that is needed, and a command that runs what stands in its list
//! of tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use super::plan::Sphere;
use super::run::Settings;
use super::source::Test;
use crate::rcoe::binary;
use crate::system;

/// Where the folder is in a machine.
const TOP: &str = "/l";
/// The script that runs the tests.
const DRIVER: &str = include_str!("driver.sh");
/// What the script calls, and what tests call by its path: busybox, in the machine.
const TOOLS: [&str; 5] = ["chmod", "mkdir", "rm", "sh", "timeout"];
const IN_BIN: [&str; 7] = ["cat", "echo", "false", "ls", "sh", "sleep", "true"];
/// Files of the host's that tests look at.
const IN_ETC: [&str; 2] = ["/etc/passwd", "/etc/group"];
/// Memory of a machine.
const MEMORY: &str = "192M";
/// Tests run as the superuser, as they do in the machine, and must do no harm to anybody.
const APART: [&str; 8] = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--uts",
    "--ipc",
    "--mount-proc",
];
/// Files are in memory, as they are in the machine. Its words: the folder, and what is to run.
const IN_MEMORY: &str = "mount -t tmpfs tmpfs \"$0/tmp\" && exec \"$@\"";

/// A folder with all that is needed, and the command that runs the tests of its list.
pub(super) struct Place {
    folder: TempDir,
    /// The command.
    pub(super) argv: Vec<String>,
}

impl Place {
    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sets which tests are to be run.
    pub(super) fn set_list(&self, tests: &[Test]) -> Result<()> {
        let lines = tests
            .iter()
            .map(|it| format!("{} {}\n", it.name, it.command));
        Ok(fs::write(
            self.folder().join("list"),
            lines.collect::<String>(),
        )?)
    }
}

/// Processes on Linux.
pub(super) fn on_linux(settings: &Settings, tests: &[Test]) -> Result<Place> {
    as_processes(settings, tests, |_| Vec::new())
}

/// So many replicas of the sphere.
pub(super) fn of_sphere(settings: &Settings, replicas: u32, tests: &[Test]) -> Result<Place> {
    match settings.sphere {
        Sphere::System => in_machine(settings, replicas, tests),
        Sphere::Process => {
            let rcoe = binary()?.display().to_string();
            let replicas = replicas.to_string();
            as_processes(settings, tests, |top| {
                // What it keeps of its runs is not for the user that it is called by.
                let state = format!("XDG_STATE_HOME={}", top.join("state").display());
                let words = ["env", &state, &rcoe, "run", "-n", &replicas, "--"];
                words.map(str::to_owned).to_vec()
            })
        }
    }
}

/// Processes on Linux, each test begun by the words of `prefix`.
fn as_processes(
    settings: &Settings,
    tests: &[Test],
    prefix: impl Fn(&Path) -> Vec<String>,
) -> Result<Place> {
    let folder = tempfile::tempdir()?;
    let top = folder.path();
    let bin = top.join("testcases/bin");
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(top.join("tmp"))?;
    fs::write(top.join("driver.sh"), DRIVER)?;
    for path in programs(tests) {
        fs::copy(path, bin.join(path.file_name().unwrap_or_default()))?;
    }
    for name in TOOLS {
        symlink(&settings.busybox, bin.join(name))?;
    }
    open_to_all(top)?;
    let busybox = settings.busybox.display().to_string();
    let [driver, top_name] = [&top.join("driver.sh"), top].map(|it| it.display().to_string());
    let limit = settings.limit.to_string();
    let mounts = ["sh", "-c", IN_MEMORY, &top_name];
    let words = [&busybox, "sh", &driver, &top_name, &limit];
    let prefix = prefix(top);
    let words = APART.iter().chain(&mounts).chain(&words).copied();
    let words = words.map(str::to_owned).chain(prefix);
    let argv = words.collect();
    Ok(Place { folder, argv })
}

/// Replicas of a machine.
fn in_machine(settings: &Settings, replicas: u32, tests: &[Test]) -> Result<Place> {
    let folder = tempfile::tempdir()?;
    let top = folder.path();
    fs::write(top.join("driver.sh"), DRIVER)?;
    let busybox = settings.busybox.display().to_string();
    let at = |path: &Path, place: &str| format!("{}:{place}", path.display());
    let mut files: Vec<String> = IN_ETC.map(str::to_owned).into();
    files.extend(IN_BIN.map(|it| at(&settings.busybox, &format!("/bin/{it}"))));
    files.extend(TOOLS.map(|it| at(&settings.busybox, &format!("{TOP}/testcases/bin/{it}"))));
    for name in ["driver.sh", "list"] {
        files.push(at(&top.join(name), &format!("{TOP}/{name}")));
    }
    for path in programs(tests) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        files.push(at(path, &format!("{TOP}/testcases/bin/{name}")));
    }
    let (replicas, limit) = (replicas.to_string(), settings.limit.to_string());
    let mut options = vec!["-n", &replicas, "--memory", MEMORY];
    options.extend(files.iter().flat_map(|it| ["--file", it]));
    let driver = format!("{TOP}/driver.sh");
    let argv = system::words(&options, &[&busybox, "sh", &driver, TOP, &limit]);
    Ok(Place { folder, argv })
}

/// Lets everybody into a folder: tests of rights become other users.
fn open_to_all(folder: &Path) -> Result<()> {
    Ok(fs::set_permissions(
        folder,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// The programs of tests, each once.
fn programs(tests: &[Test]) -> Vec<&PathBuf> {
    let mut programs: Vec<&PathBuf> = tests.iter().flat_map(|it| &it.programs).collect();
    programs.sort();
    programs.dedup();
    programs
}
