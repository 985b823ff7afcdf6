//! Job control: processes that stop and go on, and the terminal that they share.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{LIMIT, Scene, binary};
use rcoe_tests::terminal::{END, INTERRUPT, SUSPEND, Terminal};

/// A program that says when it runs, and when it goes on.
const PROGRAM: &str = "trap 'echo conti\"\"nued' CONT; echo re\"\"ady; while :; do read line; \
                       [ \"$line\" = over ] && exit 7; echo \"got $line\"; done";

fn rcoe() -> String {
    binary().expect("a built rcoe").display().to_string()
}

/// Compiles a program of `jobs/` and demands that replicas do what a plain run does.
#[track_caller]
fn like_native(name: &str, source: &str) {
    Scene::new().program_like_native(name, source, &[]);
}

#[test]
fn parents_hear_of_children_that_stop_and_go_on() {
    like_native("stops", include_str!("jobs/stops.c"));
}

#[test]
fn groups_stop_together_and_orphans_do_not() {
    like_native("groups", include_str!("jobs/groups.c"));
}

#[test]
fn a_first_process_that_stops_can_be_continued_by_its_child() {
    let text = "rm -f on; (until [ -e on ]; do kill -CONT $$; done) & \
                kill -STOP $$; touch on; echo on; wait; echo over";
    let scene = Scene::new();
    let native = scene.like_native("exec \"$@\"", &["bash", "-c", text]);
    assert_eq!(native.out(), "on\nover\n");
}

/// All that a command on a terminal shows.
fn shown(argv: &[&str], typed: &str) -> String {
    let scene = Scene::new();
    let mut terminal = Terminal::start(argv, scene.path(), LIMIT).expect("a terminal");
    terminal.expect("session 1").expect("a start");
    terminal.send(typed).expect("an open terminal");
    let (ended, text) = terminal.finish().expect("an end");
    assert_eq!(ended, Ended::Exit(0), "{text}");
    text
}

#[test]
fn the_foreground_is_the_programs_own() {
    let scene = Scene::new();
    let program = scene.compile("terminal", include_str!("jobs/terminal.c"), &[]);
    let native = shown(&[&program], "a\nb\nc\n");
    assert!(native.contains("end"), "{native}");
    for replicas in ["1", "2", "3"] {
        let rcoe = rcoe();
        let text = shown(&[&rcoe, "run", "-n", replicas, "--", &program], "a\nb\nc\n");
        assert_eq!(text, native, "-n {replicas}");
    }
}

/// Continues the job that was stopped. One that was stopped just before it reads tells of the
/// signal only when it has read, as it does without rcoe: hence two empty lines.
fn take_up(terminal: &mut Terminal, command: &str) -> anyhow::Result<()> {
    terminal.send("fg\n")?;
    terminal.expect(command)?;
    let mut told = String::new();
    for _ in 0..2 {
        terminal.send("\n")?;
        told += &terminal.expect("got ")?;
        if told.contains("continued") {
            return Ok(());
        }
    }
    anyhow::bail!("it is not told that it was continued: {told}")
}

/// What a person does with jobs in a shell.
fn use_jobs(terminal: &mut Terminal, script: &str) -> anyhow::Result<()> {
    terminal.expect("prompt> ")?;
    terminal.send(&format!("sh {script}\n"))?;
    terminal.expect("ready")?;
    terminal.send(SUSPEND)?;
    terminal.expect("Stopped")?;
    terminal.expect("prompt> ")?;
    terminal.send("jobs\n")?;
    terminal.expect("Stopped")?;
    terminal.expect("prompt> ")?;
    take_up(terminal, script)?;
    terminal.send("hello\n")?;
    terminal.expect("got hello")?;
    terminal.send(SUSPEND)?;
    terminal.expect("Stopped")?;
    terminal.expect("prompt> ")?;
    // In the background it goes on until it reads.
    terminal.send("bg\n")?;
    terminal.send("wait %1; echo \"wai\"ted $?\n")?;
    terminal.expect("waited ")?;
    terminal.expect("prompt> ")?;
    take_up(terminal, script)?;
    terminal.send(INTERRUPT)?;
    terminal.expect("prompt> ")?;
    terminal.send("echo \"sta\"tus $?\n")?;
    terminal.expect("status 130")?;
    terminal.expect("prompt> ")?;
    terminal.send("sh -c 'exit 5' | cat; (exit 6) & wait $!; echo \"sta\"tus $?\n")?;
    terminal.expect("status 6")?;
    terminal.expect("prompt> ")?;
    terminal.send(END)?;
    Ok(())
}

#[test]
fn a_shell_in_a_terminal_controls_its_jobs() {
    let scene = Scene::new();
    let script = scene.write("program.sh", PROGRAM).display().to_string();
    let rcoe = rcoe();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    for replicas in ["", "1", "2", "3"] {
        let mut argv = vec![&*rcoe, "run", "-n", replicas, "--"];
        if replicas.is_empty() {
            argv.clear();
        }
        argv.extend(shell);
        let mut terminal = Terminal::start(&argv, scene.path(), LIMIT).expect("a terminal");
        let done = use_jobs(&mut terminal, &script);
        done.unwrap_or_else(|error| panic!("-n {replicas}: {error}"));
        let (ended, text) = terminal.finish().expect("an end");
        assert_eq!(ended, Ended::Exit(0), "-n {replicas}: {text}");
        assert!(!text.contains("rcoe:"), "-n {replicas}: {text}");
    }
}

/// What a person does with rcoe as a job of a shell.
fn use_rcoe_as_job(terminal: &mut Terminal, command: &str) -> anyhow::Result<()> {
    terminal.expect("prompt> ")?;
    terminal.send(&format!("{command}\n"))?;
    terminal.expect("ready")?;
    for _ in 0..2 {
        terminal.send(SUSPEND)?;
        terminal.expect("Stopped")?;
        terminal.expect("prompt> ")?;
        take_up(terminal, command)?;
    }
    terminal.send("over\n")?;
    terminal.expect("prompt> ")?;
    terminal.send("echo \"sta\"tus $?\n")?;
    terminal.expect("status 7")?;
    terminal.expect("prompt> ")?;
    // In the background it is stopped as soon as it reads.
    terminal.send(&format!("{command} & wait $!; echo \"sta\"tus $?\n"))?;
    terminal.expect("status 149")?;
    terminal.expect("prompt> ")?;
    take_up(terminal, command)?;
    terminal.send(INTERRUPT)?;
    terminal.expect("prompt> ")?;
    terminal.send("echo \"sta\"tus $?\n")?;
    terminal.expect("status 130")?;
    terminal.expect("prompt> ")?;
    terminal.send("exit 0\n")?;
    Ok(())
}

#[test]
fn rcoe_is_a_job_like_its_program() {
    let scene = Scene::new();
    let script = scene.write("program.sh", PROGRAM).display().to_string();
    let shell = ["bash", "--norc", "--noprofile", "-i"];
    let plain = format!("sh {script}");
    let replicated = |n| format!("{} run -n {n} -- {plain}", rcoe());
    for command in [plain.clone(), replicated(1), replicated(2), replicated(3)] {
        let mut terminal = Terminal::start(&shell, scene.path(), LIMIT).expect("a terminal");
        let done = use_rcoe_as_job(&mut terminal, &command);
        done.unwrap_or_else(|error| panic!("{command}: {error}"));
        let (ended, text) = terminal.finish().expect("an end");
        assert_eq!(ended, Ended::Exit(0), "{command}: {text}");
        assert!(!text.contains("rcoe:"), "{command}: {text}");
    }
}

#[test]
fn a_terminals_new_size_reaches_the_foreground() {
    let scene = Scene::new();
    let rcoe = rcoe();
    let text = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.01; done";
    for replicas in ["1", "2", "3"] {
        let argv = [&*rcoe, "run", "-n", replicas, "--", "bash", "-c", text];
        let mut terminal = Terminal::start(&argv, scene.path(), LIMIT).expect("a terminal");
        terminal.expect("ready").expect("a start");
        terminal.resize(33, 77).expect("a new size");
        terminal.expect("33 77").expect("the new size");
        let (ended, text) = terminal.finish().expect("an end");
        assert_eq!(ended, Ended::Exit(0), "{text}");
    }
}
