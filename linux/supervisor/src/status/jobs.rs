//! How a running job is found: a unix socket named by rcoe's process id in a folder of the user's.
//!
//! The folder is `rcoe` below `XDG_RUNTIME_DIR`, or `rcoe-UID` in that for temporary files, which
//! must be this user's own. Sockets that nobody listens on were left by an rcoe that was killed;
//! whoever lists jobs removes them.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions, read_dir};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use super::listen::{Listener, is_socket};
use super::snapshot::Snapshot;
use crate::folders::absolute;

/// Longest time that a job is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest answer in bytes.
const MOST_ANSWER: u64 = 16 << 20;

/// The folder in which this user's jobs are found.
#[must_use]
pub fn jobs_folder(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let folder = |name| absolute(variable(name));
    if let Some(runtime) = folder("XDG_RUNTIME_DIR") {
        return runtime.join("rcoe");
    }
    let temporary = folder("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    temporary.join(format!("rcoe-{}", geteuid().as_raw()))
}

/// Makes this process a job that can be found.
pub(crate) fn enter(folder: &Path) -> io::Result<Listener> {
    let mut tries = 10;
    loop {
        let made = DirBuilder::new().mode(0o700).create(folder);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let bound = check(folder)
            .and_then(|()| Listener::status(folder.join(std::process::id().to_string())));
        tries -= 1;
        match bound {
            // The last one that left took the folder with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {}
            bound => return bound,
        }
    }
}

/// Removes the folder if nobody else is in it.
pub(crate) fn leave(folder: &Path) {
    // Not empty is no error: others run.
    let _ = std::fs::remove_dir(folder);
}

/// The folder must be ours alone: who could write there could pose as a job.
fn check(folder: &Path) -> io::Result<()> {
    let metadata = folder.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        let text = format!("{} is not a folder of this user's", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The jobs that answer, by process id of rcoe. Stale sockets are removed.
///
/// # Errors
///
/// If the folder exists and cannot be read, or is not this user's own.
pub fn find_jobs(folder: &Path) -> io::Result<Vec<Snapshot>> {
    let items = match read_dir(folder) {
        Ok(items) => items,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    check(folder)?;
    let mut jobs = Vec::new();
    for path in items.filter_map(|item| Some(item.ok()?.path())) {
        match ask(&path) {
            Ok(snapshot) => jobs.push(snapshot),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(&path) => {
                // Another one that lists jobs may have been faster.
                let _ = std::fs::remove_file(&path);
            }
            // It ends just now, or is stopped: it has nothing to say.
            Err(_) => {}
        }
    }
    jobs.sort_by_key(|job| job.pid);
    Ok(jobs)
}

/// The job of one rcoe.
///
/// # Errors
///
/// If there is none, or it does not answer in time.
pub fn find_job(folder: &Path, pid: u32) -> io::Result<Snapshot> {
    check(folder)?;
    ask(&folder.join(pid.to_string()))
}

fn ask(path: &Path) -> io::Result<Snapshot> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MOST_ANSWER).read_to_end(&mut answer)?;
    let body = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .filter(|_| answer.starts_with(b"HTTP/1.1 200 "))
        .map(|at| &answer[at + 4..])
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok(serde_json::from_slice(body)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_folder_follows_the_environment() {
        let runtime = jobs_folder(|name| (name == "XDG_RUNTIME_DIR").then(|| "/r".into()));
        assert_eq!(runtime, Path::new("/r/rcoe"));
        let own = format!("rcoe-{}", geteuid().as_raw());
        let temporary = jobs_folder(|name| (name == "TMPDIR").then(|| "/t".into()));
        assert_eq!(temporary, Path::new("/t").join(&own));
        assert_eq!(jobs_folder(|_| None), Path::new("/tmp").join(&own));
    }

    #[test]
    fn stale_sockets_are_removed_and_other_files_are_not() {
        let top = tempfile::tempdir().expect("temporary folder");
        let folder = top.path().join("rcoe");
        assert!(find_jobs(&folder).expect("no folder, no jobs").is_empty());
        let own = enter(&folder).expect("entered");
        drop(UnixListener::bind(folder.join("1")).expect("bound"));
        std::fs::write(folder.join("2"), "data").expect("written");
        drop(own);
        leave(&folder);
        assert!(find_jobs(&folder).expect("listed").is_empty());
        assert!(!folder.join("1").exists());
        assert!(folder.join("2").exists());
        assert_eq!(folder.metadata().expect("there").mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_that_is_a_link_is_refused() {
        let top = tempfile::tempdir().expect("temporary folder");
        let folder = top.path().join("rcoe");
        std::os::unix::fs::symlink("/tmp", &folder).expect("linked");
        assert!(enter(&folder).is_err());
        assert!(find_jobs(&folder).is_err());
    }
}
