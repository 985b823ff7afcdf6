//! The folders where a dynamic loader looks for libraries when nobody names others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::absolute;
use crate::Arch;

/// Folders that loaders have built in, in the order in which those that have them look there: first
/// those for one processor alone.
const fn own_folders(arch: Arch) -> [&'static str; 2] {
    match arch {
        Arch::X86_64 => ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"],
        Arch::Aarch64 => ["/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"],
    }
}
const FOLDERS: [&str; 6] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/local/lib",
    "/usr/lib",
    "/usr/local/lib64",
];
/// What glibc's loader knows of folders by, and what its configuration includes.
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// Most files of a configuration.
const FILES: usize = 64;
/// Libraries that are one with musl's loader.
const OF_MUSL: [&str; 7] = ["c", "pthread", "rt", "m", "dl", "util", "xnet"];

/// A dynamic loader.
#[derive(Debug)]
pub(super) struct Loader {
    name: String,
    /// Is it musl's, which has other rules, and is its own library of C?
    pub(super) musl: bool,
    /// Folders that it has built in.
    pub(super) folders: Vec<PathBuf>,
    /// Those that its configuration on this host names besides.
    pub(super) listed: Vec<PathBuf>,
}

impl Loader {
    /// The loader in this file, of a machine.
    pub(super) fn new(arch: Arch, content: &[u8], path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let musl = name.starts_with("ld-musl-");
        let own = own_folders(arch);
        let all = || own.into_iter().chain(FOLDERS);
        let has = |folder: &&str| has_folder(content, folder, musl);
        let mut folders: Vec<PathBuf> = all().filter(has).map(PathBuf::from).collect();
        if folders.is_empty() {
            folders = all().map(PathBuf::from).collect();
        }
        let listed = match musl {
            true => listed_for_musl(&name),
            false => listed(Path::new(CONFIGURATION)),
        };
        Self {
            name,
            musl,
            folders,
            listed,
        }
    }

    /// Does the loader itself stand for a library of this name?
    pub(super) fn is(&self, name: &str) -> bool {
        let of_musl = || {
            let short = name.strip_prefix("lib")?;
            let (short, rest) = short.split_once('.')?;
            (OF_MUSL.contains(&short) && rest.starts_with("so")).then_some(())
        };
        name == self.name || self.musl && of_musl().is_some()
    }
}

/// Has a loader a folder built in? One has strings, the other one a list with colons.
fn has_folder(content: &[u8], folder: &str, musl: bool) -> bool {
    let has = |text: String| content.windows(text.len()).any(|it| it == text.as_bytes());
    match musl {
        true => ["\0", ":"].into_iter().any(|before| {
            let mut behind = ["\0", ":"].into_iter();
            behind.any(|behind| has(format!("{before}{folder}{behind}")))
        }),
        false => has(format!("\0{folder}/\0")),
    }
}

/// What musl's loader reads: folders, by line or colon.
fn listed_for_musl(name: &str) -> Vec<PathBuf> {
    let stem = name.split(".so").next().unwrap_or(name);
    let text = std::fs::read_to_string(format!("/etc/{stem}.path")).unwrap_or_default();
    let folders = text.split([':', '\n']).filter(|it| it.starts_with('/'));
    folders.map(PathBuf::from).collect()
}

/// The folders of a configuration of glibc's, with those of files that it includes.
fn listed(configuration: &Path) -> Vec<PathBuf> {
    let (mut folders, mut seen) = (Vec::new(), BTreeSet::new());
    let mut files = vec![configuration.to_owned()];
    while let Some(file) = files.pop() {
        if seen.len() == FILES || !seen.insert(file.clone()) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            match line.strip_prefix("include") {
                Some(pattern) => files.extend(included(pattern.trim(), &file)),
                None if line.starts_with('/') => folders.push(line.into()),
                None => {}
            }
        }
    }
    folders
}

/// The files that a pattern means, the last first: a star may stand in the name.
fn included(pattern: &str, from: &Path) -> Vec<PathBuf> {
    let folder = from.parent().unwrap_or(Path::new("/"));
    let pattern = absolute(&folder.join(pattern));
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((before, after)) = name.split_once('*') else {
        return vec![pattern];
    };
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let long = name.len() >= before.len() + after.len();
        long && name.starts_with(before) && name.ends_with(after)
    };
    let entries = std::fs::read_dir(pattern.parent().unwrap_or(Path::new("/")));
    let entries = entries.into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|it| it.path()).filter(fits).collect();
    paths.sort();
    paths.reverse();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_folders_and_includes_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("d")).unwrap();
        let main = "include d/*.conf\n/a # why\nno/root\ninclude nowhere\n";
        std::fs::write(path("main"), main).unwrap();
        std::fs::write(path("d/1.conf"), "/b\n").unwrap();
        std::fs::write(path("d/2.conf"), "/c\ninclude ../main\n").unwrap();
        std::fs::write(path("d/3.other"), "/d\n").unwrap();
        let found = listed(&path("main"));
        assert_eq!(found, ["/a", "/b", "/c"].map(PathBuf::from));
    }

    #[test]
    fn loaders_are_told_apart_with_the_folders_that_they_have() {
        let glibc = b"x\0/lib64/\0/usr/lib64/\0/opt/lib/\0";
        let loader = Loader::new(
            Arch::X86_64,
            glibc,
            Path::new("/lib64/ld-linux-x86-64.so.2"),
        );
        assert_eq!(loader.folders, ["/lib64", "/usr/lib64"].map(PathBuf::from));
        assert!(loader.is("ld-linux-x86-64.so.2") && !loader.is("libc.so.6"));
        let musl = b"\0/lib:/usr/local/lib:/usr/lib\0";
        let loader = Loader::new(Arch::X86_64, musl, Path::new("/lib/ld-musl-x86_64.so.1"));
        let folders = ["/lib", "/usr/local/lib", "/usr/lib"];
        assert_eq!(loader.folders, folders.map(PathBuf::from));
        assert!(loader.is("libc.so") && loader.is("libm.so.6") && !loader.is("libz.so"));
    }
}
