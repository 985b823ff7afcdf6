//! Programs of Linux: found, judged, and packed for the personality that serves their calls.
//!
//! What cannot be carried is refused here, by name and with what to do, before a machine starts.
//! What a program gets from outside at its start (arguments, environment, files, the time, what
//! random numbers are made from) is in its [bundle](rcoe_abi::bundle), of which replicas have the
//! same. What follows is asked of the machine, whose primary answers for all.

mod bundle;
mod elf;
mod functions;
mod instructions;
mod libraries;
mod names;
mod system_folders;
mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use crate::{Arch, SystemError, coupling};

use bundle::Input;
use libraries::Shelf;
use rcoe_abi::bundle::Word;

/// Name of the program of the image that serves a Linux program's calls.
pub(crate) const PERSONALITY: &str = "linux";

/// Most bytes of arguments and environment together.
const WORDS_MAX: usize = 128 << 10;

/// Most arguments and variables together.
const STRINGS_MAX: usize = 960;
/// Most files with the folders that lead to them, and longest path, in the personality.
const PLACES_MAX: usize = 960;
const PATH_MAX: usize = 120;

/// What is there without being carried: a folder, and devices.
const FOLDER: &str = "/tmp";
const THERE: [&str; 8] = [
    FOLDER,
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/proc/self/fd",
    "/dev/random",
    "/dev/urandom",
    "/dev/console",
];

/// A file that a program finds, or a folder with all that is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where the program finds it.
    pub guest: PathBuf,
}

impl std::str::FromStr for Carried {
    type Err = String;

    /// `HOST` or `HOST:GUEST`, the second from the root.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, guest) = text.split_once(':').unwrap_or((text, text));
        if host.is_empty() {
            return Err("a file of the host is missing".into());
        }
        let guest = absolute(Path::new(guest));
        if guest == Path::new("/") {
            return Err(format!("'{text}' names no file behind the colon"));
        }
        Ok(Self {
            host: host.into(),
            guest,
        })
    }
}

/// A path from the root, without `.` and `..`.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let mut whole = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            _ => {}
        }
    }
    whole
}

/// What a program of Linux is started with.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its arguments, with its own name.
    pub arguments: Vec<OsString>,
    /// Its environment, each `NAME=value`.
    pub environment: Vec<OsString>,
    /// Files and folders that it finds, besides itself.
    pub files: Vec<Carried>,
    /// What it reads from its standard input, if that is not empty or among the files.
    pub input: Option<Vec<u8>>,
    /// The folder whose files are on the disk, if there is a disk.
    pub disk: Option<PathBuf>,
    /// May it reach others, and ask for their names?
    pub outgoing: bool,
}

/// A program of Linux that can be carried, with what it is started with.
#[derive(Clone, Debug)]
pub struct LinuxProgram {
    bundle: Vec<u8>,
    memory: u64,
    /// A file with an exclusive load or store, where there are such, and its address.
    exclusive: Option<(PathBuf, u64)>,
}

/// Is this file made for the microkernel itself? Such files say so by a note.
#[must_use]
pub fn is_native(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|data| elf::has_note(&data))
}

/// The ELF file that `word` names, as a shell finds it, if it is one.
#[must_use]
pub fn find(word: &OsStr) -> Option<PathBuf> {
    let direct = Path::new(word);
    if word.as_bytes().contains(&b'/') {
        return direct.is_file().then(|| direct.to_path_buf());
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(direct));
    paths.find(|path| path.is_file())
}

impl LinuxProgram {
    /// Judges the program in an ELF file.
    ///
    /// # Errors
    /// What keeps it from being carried, and what to do.
    pub fn new(arch: Arch, path: &Path, start: &Start) -> Result<Self, SystemError> {
        let refuse = |why: String| SystemError::Program {
            path: path.display().to_string(),
            why,
        };
        let content = read(path)?;
        elf::read(arch, &content).map_err(refuse)?;
        let start = Start {
            files: trees::expand(&start.files)?,
            ..start.clone()
        };
        start.check(&own_place(path)).map_err(refuse)?;
        let mut files = files(path, content, &start.files)?;
        files.extend(start.input.clone().map(input));
        let mut hosts = vec![path.canonicalize().unwrap_or_else(|_| path.to_owned())];
        hosts.extend(start.files.iter().map(|it| it.host.clone()));
        let added = add_libraries(arch, &mut files, hosts, &start.environment);
        let (own, whys) = added.map_err(refuse)?;
        let names = names::files(&files, start.disk.as_deref(), start.outgoing);
        files.extend(names);
        check_places(files.iter().map(|it| it.path.as_path())).map_err(refuse)?;
        let programs = programs(arch, &files, whys);
        let memory = memory(&programs, &files, &own).map_err(refuse)?;
        let bundle = bundle::write(&Input {
            programs: &programs,
            arguments: &start.arguments,
            environment: &start.environment,
            files: &files,
            disk: start.disk.as_deref(),
            clock: clock(),
            seed: seed()?,
        });
        Ok(Self {
            bundle,
            memory,
            exclusive: first_exclusive(arch, &files),
        })
    }

    /// Can its replicas be stopped at one instruction?
    ///
    /// # Errors
    /// What stands against it, and what to do.
    pub(crate) fn check_coupling(&self) -> Result<(), SystemError> {
        match &self.exclusive {
            Some((path, address)) => {
                let name = path.display().to_string();
                Err(coupling::refuse_exclusive(&name, *address))
            }
            None => Ok(()),
        }
    }

    /// Bytes that it takes in memory at its start.
    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    /// Its bundle, with what these words say of the machine.
    pub(crate) fn bundle(&self, words: &[(Word, u64)]) -> Vec<u8> {
        let mut bundle = self.bundle.clone();
        for &(word, value) in words {
            bundle::set(&mut bundle, word, value);
        }
        bundle
    }
}

impl Start {
    /// Is there room for all, beside the program in its own place?
    fn check(&self, own: &Path) -> Result<(), String> {
        let words = self.arguments.iter().chain(&self.environment);
        let (count, bytes) = words.fold((0, 0), |(count, bytes), word| {
            (count + 1, bytes + word.len() + 1)
        });
        if bytes > WORDS_MAX || count > STRINGS_MAX {
            return Err(format!(
                "its {count} arguments and variables have {bytes} bytes, where {STRINGS_MAX} of \
                 {WORDS_MAX} bytes are possible: start it with fewer, as by env -i"
            ));
        }
        self.check_disk(own)?;
        let paths = self.files.iter().map(|file| file.guest.as_path());
        if let Some(path) = paths.clone().find(|path| path.as_os_str().len() > PATH_MAX) {
            let path = path.display();
            return Err(format!(
                "--file {path}: a path there has {PATH_MAX} bytes at most"
            ));
        }
        let taken = THERE.map(Path::new).into_iter().chain([own]);
        let mut files: BTreeSet<&Path> = taken.collect();
        if let Some(path) = paths.clone().find(|path| !files.insert(path)) {
            return Err(format!("--file {}: is there already", path.display()));
        }
        files.remove(Path::new(FOLDER));
        let above = |path: &&Path| {
            path.ancestors()
                .skip(1)
                .any(|folder| files.contains(folder))
        };
        if let Some(path) = paths.clone().find(above) {
            return Err(format!("--file {}: lies in a file", path.display()));
        }
        check_places(paths)
    }

    /// Can the disk's files be in its folder? Nothing else may be there, or it would hide them.
    fn check_disk(&self, own: &Path) -> Result<(), String> {
        let Some(folder) = &self.disk else {
            return Ok(());
        };
        let refuse = |why: String| Err(format!("--disk FILE:{}: {why}", folder.display()));
        if folder.as_os_str().len() > PATH_MAX / 2 {
            return refuse(format!(
                "the folder's path has {} bytes at most",
                PATH_MAX / 2
            ));
        }
        let files = self.files.iter().map(|file| file.guest.as_path());
        let there = THERE.map(Path::new).into_iter().chain([own]);
        let meets = |path: &&Path| path.starts_with(folder) || folder.starts_with(path);
        match there.chain(files).find(meets) {
            Some(path) => refuse(format!("{} is there: name another folder", path.display())),
            None => Ok(()),
        }
    }
}

/// Is there room for so many files?
fn check_places<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), String> {
    let places: BTreeSet<&Path> = paths.flat_map(Path::ancestors).collect();
    match places.len() {
        ..=PLACES_MAX => Ok(()),
        places => Err(format!(
            "with --file and libraries it has {places} files and folders, where {PLACES_MAX} are \
             possible"
        )),
    }
}

/// Where a program finds itself: where it is here, if the personality has such long paths.
fn own_place(program: &Path) -> PathBuf {
    let place = absolute(program);
    match place.as_os_str().len() {
        ..=PATH_MAX => place,
        _ => PathBuf::from("/program"),
    }
}

/// The program's own file, and those that it finds besides.
fn files(
    program: &Path,
    content: Vec<u8>,
    carried: &[Carried],
) -> Result<Vec<bundle::File>, SystemError> {
    let mut files = vec![bundle::File {
        path: own_place(program),
        content,
        mode: 0o755,
    }];
    for file in carried {
        files.push(bundle::File {
            path: file.guest.clone(),
            content: read(&file.host)?,
            mode: mode(&file.host),
        });
    }
    Ok(files)
}

/// A program's standard input, as the personality finds it.
fn input(content: Vec<u8>) -> bundle::File {
    bundle::File {
        path: "/dev/stdin".into(),
        content,
        mode: 0o444,
    }
}

/// Adds the loaders and libraries that programs among files need: the numbers of the first one's,
/// and why others cannot be begun.
fn add_libraries(
    arch: Arch,
    files: &mut Vec<bundle::File>,
    hosts: Vec<PathBuf>,
    environment: &[OsString],
) -> Result<(Vec<usize>, BTreeMap<usize, String>), String> {
    let loader_of = |file: &bundle::File| elf::read(arch, &file.content).ok()?.loader;
    let loaders: Vec<_> = files.iter().map(loader_of).collect();
    let mut shelf = Shelf::new(arch, files, hosts, environment);
    let (mut own, mut whys) = (Vec::new(), BTreeMap::new());
    for (number, loader) in loaders.iter().enumerate() {
        match (loader, &loaders[0]) {
            (Some(loader), _) if number == 0 => own = shelf.add(number, loader)?,
            (Some(loader), _) => {
                if let Err(why) = shelf.add(number, loader) {
                    whys.insert(number, why);
                }
            }
            (None, Some(loader)) => shelf.add_module(number, loader),
            (None, None) => {}
        }
    }
    Ok((own, whys))
}

/// The programs and libraries among files, some of which cannot be begun. Whatever is no ELF file
/// is none.
fn programs(
    arch: Arch,
    files: &[bundle::File],
    mut whys: BTreeMap<usize, String>,
) -> Vec<bundle::Program> {
    let judge = |content: &[u8]| {
        let plan = elf::read(arch, content)?;
        let identities = match arch {
            Arch::X86_64 => instructions::identities(content, &plan)?,
            // What differs between cores faults there by itself.
            Arch::Aarch64 => Vec::new(),
        };
        Ok((plan, identities))
    };
    let numbers = files.iter().enumerate();
    let numbers = numbers.filter(|(_, file)| file.content.starts_with(b"\x7fELF"));
    let places: Vec<&Path> = numbers.clone().map(|(_, it)| it.path.as_path()).collect();
    let all = numbers.map(|(number, file)| {
        let (laid, why) = match judge(&file.content) {
            Ok(laid) => {
                let why = laid.0.check().err().or(whys.remove(&number));
                (Some(laid), why)
            }
            Err(why) => (None, Some(why)),
        };
        let loader = laid.as_ref().and_then(|(plan, _)| plan.loader.as_ref());
        let loader = loader.map(|it| absolute(it));
        bundle::Program {
            file: number,
            loader: loader.and_then(|loader| places.iter().position(|it| *it == loader)),
            laid,
            why,
        }
    });
    all.collect()
}

/// Bytes that the first program takes in memory with what it needs, the files of these numbers.
///
/// # Errors
/// Why it, its loader or one of its libraries cannot be carried.
fn memory(
    programs: &[bundle::Program],
    files: &[bundle::File],
    own: &[usize],
) -> Result<u64, String> {
    let loader = programs.first().and_then(|it| it.loader);
    let mut bytes = 0;
    for (number, program) in programs.iter().enumerate() {
        let begins = number == 0 || Some(number) == loader;
        if !begins && !own.contains(&program.file) {
            continue;
        }
        let why = program.why.as_ref();
        match (
            &program.laid,
            why.filter(|_| begins || program.laid.is_none()),
        ) {
            (_, Some(why)) if number == 0 => return Err(why.clone()),
            (_, Some(why)) => {
                let path = files[program.file].path.display();
                return Err(format!(
                    "it needs {path}, and that cannot be carried: {why}"
                ));
            }
            (Some((plan, _)), None) => bytes += plan.memory(),
            (None, None) => {}
        }
    }
    Ok(bytes)
}

/// The first file of programs for a machine that has an exclusive load or store, and its address.
fn first_exclusive(arch: Arch, files: &[bundle::File]) -> Option<(PathBuf, u64)> {
    let mut all = files.iter().filter(|_| arch == Arch::Aarch64);
    all.find_map(|file| {
        let address = coupling::first_exclusive(&file.content)?;
        Some((file.path.clone(), address))
    })
}

/// Nanoseconds of the host's clock.
fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

fn read(path: &Path) -> Result<Vec<u8>, SystemError> {
    std::fs::read(path).map_err(SystemError::host(path.display().to_string()))
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let found = std::fs::metadata(path);
    found.map_or(0o644, |found| found.permissions().mode() & 0o777)
}

/// What random numbers are made from: the host's.
fn seed() -> Result<[u64; 4], SystemError> {
    use std::io::Read as _;
    let mut bytes = [0; 32];
    let source = std::fs::File::open("/dev/urandom");
    let filled = source.and_then(|mut source| source.read_exact(&mut bytes));
    filled.map_err(SystemError::host("random numbers"))?;
    let mut seed = [0; 4];
    for (word, chunk) in seed.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_where_they_are_and_where_they_are_found() {
        let file: Carried = "a/b.txt:/etc/c".parse().unwrap();
        assert_eq!(file.host, Path::new("a/b.txt"));
        assert_eq!(file.guest, Path::new("/etc/c"));
        let same: Carried = "./a/../b".parse().unwrap();
        assert_eq!((same.host, same.guest), ("./a/../b".into(), "/b".into()));
        for wrong in ["", ":", ":/a", "a:", "a:/", "a:/.."] {
            assert!(wrong.parse::<Carried>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_program_is_started_with_has_bounds() {
        let start = |arguments: usize, bytes: usize, files: usize, path: usize| Start {
            arguments: vec!["x".repeat(bytes).into(); arguments],
            environment: Vec::new(),
            files: (0..files)
                .map(|number| Carried {
                    host: "x".into(),
                    guest: format!("/{number}{}", "y".repeat(path)).into(),
                })
                .collect(),
            input: None,
            disk: None,
            outgoing: false,
        };
        let with_disk = |folder: &str, file: &str| Start {
            disk: Some(folder.into()),
            files: vec![file.parse().unwrap()],
            ..start(1, 1, 0, 0)
        };
        let own = Path::new("/own");
        assert_eq!(with_disk("/disk", "x:/disks").check(own), Ok(()));
        let names = |names: &[&str]| Start {
            files: names.iter().map(|name| name.parse().unwrap()).collect(),
            ..start(1, 1, 0, 0)
        };
        assert_eq!(
            names(&["x:/dev/stdin", &format!("x:{FOLDER}/y")]).check(own),
            Ok(())
        );
        assert_eq!(start(STRINGS_MAX, 9, PLACES_MAX - 1, 9).check(own), Ok(()));
        for (wrong, said) in [
            (start(STRINGS_MAX + 1, 9, 0, 0), "961 arguments"),
            (start(2, WORDS_MAX / 2, 0, 0), "131074 bytes"),
            (start(1, 1, PLACES_MAX, 9), "961 files"),
            (start(1, 1, 1, PATH_MAX), "a path there"),
            (names(&["x:/a", "y:/a"]), "/a: is there"),
            (names(&["x:/own"]), "/own: is there"),
            (names(&["x:/tmp"]), "/tmp: is there"),
            (names(&["x:/a", "y:/a/b"]), "/a/b: lies in a file"),
            (with_disk("/disk", "x:/disk/x"), "/disk/x is there"),
            (with_disk("/a/b", "x:/a"), "/a is there"),
            (with_disk("/own", "x:/a"), "/own is there"),
            (with_disk("/tmp", "x:/a"), "/tmp is there"),
            (with_disk(&"/a".repeat(40), "x:/a"), "60 bytes at most"),
        ] {
            let why = wrong.check(own).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        assert_eq!(
            own_place(&PathBuf::from("x".repeat(200))),
            Path::new("/program")
        );
    }

    #[test]
    fn a_program_is_found_as_a_shell_does() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(OsStr::new("./no/such/file")), None);
        assert_eq!(find(OsStr::new("no-such-program-anywhere")), None);
    }
}
