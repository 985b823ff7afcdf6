//! Calls whose wait is interrupted come to what they would without.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

/// The host cannot ask a named pipe not to wait, so a second request is made of each call, and
/// children end meanwhile.
const SCRIPT: &str = r#"mkfifo pipe
for round in {1..60}; do
    (seq 5 >pipe) &
    sum=0
    while read -r n; do ((sum += n)); done <pipe
    echo -n "$sum "
done
wait"#;

#[test]
fn calls_on_a_named_pipe_come_to_what_they_did() {
    let scene = Scene::new();
    let outcome = scene.rcoe(&["run", "-n", "3", "--", "bash", "-c", SCRIPT]);
    assert_eq!(outcome.err(), "");
    assert_eq!(outcome.out(), "15 ".repeat(60));
    assert_eq!(outcome.ended, Ended::Exit(0));
}

/// A look that a signal interrupted found nothing; whoever took it for an answer would hold up the
/// thread that is to give one.
#[test]
fn threads_wait_for_each_other_while_children_end() {
    const PAIRS: &str = include_str!("interrupted/pairs.c");
    let scene = Scene::new();
    let program = scene.compile("pairs", PAIRS, &["-pthread"]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        assert_eq!(outcome.out(), "done\n");
    }
}
