//! Finding loaders and libraries, among files that are made for it.

use super::*;

/// The tag of a name that is needed, of one's own, and of paths: new, and old ones.
const NEEDED: u64 = 1;
const NAME: u64 = 14;
const RUN_PATH: u64 = 29;
const INHERITED: u64 = 15;

/// A library that says this of itself and of others.
fn library(said: &[(u64, &str)]) -> Vec<u8> {
    let header = |kind: u64, offset: usize, bytes: usize| {
        let (offset, bytes) = (offset as u64, bytes as u64);
        [kind | 5 << 32, offset, offset, offset, bytes, bytes, 8]
    };
    let (mut strings, mut entries) = (vec![0], Vec::new());
    for (tag, text) in said {
        entries.extend([*tag, strings.len() as u64]);
        strings.extend(text.bytes().chain([0]));
    }
    let start = 64 + 2 * 56;
    let behind = start + entries.len() * 8 + 32;
    entries.extend([5, behind as u64, 0, 0]);
    let whole = behind + strings.len();
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let words = [3 | 62 << 16 | 1 << 32, 0, 64, 0, (64 << 32) | (56 << 48), 2];
    let headers = [header(1, 0, whole), header(2, start, entries.len() * 8)];
    let words = words.iter().chain(headers.as_flattened()).chain(&entries);
    file.extend(words.flat_map(|it| it.to_le_bytes()));
    file.extend(strings);
    file
}

/// Folders of the host, and what they hold.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.put("bin/program", b"");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// What a program of the host's folder `bin` gets, as `/bin/program` beside these files.
    fn added(
        &self,
        said: &[(u64, &str)],
        given: &[(&str, Vec<u8>)],
        environment: &[OsString],
    ) -> Result<Vec<String>, String> {
        let loader = b"\0/lib64/\0/lib/\0".to_vec();
        let loader = [library(&[]), loader].concat();
        let own = [("/bin/program", library(said)), ("/lib/ld.so", loader)];
        let all = own.iter().chain(given);
        let mut files: Vec<File> = all
            .map(|(path, content)| File {
                path: path.into(),
                content: content.clone(),
                mode: 0,
            })
            .collect();
        let before = files.len();
        let mut hosts = vec![self.path("bin/program")];
        hosts.resize(before, self.path("elsewhere/file"));
        let mut shelf = Shelf::new(Arch::X86_64, &mut files, hosts, environment);
        let added = shelf.add(0, Path::new("/lib/ld.so"))?;
        assert_eq!(added.last(), Some(&1));
        let added = files.iter().skip(before);
        Ok(added.map(|it| it.path.display().to_string()).collect())
    }
}

#[test]
fn what_libraries_need_in_turn_is_found_once() {
    let host = Host::new();
    let path = [(RUN_PATH, "$ORIGIN/../lib")];
    let with = |more: &[(u64, &str)]| library(&[&path, more].concat());
    host.put("lib/a.so", &with(&[(NEEDED, "b.so"), (NEEDED, "ld.so")]));
    host.put("lib/b.so", &with(&[(NEEDED, "a.so"), (NEEDED, "real.so")]));
    host.put("lib/c.so", &with(&[(NAME, "real.so")]));
    let needs = [(NEEDED, "a.so"), (NEEDED, "c.so"), path[0]];
    let added = host.added(&needs, &[], &[]).unwrap();
    assert_eq!(added, ["/lib/a.so", "/lib/c.so", "/lib/b.so"]);
}

#[test]
fn paths_count_for_whom_they_are_meant() {
    let host = Host::new();
    host.put("one/a.so", &library(&[(NEEDED, "b.so")]));
    host.put("one/b.so", &library(&[]));
    let says = |path| [(NEEDED, "a.so"), (path, "${ORIGIN}/../one")];
    let added = host.added(&says(INHERITED), &[], &[]).unwrap();
    assert_eq!(added, ["/one/a.so", "/one/b.so"]);
    let why = host.added(&says(RUN_PATH), &[], &[]).unwrap_err();
    let said = "its library /one/a.so needs b.so, which is not where its loader looks";
    assert!(why.contains(said), "{why}");
    assert!(why.contains("--file HOST:/lib64/b.so"), "{why}");
    // What is to be loaded before all is not missed.
    let variable = ["LD_PRELOAD=absent.so a.so".into()];
    let path = [(INHERITED, "$ORIGIN/../one")];
    let added = host.added(&path, &[], &variable).unwrap();
    assert_eq!(added, ["/one/a.so", "/one/b.so"]);
    // The environment's come before new paths, and behind old ones.
    host.put("two/a.so", &library(&[]));
    let variable = format!("LD_LIBRARY_PATH={}", host.path("two").display());
    let environment = [OsString::from(variable)];
    let at = host.path("two/a.so").display().to_string();
    let added = host.added(&says(RUN_PATH), &[], &environment).unwrap();
    assert_eq!(added, [at]);
    let added = host.added(&says(INHERITED), &[], &environment).unwrap();
    assert_eq!(added, ["/one/a.so", "/one/b.so"]);
}

#[test]
fn what_is_given_comes_before_what_is_here_and_what_is_no_library_is_none() {
    let host = Host::new();
    host.put("bin/a.so", &library(&[(NEEDED, "lost.so")]));
    host.put("lib/a.so", b"\x7fELF of another machine");
    let says = [(NEEDED, "a.so"), (RUN_PATH, "/none:$ORIGIN/../lib:$ORIGIN")];
    let given = |path| [(path, library(&[]))];
    for place in ["/lib/a.so", "/none/a.so", "/bin/a.so"] {
        let added = host.added(&says, &given(place), &[]).unwrap();
        assert_eq!(added, [""; 0], "{place}");
    }
    // That of the folder that is looked at first is the one, given or not.
    let why = host.added(&says, &given("/lib64/a.so"), &[]).unwrap_err();
    assert!(why.contains("needs lost.so"), "{why}");
    let says = [(NEEDED, "a.so")];
    for place in ["/lib/a.so", "/lib64/a.so"] {
        assert!(host.added(&says, &given(place), &[]).unwrap().is_empty());
    }
    let why = host.added(&says, &[("/lib/a.so", b"text".to_vec())], &[]);
    assert!(why.unwrap_err().contains("it needs a.so"));
}

#[test]
fn a_loader_that_is_missing_is_named() {
    let mut files = vec![File {
        path: "/program".into(),
        content: library(&[]),
        mode: 0,
    }];
    let mut shelf = Shelf::new(Arch::X86_64, &mut files, vec!["program".into()], &[]);
    let why = shelf.add(0, Path::new("/no/ld.so")).unwrap_err();
    assert!(
        why.contains("it needs /no/ld.so, which is not there"),
        "{why}"
    );
    shelf.add_module(0, Path::new("/no/ld.so"));
}
