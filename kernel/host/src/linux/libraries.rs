//! Loaders and libraries of dynamic programs, found where a loader will look for them.
//!
//! Neither program nor loader is executed for that. A file is packed where the program's loader
//! finds it in the machine, where there are no links, and no cache of what there is: so what is in
//! any of the system's folders here is in the first one there.
//!
//! Not covered: what a program opens by itself (`dlopen`), but for the library by which glibc ends
//! threads; folders for special processors (`glibc-hwcaps`), and `$LIB` and `$PLATFORM`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::bundle::File;
use super::{PATH_MAX, absolute, elf, system_folders};
use crate::Arch;
use system_folders::Loader;

/// What glibc opens when a thread is cancelled or ends early, if the program has this library.
const UNWINDER: &str = "libgcc_s.so.1";
const GLIBC: &str = "libc.so.6";

/// Files, and where they are on the host.
pub(super) struct Shelf<'a> {
    arch: Arch,
    files: &'a mut Vec<File>,
    /// Where each file is on the host.
    hosts: Vec<PathBuf>,
    /// Each file's number, by where it is found.
    places: BTreeMap<PathBuf, usize>,
    /// Folders that the environment names, and libraries for all programs.
    library_path: Vec<Folder>,
    preloaded: Vec<String>,
}

/// A folder: here, and there.
#[derive(Clone, Debug)]
struct Folder {
    host: PathBuf,
    guest: PathBuf,
}

/// A file whose libraries are to be found, with the folders that those who need it have said.
struct Seeker {
    file: usize,
    inherited: Vec<Folder>,
}

impl<'a> Shelf<'a> {
    /// These files of programs for a machine, and where they are on the host.
    pub(super) fn new(
        arch: Arch,
        files: &'a mut Vec<File>,
        hosts: Vec<PathBuf>,
        environment: &[OsString],
    ) -> Self {
        let value = |name: &str| {
            let name = format!("{name}=");
            let mut all = environment.iter();
            let found = all.find_map(|it| it.as_bytes().strip_prefix(name.as_bytes()));
            String::from_utf8_lossy(found.unwrap_or(&[])).into_owned()
        };
        let folders = value("LD_LIBRARY_PATH");
        let folders = folders.split([':', ';']).filter(|it| !it.is_empty());
        let library_path = folders.map(|it| Folder {
            host: it.into(),
            guest: absolute(Path::new(it)),
        });
        let preloaded = value("LD_PRELOAD");
        let preloaded = preloaded.split([':', ' ']).filter(|it| !it.is_empty());
        let places = files.iter().enumerate();
        Self {
            arch,
            places: places.map(|(at, it)| (it.path.clone(), at)).collect(),
            library_path: library_path.collect(),
            preloaded: preloaded.map(str::to_owned).collect(),
            files,
            hosts,
        }
    }

    /// Adds what the program in a file needs: the numbers of its loader and its libraries.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub(super) fn add(&mut self, file: usize, loader: &Path) -> Result<Vec<usize>, String> {
        let place = absolute(loader);
        let found = self.at(loader, &place);
        let found = found.ok_or_else(|| {
            let loader = loader.display();
            format!(
                "it needs {loader}, which is not there: install it, or give it by \
                 --file HOST:{loader}"
            )
        })?;
        let loader = Loader::new(self.arch, &self.files[found].content, &place);
        let mut all = self.libraries(file, &loader)?;
        all.push(found);
        Ok(all)
    }

    /// Adds what a module needs that is for programs of this loader, as far as it is there: the
    /// loader itself tells what is not.
    pub(super) fn add_module(&mut self, file: usize, loader: &Path) {
        let place = absolute(loader);
        if let Some(found) = self.at(loader, &place) {
            let loader = Loader::new(self.arch, &self.files[found].content, &place);
            let _ = self.libraries(file, &loader);
        }
    }

    /// Adds the libraries that a file needs, and those that these need.
    fn libraries(&mut self, file: usize, loader: &Loader) -> Result<Vec<usize>, String> {
        let mut known: BTreeSet<String> = BTreeSet::new();
        let (mut all, mut first) = (Vec::new(), true);
        let inherited = Vec::new();
        let mut seekers = VecDeque::from([Seeker { file, inherited }]);
        while let Some(seeker) = seekers.pop_front() {
            let needs = elf::needs(&self.files[seeker.file].content);
            let (folders, inherited) = self.folders(&seeker, &needs, loader);
            known.extend(needs.name);
            let mut names = needs.libraries;
            if first {
                names.splice(0..0, self.preloaded.iter().cloned());
            }
            if names.iter().any(|it| it == GLIBC) && !known.contains(GLIBC) {
                names.push(UNWINDER.into());
            }
            for name in names {
                if loader.is(&name) || !known.insert(name.clone()) {
                    continue;
                }
                match self.find(&name, &folders, loader) {
                    Some(file) => {
                        let inherited = inherited.clone();
                        all.push(file);
                        seekers.push_back(Seeker { file, inherited });
                    }
                    None if name == UNWINDER || self.preloaded.contains(&name) => {}
                    None => return Err(self.missing(&name, (seeker.file, first), loader)),
                }
            }
            first = false;
        }
        Ok(all)
    }

    /// Folders where the libraries of a file are looked for before those of the system, and those
    /// of them that count for what these libraries need.
    fn folders(
        &self,
        seeker: &Seeker,
        needs: &elf::Needs,
        loader: &Loader,
    ) -> (Vec<Folder>, Vec<Folder>) {
        let parse = |list: &Option<String>| self.parse(seeker.file, list.as_deref());
        let run_path = parse(&needs.run_path);
        let (mut inherited, mut folders) = (parse(&needs.inherited_path), Vec::new());
        if loader.musl {
            inherited.splice(0..0, run_path);
            inherited.extend(seeker.inherited.iter().cloned());
            folders.extend(self.library_path.iter().chain(&inherited).cloned());
        } else if run_path.is_empty() {
            inherited.extend(seeker.inherited.iter().cloned());
            folders.extend(inherited.iter().chain(&self.library_path).cloned());
        } else {
            inherited.clone_from(&seeker.inherited);
            folders.extend(self.library_path.iter().cloned().chain(run_path));
        }
        (folders, inherited)
    }

    /// The folders of a list in a file.
    fn parse(&self, file: usize, list: Option<&str>) -> Vec<Folder> {
        let origin = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
        let (host, guest) = (&self.hosts[file], &self.files[file].path);
        let list = list.unwrap_or("").split(':').filter(|it| !it.is_empty());
        let folders = list.map(|it| {
            let of = |path: &Path| {
                let origin = origin(path).display().to_string();
                it.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)
            };
            Folder {
                host: of(host).into(),
                guest: absolute(Path::new(&of(guest))),
            }
        });
        folders.collect()
    }

    /// The number of the library of this name.
    fn find(&mut self, name: &str, folders: &[Folder], loader: &Loader) -> Option<usize> {
        if name.contains('/') {
            return self.at(Path::new(name), &absolute(Path::new(name)));
        }
        for folder in folders {
            let found = self.at(&folder.host.join(name), &folder.guest.join(name));
            if found.is_some() {
                return found;
            }
        }
        let mut there = loader.folders.iter();
        let given = there.find_map(|it| self.places.get(&it.join(name)).copied());
        if let Some(given) = given.filter(|&it| elf::is_ours(self.arch, &self.files[it].content)) {
            return Some(given);
        }
        let guest = loader.folders.first()?.join(name);
        let mut here = loader.listed.iter().chain(&loader.folders);
        here.find_map(|it| self.at(&it.join(name), &guest))
    }

    /// The number of the file at a place there, which is added if there is one here.
    fn at(&mut self, host: &Path, guest: &Path) -> Option<usize> {
        if let Some(&file) = self.places.get(guest) {
            return elf::is_ours(self.arch, &self.files[file].content).then_some(file);
        }
        let content = std::fs::read(host).ok()?;
        if !elf::is_ours(self.arch, &content) || guest.as_os_str().len() > PATH_MAX {
            return None;
        }
        let number = self.files.len();
        self.files.push(File {
            path: guest.to_owned(),
            content,
            mode: 0o755,
        });
        self.hosts.push(host.to_owned());
        self.places.insert(guest.to_owned(), number);
        Some(number)
    }

    fn missing(&self, name: &str, (file, first): (usize, bool), loader: &Loader) -> String {
        let who = match first {
            true => "it".to_owned(),
            false => format!("its library {}", self.files[file].path.display()),
        };
        let folder = loader.folders.first().map(|it| it.join(name));
        let place = folder.unwrap_or_else(|| name.into());
        format!(
            "{who} needs {name}, which is not where its loader looks: install it, or give it by \
             --file HOST:{}",
            place.display()
        )
    }
}

#[cfg(test)]
mod tests;
