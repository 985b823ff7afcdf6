//! Terminals that the program makes itself and gives to its sessions.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::{LIMIT, Scene, binary};
use rcoe_tests::terminal::{END, INTERRUPT, SUSPEND, Terminal};

#[test]
fn sessions_get_and_lose_terminals_as_from_the_host() {
    Scene::new().program_like_native("sessions", include_str!("ctty/sessions.c"), &["-lutil"]);
}

/// What a person does in a shell on a terminal of somebody else's making.
fn use_shell(terminal: &mut Terminal) -> anyhow::Result<()> {
    terminal.expect("prompt> ")?;
    terminal.send("tty > own; sh -c 'echo rea\"\"dy; exec cat'\n")?;
    terminal.expect("ready")?;
    terminal.send("one\n")?;
    terminal.expect("one\r\none\r\n")?;
    terminal.send(SUSPEND)?;
    terminal.expect("Stopped")?;
    terminal.expect("prompt> ")?;
    terminal.send("fg\n")?;
    terminal.expect("cat'\r\n")?;
    terminal.send("two\n")?;
    terminal.expect("two\r\ntwo\r\n")?;
    terminal.send(INTERRUPT)?;
    terminal.expect("prompt> ")?;
    terminal
        .send("echo \"sta\"tus $?; sh -c 'read line </dev/tty' & wait $!; echo \"sta\"tus $?\n")?;
    terminal.expect("status 130")?;
    terminal.expect("status 149")?;
    terminal.expect("prompt> ")?;
    terminal.send("kill -9 %1; stty rows 33 cols 77; stty size </dev/tty\n")?;
    terminal.expect("33 77")?;
    terminal.expect("prompt> ")?;
    terminal.send(END)?;
    Ok(())
}

#[test]
fn a_shell_on_a_terminal_of_the_programs_own_controls_its_jobs() {
    let rcoe = binary().expect("a built rcoe").display().to_string();
    let shell = "bash --norc --noprofile -i";
    let python = "import os, pty, sys; \
                  sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut spawn = vec!["/usr/bin/python3.11", "-c", python];
    spawn.extend(shell.split(' '));
    for command in [vec!["script", "-qec", shell, "/dev/null"], spawn] {
        for replicas in ["", "1", "2", "3"] {
            let scene = Scene::new();
            let mut argv = vec![&*rcoe, "run", "-n", replicas, "--"];
            if replicas.is_empty() {
                argv.clear();
            }
            argv.extend(&command);
            let mut terminal = Terminal::start(&argv, scene.path(), LIMIT).expect("a terminal");
            let done = use_shell(&mut terminal);
            done.unwrap_or_else(|error| panic!("{command:?} -n {replicas}: {error}"));
            let (ended, text) = terminal.finish().expect("an end");
            assert_eq!(ended, Ended::Exit(0), "{command:?} -n {replicas}: {text}");
            assert!(!text.contains("rcoe:"), "-n {replicas}: {text}");
        }
    }
}
