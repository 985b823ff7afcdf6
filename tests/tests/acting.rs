//! Files of `/proc` and of control groups that act on the process that writes to them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rcoe_linux_syscalls::{FILES, Place, Treatment};
use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{Scene, until};

const EACCES: u32 = 13;

#[test]
fn what_a_program_writes_about_itself_holds_in_all_replicas() {
    let scene = Scene::new();
    let program = scene.compile("own", include_str!("acting/own.c"), &["-w"]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
    assert!(native.out().contains("name abc"), "{}", native.out());
    assert!(
        native.out().contains("by a link 4 is 7"),
        "{}",
        native.out()
    );
}

#[test]
fn a_program_that_writes_about_itself_finds_no_threads_but_its_own() {
    let source = "#include <fcntl.h>\n#include <stdio.h>\n#include <sys/stat.h>\n\
#include <unistd.h>\n
int main(void) {
  int most = 0, fd = open(\"/proc/self/oom_score_adj\", O_WRONLY);
  for (int i = 0; i < 500; i++) {
    struct stat found;
    if (write(fd, \"300\", 3) != 3 || stat(\"/proc/self/task\", &found)) return 1;
    if ((int)found.st_nlink > most) most = found.st_nlink;
  }
  printf(\"%d\\n\", most);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("counting", source, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(
        (native.out().as_str(), native.ended),
        ("3\n", Ended::Exit(0))
    );
}

#[test]
fn every_file_of_the_table_that_is_refused_is_refused_by_name() {
    let scene = Scene::new();
    let program = scene.compile("refused", include_str!("acting/refused.c"), &["-w"]);
    let refused = FILES
        .iter()
        .filter(|file| file.treatment == Treatment::Refused)
        .map(|file| match file.name {
            "attr" => "/proc/self/attr/current".to_owned(),
            name => format!("/proc/self/{name}"),
        })
        .filter(|path| Path::new(path).exists())
        .collect::<Vec<_>>();
    assert!(refused.len() > 4, "{refused:?}");
    let mut expected = String::new();
    for path in &refused {
        let native = std::fs::File::open(path).is_ok();
        let _ = writeln!(expected, "{path} {EACCES}\nread {}", u8::from(native));
    }
    let _ = writeln!(
        expected,
        "own 1\nmem of the parent {EACCES}\nby descriptor {EACCES}"
    );
    for replicas in ["1", "2", "3"] {
        let mut arguments = vec!["run", "-n", replicas, "--", program.as_str()];
        arguments.extend(refused.iter().map(String::as_str));
        let outcome = scene.rcoe(&arguments);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), expected, "{replicas}");
        for path in refused.iter().map(|path| path.replace("self", "PID")) {
            let named = format!("writing to {}", path.trim_end_matches("/current"));
            assert_eq!(
                outcome.err().matches(&named).count(),
                1,
                "{}",
                outcome.err()
            );
        }
        let other = "it acts on another process of the program";
        assert_eq!(outcome.err().matches(other).count(), 2, "{}", outcome.err());
    }
}

#[test]
fn files_that_were_open_at_the_start_act_on_all_replicas() {
    let scene = Scene::new();
    let program = scene.compile("inherited", include_str!("acting/inherited.c"), &["-w"]);
    let script = "exec \"$@\" 5<>/proc/self/oom_score_adj 6<>/proc/self/comm 7<>/proc/self/mem";
    let native = scene.like_native(script, &[&program]);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
    assert_eq!(native.out(), "3 4 300\n3 abc\n0 1\n");
}

#[test]
fn a_file_of_another_process_is_refused_that_came_in_a_message() {
    let scene = Scene::new();
    let program = scene.compile("message", include_str!("acting/message.c"), &["-w"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        let expected = format!("received 1\nnull 3\nchild {EACCES}\nis 0\n");
        assert_eq!(outcome.out(), expected, "-n {replicas}");
        let named = "writing to /proc/PID/oom_score_adj";
        assert_eq!(outcome.err().matches(named).count(), 1, "{}", outcome.err());
    }
}

#[test]
fn a_file_that_is_refused_ends_a_strict_run() {
    let scene = Scene::new();
    let program = scene.compile("refused", include_str!("acting/refused.c"), &["-w"]);
    let outcome = scene.rcoe(&[
        "run",
        "-n",
        "2",
        "--strict",
        "--",
        &program,
        "/proc/self/autogroup",
    ]);
    assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
    assert_eq!(outcome.out(), "");
}

const ATTRIBUTES: &str = "#include <fcntl.h>\n#include <string.h>\n#include <unistd.h>\n
static void set(const char *path, const char *value) {
  int fd = open(path, O_WRONLY);
  if (write(fd, value, strlen(value)) < 0) _exit(1);
  close(fd);
}
int main(int count, char **group) {
  set(\"/proc/self/oom_score_adj\", \"321\");
  set(\"/proc/self/coredump_filter\", \"0x5\");
  set(\"/proc/self/comm\", \"renamed\");
  set(\"/proc/self/timerslack_ns\", \"123456\");
  if (count > 1) set(group[1], \"0\");
  write(1, \"ready\\n\", 6);
  return open(\"go\", O_RDONLY) < 0;
}";

/// Every replica has what the program has set, as the host sees it.
#[track_caller]
fn holds_in_each(replicas: &[u32], group: Option<&Path>) {
    for pid in replicas {
        let told = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        assert_eq!(told("oom_score_adj"), "321\n");
        assert_eq!(told("coredump_filter"), "00000005\n");
        assert_eq!(told("comm"), "renamed\n");
        assert_eq!(told("timerslack_ns"), "123456\n");
        if let Some(group) = group {
            let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
            assert!(
                members.lines().any(|member| member == pid.to_string()),
                "{members}"
            );
        }
    }
}

/// A control group of this test's own, where it may make one.
struct Control(PathBuf);

impl Control {
    fn new() -> Option<Self> {
        let name = format!("rcoe-test-{}", std::process::id());
        let roots = [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/pids",
        ];
        let folders = roots.map(|root| Path::new(root).join(&name));
        let made = folders
            .into_iter()
            .find(|folder| std::fs::create_dir(folder).is_ok())?;
        Some(Self(made))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn attributes_of_the_process_are_those_of_every_replica() {
    let scene = Scene::new();
    let program = scene.compile("attributes", ATTRIBUTES, &["-w"]);
    let control = Control::new().filter(|control| control.0.join("cgroup.procs").exists());
    let joins = control
        .as_ref()
        .map(|control| control.0.join("cgroup.procs").display().to_string());
    let mut command = vec![program.as_str()];
    command.extend(joins.as_deref());
    let go = scene.make_pipe("go");
    let group = scene.start_group(&["-n", "3"], &command);
    until("the attributes", || {
        let out = group.running.stdout_so_far().unwrap_or_default();
        out.contains("ready").then_some(())
    });
    holds_in_each(
        &group.replicas,
        control.as_ref().map(|control| control.0.as_path()),
    );
    drop(std::fs::OpenOptions::new().write(true).open(go).unwrap());
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    assert_eq!(outcome.err(), "");
}

#[test]
fn every_file_of_a_process_that_can_be_written_has_a_row() {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir("/proc/self").unwrap().flatten() {
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if about.is_file() && about.permissions().mode() & 0o222 != 0 {
            let name = entry.file_name();
            let row = rcoe_linux_syscalls::file(Place::Process, name.as_encoded_bytes());
            assert!(row.is_some(), "{name:?}");
        }
    }
}

#[test]
fn the_agents_addresses_are_as_none_of_the_programs() {
    let scene = Scene::new();
    let program = scene.compile("agent", include_str!("acting/agent.c"), &["-w"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        let expected = "size 0\nedge 1 read 4096\ngrows 12\nplaces 1 wrong 0\n";
        assert_eq!(outcome.out(), expected, "-n {replicas} {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    }
}
