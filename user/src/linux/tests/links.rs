//! Names of files: links, further ones, none; when files were changed; what a process has open.

use linux_raw_sys::errno::{EBUSY, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOSPC, ENXIO};
use linux_raw_sys::general as nr;

use std::format;

use super::*;

/// Where second texts and answers are.
const OTHER: u64 = DATA + 0xa00;
const TO: u64 = DATA + 0x400;
const READ: u64 = nr::O_RDONLY as u64;
const NEW: u64 = (nr::O_CREAT | nr::O_RDWR) as u64;
const ITSELF: u64 = nr::AT_SYMLINK_NOFOLLOW as u64;
const HERE: u64 = (-100_i64).cast_unsigned();

type Program<'a, 'b> = &'a mut Process<'b, Mock>;

fn put(process: Program<'_, '_>, place: u64, text: &str) -> u64 {
    process.write(place, text.as_bytes()).unwrap();
    process.write(place + text.len() as u64, &[0]).unwrap();
    place
}

/// A call about one path, and one about two.
fn one(process: Program<'_, '_>, call: u32, path: &str, word: u64) -> Answer {
    let path = text(process, path);
    ask(process, call, &[path, word, 0o666])
}

fn two(process: Program<'_, '_>, call: u32, path: &str, other: &str) -> Answer {
    let (path, other) = (text(process, path), put(process, OTHER, other));
    ask(process, call, &[path, other])
}

fn link(process: Program<'_, '_>, named: &str, path: &str) {
    assert_eq!(two(process, nr::__NR_symlink, named, path), Ok(0), "{path}");
}

/// Makes a file with a text in it.
fn file(process: Program<'_, '_>, path: &str, content: &str) {
    let file = one(process, nr::__NR_open, path, NEW).unwrap();
    let content_at = put(process, OTHER, content);
    let words = [file, content_at, content.len() as u64];
    assert_eq!(ask(process, nr::__NR_write, &words), Ok(words[2]));
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
}

/// What is in a file.
fn content(process: Program<'_, '_>, path: &str) -> Result<String, Errno> {
    let file = one(process, nr::__NR_open, path, READ)?;
    let read = text_of(process, file);
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
    Ok(read)
}

fn text_of(process: Program<'_, '_>, file: u64) -> String {
    let len = ask(process, nr::__NR_pread64, &[file, TO, 64, 0]).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    process.read(TO, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// What is told of a path: its number, links, mode, bytes, and when it was changed.
fn told(process: Program<'_, '_>, call: u32, path: &str) -> Result<[u64; 5], Errno> {
    one(process, call, path, TO)?;
    let word = |process: &Process<'_, Mock>, at: u64| process.word(TO + 8 * at).unwrap();
    let [number, links, mode, size] = [1, 2, 3, 6].map(|at| word(process, at));
    let changed = word(process, 11) * 1_000_000_000 + word(process, 12);
    Ok([number, links, mode & 0xffff_ffff, size, changed])
}

/// The names in a folder, each with its kind.
fn entries(process: Program<'_, '_>, path: &str) -> Vec<(String, u8)> {
    let folder = one(process, nr::__NR_open, path, READ).unwrap();
    let len = ask(process, nr::__NR_getdents64, &[folder, TO, 0x300]).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    process.read(TO, &mut bytes).unwrap();
    assert_eq!(ask(process, nr::__NR_close, &[folder]), Ok(0));
    let mut found = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (entry, more) = rest.split_at(rest[16].into());
        let name = entry[19..].split(|&byte| byte == 0).next().unwrap();
        found.push((String::from_utf8_lossy(name).into_owned(), entry[18]));
        rest = more;
    }
    found
}

#[test]
fn a_link_leads_to_what_it_names() {
    with(|process, _| {
        link(process, "etc/text", "/to");
        link(process, "/etc", "/etc/folder");
        link(process, "../to", "/etc/again");
        for path in ["/to", "/etc/folder/text", "/etc/again", "/etc/folder/../to"] {
            assert_eq!(content(process, path).unwrap(), "0123456789", "{path}");
        }
        let there = told(process, nr::__NR_stat, "/to").unwrap();
        assert_eq!(there, told(process, nr::__NR_lstat, "/etc/text").unwrap());
        let itself = told(process, nr::__NR_lstat, "/to").unwrap();
        assert_eq!((itself[2], itself[3]), (0o120_777, 8));
        let path = text(process, "/etc/again");
        assert_eq!(ask(process, nr::__NR_readlink, &[path, TO, 99]), Ok(5));
        assert_eq!(process.word(TO).unwrap().to_le_bytes()[..5], *b"../to");
        assert_eq!(ask(process, nr::__NR_readlink, &[path, TO, 3]), Ok(3));
        let file = text(process, "/etc/text");
        let none = Err(Errno(EINVAL));
        assert_eq!(ask(process, nr::__NR_readlink, &[file, TO, 9]), none);
        assert!(entries(process, "/etc").contains(&("again".into(), 10)));
        // What is taken away is the link.
        assert_eq!(one(process, nr::__NR_unlink, "/to", 0), Ok(0));
        assert_eq!(content(process, "/to"), Err(Errno(ENOENT)));
        assert_eq!(content(process, "/etc/again"), Err(Errno(ENOENT)));
        assert_eq!(
            one(process, nr::__NR_rmdir, "/etc/folder", 0),
            Err(Errno(ENOTDIR))
        );
        assert_eq!(content(process, "/etc/text").unwrap(), "0123456789");
    });
}

#[test]
fn links_that_lead_nowhere_are_told_apart() {
    with(|process, _| {
        link(process, "/etc/new", "/to");
        link(process, "/etc/one", "/etc/two");
        link(process, "/etc/two", "/etc/one");
        let exclusive = NEW | u64::from(nr::O_EXCL);
        let itself = READ | u64::from(nr::O_NOFOLLOW);
        for (path, flags, error) in [
            ("/to", READ, ENOENT),
            ("/to", exclusive, EEXIST),
            ("/to", itself, ELOOP),
            ("/etc/one", READ, ELOOP),
            ("/etc/one/x", READ, ELOOP),
            ("/etc/text/", READ, ENOTDIR),
            ("/etc/text/..", READ, ENOTDIR),
            ("/none/../etc/text", READ, ENOENT),
            ("/etc/text/x", READ, ENOTDIR),
        ] {
            let answer = one(process, nr::__NR_open, path, flags);
            assert_eq!(answer, Err(Errno(error)), "{path}");
        }
        assert_eq!(
            one(process, nr::__NR_mkdir, "/to", 0o777),
            Err(Errno(EEXIST))
        );
        // A file is made where the link leads.
        file(process, "/to", "made");
        assert_eq!(content(process, "/etc/new").unwrap(), "made");
        for (named, error) in [("", ENOENT), ("x", EEXIST)] {
            let answer = two(process, nr::__NR_symlink, named, "/to");
            assert_eq!(answer, Err(Errno(error)));
        }
    });
}

#[test]
fn a_file_has_further_names_and_stays_until_the_last_one_is_gone() {
    with(|process, _| {
        file(process, "/etc/a", "text");
        assert_eq!(two(process, nr::__NR_link, "/etc/a", "/etc/b"), Ok(0));
        let [number, links, ..] = told(process, nr::__NR_stat, "/etc/a").unwrap();
        let other = told(process, nr::__NR_stat, "/etc/b").unwrap();
        assert_eq!((other[0], other[1], links), (number, 2, 2));
        let exists = Err(Errno(EEXIST));
        assert_eq!(two(process, nr::__NR_link, "/etc/a", "/etc/b"), exists);
        assert_eq!(two(process, nr::__NR_link, "/etc", "/x"), Err(Errno(EPERM)));
        // Two names of one file change nothing.
        assert_eq!(two(process, nr::__NR_rename, "/etc/a", "/etc/b"), Ok(0));
        assert_eq!(one(process, nr::__NR_unlink, "/etc/a", 0), Ok(0));
        assert_eq!(content(process, "/etc/a"), Err(Errno(ENOENT)));
        file(process, "/etc/b", "TE");
        assert_eq!(content(process, "/etc/b").unwrap(), "TExt");
        let [after, links, ..] = told(process, nr::__NR_stat, "/etc/b").unwrap();
        assert_eq!((after, links), (number, 1));
        assert_eq!(two(process, nr::__NR_link, "/etc/b", "/etc/c"), Ok(0));
        assert_eq!(one(process, nr::__NR_unlink, "/etc/c", 0), Ok(0));
        assert_eq!(told(process, nr::__NR_stat, "/etc/b").unwrap()[1], 1);
    });
}

#[test]
fn what_is_open_stays_without_a_name() {
    with(|process, _| {
        file(process, "/etc/a", "text");
        let left = process.machine.left();
        let open = one(process, nr::__NR_open, "/etc/a", READ).unwrap();
        let twice = ask(process, nr::__NR_dup, &[open]).unwrap();
        assert_eq!(one(process, nr::__NR_unlink, "/etc/a", 0), Ok(0));
        file(process, "/etc/a", "another");
        assert_eq!(text_of(process, open), "text");
        assert_eq!(ask(process, nr::__NR_fstat, &[open, TO]), Ok(0));
        assert_eq!(process.word(TO + 16), Ok(0), "it has no name");
        assert_eq!(ask(process, nr::__NR_close, &[open]), Ok(0));
        assert_eq!(text_of(process, twice), "text");
        assert_eq!(ask(process, nr::__NR_close, &[twice]), Ok(0));
        assert_eq!(process.machine.left(), left, "its memory is given back");
        assert_eq!(content(process, "/etc/a").unwrap(), "another");
        // A folder is left as well.
        assert_eq!(one(process, nr::__NR_mkdir, "/etc/f", 0o700), Ok(0));
        let folder = one(process, nr::__NR_open, "/etc/f", READ).unwrap();
        assert_eq!(one(process, nr::__NR_rmdir, "/etc/f", 0), Ok(0));
        assert_eq!(ask(process, nr::__NR_getdents64, &[folder, TO, 99]), Ok(0));
        let path = text(process, "x");
        let inside = ask(process, nr::__NR_openat, &[folder, path, NEW, 0]);
        assert_eq!(inside, Err(Errno(ENOENT)));
    });
}

#[test]
fn a_folder_moves_with_all_that_is_in_it() {
    with(|process, _| {
        for path in ["/etc/a", "/etc/a/b", "/etc/e", "/etc/full"] {
            assert_eq!(one(process, nr::__NR_mkdir, path, 0o755), Ok(0));
        }
        file(process, "/etc/a/b/x", "text");
        file(process, "/etc/full/x", "text");
        assert_eq!(one(process, nr::__NR_chdir, "/etc/a/b", 0), Ok(0));
        for (from, to, error) in [
            ("/etc/a", "/etc/a/b/c", EINVAL),
            ("/etc/a", "/etc/full", ENOTEMPTY),
            ("/etc/a", "/etc/text", ENOTDIR),
            ("/etc/text", "/etc/a", EISDIR),
            ("/etc/a", "/none/a", ENOENT),
            ("/etc/a", &format!("/etc/{}", "x".repeat(112)), ENAMETOOLONG),
            ("/", "/etc/r", EBUSY),
        ] {
            let answer = two(process, nr::__NR_rename, from, to);
            assert_eq!(answer, Err(Errno(error)), "{from} {to}");
        }
        assert_eq!(two(process, nr::__NR_rename, "/etc/a", "/etc/e"), Ok(0));
        assert_eq!(content(process, "/etc/e/b/x").unwrap(), "text");
        assert_eq!(
            content(process, "x").unwrap(),
            "text",
            "whoever is in it moves too"
        );
        assert_eq!(content(process, "/etc/a/b/x"), Err(Errno(ENOENT)));
    });
}

#[test]
fn files_tell_when_they_were_changed() {
    with(|process, _| {
        let began = 7_000_000_000;
        let changed =
            |process: Program<'_, '_>, path: &str| told(process, nr::__NR_lstat, path).unwrap()[4];
        assert_eq!(changed(process, "/etc/text"), began);
        file(process, "/etc/a", "text");
        let first = changed(process, "/etc/a");
        assert!(first > began && changed(process, "/etc") > began);
        let asked = process.machine.now;
        assert_eq!(changed(process, "/etc/a"), first);
        assert_eq!(process.machine.now, asked, "it is known already");
        file(process, "/etc/a", "text");
        assert!(changed(process, "/etc/a") > first);
        link(process, "a", "/etc/l");
        let path = text(process, "/etc/l");
        let stamp = |process: Program<'_, '_>, words: [u64; 4], flags: u64| {
            process.write_words(OTHER, &words).unwrap();
            ask(process, nr::__NR_utimensat, &[HERE, path, OTHER, flags])
        };
        let omit = nr::UTIME_OMIT.into();
        assert_eq!(stamp(process, [1, 2, 3, 4], 0), Ok(0));
        assert_eq!(stamp(process, [5, 6, 7, 8], ITSELF), Ok(0));
        assert_eq!(stamp(process, [9, 9, 9, omit], 0), Ok(0));
        assert_eq!(stamp(process, [0, 0, 0, 1 << 31], 0), Err(Errno(EINVAL)));
        assert_eq!(changed(process, "/etc/a"), 3_000_000_004);
        let path = text(process, "/etc/l");
        assert_eq!(ask(process, nr::__NR_utimensat, &[HERE, path, 0, 0]), Ok(0));
        assert!(changed(process, "/etc/a") > began);
        assert_eq!(changed(process, "/etc/l"), 7_000_000_008);
    });
}

#[test]
fn nobody_executes_what_nobody_may() {
    with(|process, _| {
        let access = |process: Program<'_, '_>, path: &str, wanted: u32| {
            one(process, nr::__NR_access, path, wanted.into())
        };
        assert_eq!(access(process, "/etc/text", nr::R_OK | nr::W_OK), Ok(0));
        assert_eq!(access(process, "/etc/text", nr::X_OK), Err(Errno(EACCES)));
        assert_eq!(access(process, "/etc/text", 8), Err(Errno(EINVAL)));
        for path in ["/bin/name", "/etc"] {
            assert_eq!(access(process, path, nr::X_OK), Ok(0), "{path}");
        }
        assert_eq!(one(process, nr::__NR_mkdir, "/etc/f", 0o700), Ok(0));
        assert_eq!(told(process, nr::__NR_stat, "/etc/f").unwrap()[2], 0o40_700);
        let path = text(process, "/etc/text");
        let words = [HERE, path, 0o4751];
        assert_eq!(ask(process, nr::__NR_fchmodat, &words), Ok(0));
        assert_eq!(
            told(process, nr::__NR_stat, "/etc/text").unwrap()[2],
            0o104_751
        );
    });
}

#[test]
fn a_process_finds_its_descriptors() {
    with(|process, _| {
        let names = |process: Program<'_, '_>| entries(process, "/proc/self/fd");
        let found = names(process);
        let listed: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(listed, [".", "..", "0", "1", "2", "3"]);
        assert_eq!(found[2].1, 10);
        let file = one(process, nr::__NR_open, "/etc/text", READ).unwrap();
        assert_eq!(ask(process, nr::__NR_lseek, &[file, 5, 0]), Ok(5));
        let again = one(process, nr::__NR_open, "/dev/fd/3", READ).unwrap();
        assert_eq!(ask(process, nr::__NR_read, &[again, TO, 2]), Ok(2));
        assert_eq!(process.word(TO).unwrap().to_le_bytes()[..2], *b"01");
        let path = text(process, "/proc/self/fd/3");
        assert_eq!(ask(process, nr::__NR_readlink, &[path, TO, 99]), Ok(9));
        assert_eq!(
            told(process, nr::__NR_lstat, "/dev/fd/3").unwrap()[2],
            0o120_700
        );
        assert_eq!(told(process, nr::__NR_stat, "/dev/fd/3").unwrap()[3], 10);
        let program = told(process, nr::__NR_stat, "/bin/name").unwrap();
        assert_eq!(told(process, nr::__NR_stat, "/proc/self/exe"), Ok(program));
        let itself = told(process, nr::__NR_lstat, "/proc/self/exe").unwrap();
        assert_eq!(itself[2], 0o120_777);
        for path in ["/dev/fd/77", "/dev/fd/x"] {
            assert_eq!(one(process, nr::__NR_open, path, READ), Err(Errno(ENOENT)));
        }
        // The end of a pipe is had once more.
        assert_eq!(ask(process, nr::__NR_pipe, &[TO]), Ok(0));
        let ends = process.word(TO).unwrap();
        let path = format!("/dev/fd/{}", ends >> 32);
        assert_eq!(one(process, nr::__NR_open, &path, READ), Err(Errno(ENXIO)));
        let writer = one(process, nr::__NR_open, &path, nr::O_WRONLY.into()).unwrap();
        assert_eq!(ask(process, nr::__NR_write, &[writer, TO, 3]), Ok(3));
        let reader = ends & 0xffff_ffff;
        assert_eq!(ask(process, nr::__NR_read, &[reader, TO, 9]), Ok(3));
    });
}

#[test]
fn what_is_full_has_no_room() {
    with(|process, _| {
        let full = one(process, nr::__NR_open, "/dev/full", nr::O_RDWR.into()).unwrap();
        let none = Err(Errno(ENOSPC));
        assert_eq!(ask(process, nr::__NR_write, &[full, TO, 1]), none);
        assert_eq!(ask(process, nr::__NR_read, &[full, TO, 8]), Ok(8));
        assert_eq!(process.word(TO), Ok(0));
    });
}

#[test]
fn a_folder_is_the_root_wherever_it_is_moved() {
    with(|process, _| {
        for folder in ["/jail", "/jail/inner"] {
            assert_eq!(one(process, nr::__NR_mkdir, folder, 0o700), Ok(0));
        }
        file(process, "/jail/inner/file", "inside");
        let outside = one(process, nr::__NR_open, "/", READ).unwrap();
        for (path, error) in [("/none", ENOENT), ("/etc/text", ENOTDIR)] {
            assert_eq!(one(process, nr::__NR_chroot, path, 0), Err(Errno(error)));
        }
        assert_eq!(one(process, nr::__NR_chroot, "/jail", 0), Ok(0));
        let is_there =
            |process: Program<'_, '_>, path: &str| one(process, nr::__NR_access, path, 0) == Ok(0);
        for path in ["/inner/file", "/../inner/file", "/../../inner/./file"] {
            assert!(is_there(process, path), "{path}");
        }
        assert!(!is_there(process, "/etc/text") && is_there(process, "etc/text"));
        // The rest of its path is what it was, and the same folder is its root.
        let (from, to) = (
            put(process, OTHER, "jail"),
            put(process, OTHER + 40, "moved"),
        );
        let words = [outside, from, outside, to];
        assert_eq!(ask(process, nr::__NR_renameat, &words), Ok(0));
        assert!(is_there(process, "/inner/file"));
        assert_eq!(one(process, nr::__NR_chdir, "/inner", 0), Ok(0));
        assert_eq!(ask(process, nr::__NR_getcwd, &[TO, 7]), Ok(7));
        assert_eq!(
            process.word(TO).unwrap() & 0xff_ffff_ffff_ffff,
            u64::from_le_bytes(*b"/inner\0\0")
        );
        assert_eq!(
            ask(process, nr::__NR_getcwd, &[TO, 6]),
            Err(Errno(linux_raw_sys::errno::ERANGE))
        );
        assert_eq!(ask(process, nr::__NR_fchdir, &[outside]), Ok(0));
        assert_eq!(ask(process, nr::__NR_getcwd, &[TO, 100]), Ok(15));
        assert_eq!(one(process, nr::__NR_chroot, ".", 0), Ok(0));
        assert!(is_there(process, "/etc/text"));
    });
}
