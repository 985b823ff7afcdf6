//! From a divergence to the line of source that caused it: `rcoe explain`, and core files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use rcoe_tests::launch::Ended;
use rcoe_tests::memory::{poke, symbol};
use rcoe_tests::rcoe::{Group, Scene, until};
use serde_json::Value;

/// Waits to be told to go on, and then writes what lies in its memory by two functions. The line
/// of the write is marked.
const TELLER: &str = "#include <stdio.h>
#include <string.h>
#include <unistd.h>
volatile unsigned long go, wrong, spin;
static void busy(void) {
  while (spin) {} // SPINS
}
__attribute__((noinline)) static void tell(const char *text) {
  char line[64];
  unsigned length = snprintf(line, sizeof line, \"%s %lu\\n\", text, wrong);
  write(1, line, length); // WRITES
  line[0] = 0;
}
__attribute__((noinline)) static void work(void) {
  tell(\"result\"); // CALLS
  busy();
}
int main(int argc, char **argv) {
  for (int i = 0; i < 200 && argc > 1; i++) write(1, \"\", 0);
  write(1, \"ready\\n\", 6);
  while (!go) {}
  work();
  write(1, \"end\\n\", 4);
  return 5;
}
";

/// Where in the source a mark stands.
fn line_of(mark: &str) -> u64 {
    let position = TELLER.lines().position(|line| line.ends_with(mark));
    position.expect("a marked line") as u64 + 1
}

struct Told {
    scene: Scene,
    program: String,
}

impl Told {
    fn new() -> Self {
        let scene = Scene::new();
        let flags = ["-g", "-O1", "-static", "-no-pie", "-Wno-unused-result"];
        let program = scene.compile("teller", TELLER, &flags);
        Self { scene, program }
    }

    fn start(&self, options: &[&str]) -> Group {
        self.start_with(options, &[&self.program])
    }

    fn start_with(&self, options: &[&str], command: &[&str]) -> Group {
        let options = [options, &["--scrub", "off", "--no-ledger"]].concat();
        let group = self.scene.start_group(&options, command);
        until("the first line", || {
            let told = group.running.stdout_so_far().unwrap();
            told.starts_with("ready\n").then_some(())
        });
        group
    }

    fn set(&self, pid: u32, word: &str) {
        let address = symbol(&self.program, word);
        poke(pid, address, &1_u64.to_le_bytes()).expect("a living replica");
    }

    /// Sets a word in one replica only, and lets all go on.
    fn harm(&self, group: &Group, replica: usize, word: &str) {
        self.set(group.replicas[replica], word);
        group.replicas.iter().for_each(|&pid| self.set(pid, "go"));
    }

    fn explain(&self, options: &[&str]) -> String {
        let outcome = self.scene.rcoe(&[&["explain", "events"], options].concat());
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        outcome.out()
    }

    fn report(&self) -> Value {
        serde_json::from_str(&self.explain(&["--json"])).expect("JSON")
    }

    fn cores(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.scene.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let is_core = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("core.")
        };
        let mut all: Vec<PathBuf> = paths.filter(is_core).collect();
        all.sort();
        all
    }
}

/// The functions of a replica's frames.
fn functions(replica: &Value) -> Vec<&str> {
    let frames = replica["frames"].as_array().expect("frames");
    let names = frames.iter().map(|frame| frame["function"].as_str());
    names.map(|name| name.unwrap_or("?")).collect()
}

#[test]
fn a_mismatch_of_two_leads_to_its_line() {
    leads_to_its_line(&[]);
}

/// The call is entered often enough to be rewritten before.
#[test]
fn a_mismatch_at_a_rewritten_call_leads_to_its_line() {
    leads_to_its_line(&["often"]);
}

fn leads_to_its_line(arguments: &[&str]) {
    let told = Told::new();
    let command = [&[told.program.as_str()], arguments].concat();
    let group = told.start_with(&["-n", "2"], &command);
    told.harm(&group, 1, "wrong");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    let report = told.report();
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{report}");
    let fault = &faults[0];
    assert_eq!(fault["kind"], "mismatch", "{report}");
    assert_eq!(fault["met_later"], false, "{report}");
    let replicas = fault["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 2, "{report}");
    for replica in replicas {
        assert_eq!(replica["place"]["line"], line_of("WRITES"), "{report}");
        let names = functions(replica);
        let own = names.iter().position(|&name| name == "tell").unwrap();
        assert_eq!(names[own..own + 3], ["tell", "work", "main"], "{report}");
        let caller = &replica["frames"][own + 1];
        assert_eq!(caller["line"], line_of("CALLS"), "{report}");
        let call = replica["call"].as_str().unwrap();
        assert!(call.starts_with("write(0x1, "), "{report}");
    }
    let recorded = |index: usize| replicas[index]["recorded"].as_str().unwrap();
    assert_ne!(recorded(0), recorded(1), "{report}");
    let text = told.explain(&[]);
    let place = format!("teller.c:{}", line_of("WRITES"));
    for words in [place.as_str(), "all replicas were stopped", "Run it again"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_masked_mismatch_names_the_replica_and_its_line() {
    for faulty in [0, 2] {
        let told = Told::new();
        let group = told.start(&["-n", "3", "--no-reintegrate"]);
        told.harm(&group, faulty, "wrong");
        let (outcome, _) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
        let report = told.report();
        let fault = &report["faults"][0];
        assert_eq!(fault["replica"], faulty, "{report}");
        let replicas = fault["replicas"].as_array().unwrap();
        assert_eq!(replicas.len(), 3, "{report}");
        for (index, replica) in replicas.iter().enumerate() {
            assert_eq!(replica["faulty"], index == faulty, "{report}");
            assert_eq!(replica["place"]["line"], line_of("WRITES"), "{report}");
        }
        let text = told.explain(&[]);
        assert!(text.contains("was removed; 2 went on"), "{text}");
    }
}

#[test]
fn a_replica_that_does_not_come_is_found_where_it_computes() {
    let told = Told::new();
    let group = told.start(&["-n", "3", "--timeout", "300ms", "--no-reintegrate"]);
    told.harm(&group, 1, "spin");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(5), "{}", outcome.err());
    let report = told.report();
    let fault = &report["faults"][0];
    assert_eq!(
        (&fault["kind"], &fault["replica"]),
        (&"timeout".into(), &1.into())
    );
    let late = &fault["replicas"].as_array().unwrap();
    let late = late.iter().find(|it| it["faulty"] == true).expect("it");
    assert_eq!(late["place"]["line"], line_of("SPINS"), "{report}");
    assert_eq!(late["call"], Value::Null, "{report}");
}

/// What gdb says of a core file.
fn backtrace(told: &Told, core: &PathBuf) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-batch",
        "-ex",
        "bt",
        "-ex",
        "print wrong",
        &told.program,
    ]);
    let output = gdb.arg(core).output().expect("gdb");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn core_files_of_all_replicas_are_left_at_a_fault() {
    for (replicas, status) in [("2", 86), ("3", 5)] {
        let told = Told::new();
        let folder = told.scene.path().display().to_string();
        let options = ["-n", replicas, "--core-on-fault", &folder];
        let group = told.start(&[&options[..], &["--no-reintegrate"]].concat());
        told.harm(&group, 1, "wrong");
        let (outcome, events) = group.finish();
        assert_eq!(outcome.ended, Ended::Exit(status), "{}", outcome.err());
        let cores = told.cores();
        let written = events.iter().filter(|event| event["type"] == "core");
        assert_eq!(written.count(), cores.len(), "{events:?}");
        assert_eq!(cores.len().to_string(), replicas, "{}", outcome.err());
        for (index, core) in cores.iter().enumerate() {
            let name = core.file_name().unwrap().to_string_lossy();
            assert!(name.ends_with(&format!(".replica{index}")), "{name}");
            let mode = core.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
            if Command::new("gdb").arg("--version").output().is_err() {
                eprintln!("no gdb: what it reads of a core file is not tested");
                continue;
            }
            let said = backtrace(&told, core);
            let line = format!("teller.c:{}", line_of("WRITES"));
            assert!(said.contains(&line) && said.contains("in work"), "{said}");
            let value = format!("$1 = {}", u8::from(index == 1));
            assert!(said.contains(&value), "{index}: {said}");
        }
    }
}

#[test]
fn a_folder_for_core_files_is_checked_before_the_start() {
    let scene = Scene::new();
    scene.write("file", "");
    for folder in ["none", "file"] {
        let outcome = scene.rcoe(&["run", "--core-on-fault", folder, "--", "echo", "ran"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert_eq!(outcome.out(), "");
        let what = format!("--core-on-fault {folder}: ");
        assert!(outcome.err().contains(&what), "{}", outcome.err());
    }
}

#[test]
fn what_is_no_events_file_is_refused() {
    let start = |schema: u32| {
        format!(
            "{{\"t\":0.1,\"type\":\"start\",\"schema\":{schema},\"version\":\"9\",\
             \"program\":\"/bin/true\",\"replicas\":[]}}\n"
        )
    };
    let good = start(1);
    let cases = [
        (String::new(), "no events file"),
        ("hello\n".to_owned(), "line 1: is no events file"),
        ("{\"a\":1}\n".to_owned(), "line 1: is no events file"),
        (
            format!("{good}{{\"t\":0.2,\"ty"),
            "line 2 ends within a line",
        ),
        (format!("{good}[]\n"), "line 2: is no events file"),
        (start(99), "newer form (99;"),
        (
            "{\"t\":1,\"type\":\"stop\"}\n".to_owned(),
            "stop before the start",
        ),
        (
            format!("{good}{{\"t\":1,\"type\":\"divergence\"}}\n"),
            "line 2: missing field",
        ),
    ];
    let scene = Scene::new();
    for (content, why) in cases {
        scene.write("e", &content);
        let outcome = scene.rcoe(&["explain", "e"]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{content}");
        assert_eq!(outcome.out(), "", "{content}");
        assert!(outcome.err().contains(why), "{content}: {}", outcome.err());
    }
    let missing = scene.rcoe(&["explain", "none"]);
    assert_eq!(missing.ended, Ended::Exit(125));
    assert!(
        missing.err().contains("none: No such file"),
        "{}",
        missing.err()
    );
    scene.write("e", &good);
    let empty = scene.rcoe(&["explain", "e"]);
    assert_eq!(empty.ended, Ended::Exit(0), "{}", empty.err());
    assert!(
        empty.out().contains("No replica differed or failed"),
        "{}",
        empty.out()
    );
    assert!(empty.out().contains("has not ended"), "{}", empty.out());
}

#[test]
fn a_program_built_anew_is_not_asked_for_lines() {
    let told = Told::new();
    let group = told.start(&["-n", "2"]);
    told.harm(&group, 1, "wrong");
    let (outcome, _) = group.finish();
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
    let other = TELLER.replace("result", "another");
    let flags = ["-g", "-O1", "-static", "-no-pie", "-Wno-unused-result"];
    let _ = told.scene.compile("teller", &other, &flags);
    let report = told.report();
    let replicas = report["faults"][0]["replicas"].as_array().unwrap();
    assert!(
        replicas.iter().all(|it| it["place"]["line"].is_null()),
        "{report}"
    );
    let text = told.explain(&[]);
    assert!(text.contains("has changed since the run"), "{text}");
}
