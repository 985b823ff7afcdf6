//! Files by which programs of Linux find others by name, as in a container: `/etc/hosts`,
//! `/etc/nsswitch.conf`, and `/etc/resolv.conf` where the machine leads to others.
//!
//! Whoever is asked for names is in the emulator's user network, which asks those of the host. The
//! user's own files come first: none is added that is there, or for which there is no place.
//!
//! Not covered: modules of glibc for other sources of names than these files and that server.

use std::path::Path;

use super::bundle::File;

/// Names of the machine itself.
const HOSTS: &str = "127.0.0.1\tlocalhost\n10.0.2.15\trcoe\n";
/// Where names are looked for; all of it is in libc itself, also in that of static programs.
const SOURCES: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n\
                       networks: files\nprotocols: files\nservices: files\n";
/// Whom to ask for others.
const RESOLVER: &str = "nameserver 10.0.2.3\n";

/// The files that a program finds besides those that are given; `disk` is the folder that holds
/// nothing but what is on the disk.
pub(super) fn files(given: &[File], disk: Option<&Path>, outgoing: bool) -> Vec<File> {
    let all = [
        ("/etc/hosts", HOSTS),
        ("/etc/nsswitch.conf", SOURCES),
        ("/etc/resolv.conf", RESOLVER),
    ];
    let all = &all[..if outgoing { 3 } else { 2 }];
    let has_place = |path: &Path| {
        let meets = |it: &File| it.path.starts_with(path) || path.starts_with(&it.path);
        !given.iter().any(meets) && disk.is_none_or(|disk| !path.starts_with(disk))
    };
    let missing = all.iter().filter(|(path, _)| has_place(Path::new(path)));
    let files = missing.map(|(path, content)| File {
        path: path.into(),
        content: content.as_bytes().to_vec(),
        mode: 0o644,
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(given: &[&str], disk: Option<&str>, outgoing: bool) -> Vec<String> {
        let given = given.iter().map(|path| File {
            path: path.into(),
            content: Vec::new(),
            mode: 0o644,
        });
        let given: Vec<File> = given.collect();
        let files = files(&given, disk.map(Path::new), outgoing);
        let paths = files.iter().map(|it| it.path.display().to_string());
        paths.collect()
    }

    #[test]
    fn names_are_asked_of_others_only_where_a_machine_leads_to_them() {
        let near = ["/etc/hosts", "/etc/nsswitch.conf"];
        assert_eq!(paths(&["/bin/x"], None, false), near);
        let far = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"];
        assert_eq!(paths(&["/bin/x"], Some("/disk"), true), far);
    }

    #[test]
    fn what_the_user_gives_comes_first() {
        let own = ["/etc/hosts", "/etc/resolv.conf"];
        assert_eq!(paths(&own, None, true), ["/etc/nsswitch.conf"]);
        assert!(paths(&["/etc"], None, true).is_empty());
        assert!(paths(&["/bin/x"], Some("/etc"), true).is_empty());
        let below = ["/etc/hosts/all", "/etc/nsswitch.conf"];
        assert_eq!(paths(&below, None, true), ["/etc/resolv.conf"]);
    }
}
