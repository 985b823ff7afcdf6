//! Folders that are given as files: all that is in them.
//!
//! Links to files are followed, those to folders are not. A folder without files is not carried.

use std::path::Path;

use super::{Carried, PLACES_MAX};
use crate::SystemError;

/// These files, with those that are in folders among them instead of the folders.
///
/// # Errors
/// If a folder cannot be read, or there are more files than possible.
pub(super) fn expand(carried: &[Carried]) -> Result<Vec<Carried>, SystemError> {
    let mut all = Vec::new();
    for given in carried {
        let before = all.len();
        walk(given.clone(), &mut all)?;
        if given.host.is_dir() && all.len() == before {
            let why = format!("--file {}: there is no file in it", given.host.display());
            return Err(SystemError::Setting(why));
        }
    }
    Ok(all)
}

fn walk(given: Carried, all: &mut Vec<Carried>) -> Result<(), SystemError> {
    let failed = |path: &Path| SystemError::host(path.display().to_string());
    let mut rest = vec![given];
    while let Some(next) = rest.pop() {
        if !next.host.is_dir() {
            all.push(next);
            if all.len() > PLACES_MAX {
                let why = format!("--file: more than {PLACES_MAX} files are not possible");
                return Err(SystemError::Setting(why));
            }
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(&next.host).map_err(failed(&next.host))? {
            let name = entry.map_err(failed(&next.host))?.file_name();
            let host = next.host.join(&name);
            let is_link = host.is_symlink();
            if host.is_file() || host.is_dir() && !is_link {
                let guest = next.guest.join(&name);
                inside.push(Carried { host, guest });
            }
        }
        // The first one in order is taken next.
        inside.sort_by(|one, other| other.guest.cmp(&one.guest));
        rest.extend(inside);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn all_files_of_a_folder_are_carried() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        std::fs::create_dir_all(path("a/empty")).unwrap();
        for name in ["a/y", "a/b/x", "single"] {
            std::fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink("y", path("a/z")).unwrap();
        std::os::unix::fs::symlink("..", path("a/b/up")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("a/lost")).unwrap();
        let given = |name: &str, guest: &str| Carried {
            host: path(name),
            guest: guest.into(),
        };
        let all = expand(&[
            given("single", "/s"),
            given("a", "/q"),
            given("absent", "/n"),
        ]);
        let guests: Vec<PathBuf> = all.unwrap().into_iter().map(|it| it.guest).collect();
        assert_eq!(
            guests,
            ["/s", "/q/b/x", "/q/y", "/q/z", "/n"].map(PathBuf::from)
        );
        let why = expand(&[given("a/empty", "/e")]).unwrap_err().to_string();
        assert!(why.contains("a/empty: there is no file"), "{why}");
        for number in 0..=PLACES_MAX {
            std::fs::write(path(&format!("a/{number}")), "").unwrap();
        }
        let why = expand(&[given("a", "/q")]).unwrap_err().to_string();
        assert!(why.contains("960"), "{why}");
    }
}
