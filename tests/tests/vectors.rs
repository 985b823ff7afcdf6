//! Registers that the kernel leaves alone hold after a call what they held before, whatever the
//! agent did for it: vector registers, too, which it does not save on the straight way.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

const KEPT: &str = include_str!("vectors/kept.c");

#[test]
fn calls_loops_and_faults_leave_registers_alone() {
    let scene = Scene::new();
    let program = scene.compile("kept", KEPT, &["-pthread"]);
    let native = scene.run(&[&program]);
    assert_eq!(native.ended, Ended::Exit(0), "{}", native.err());
    for options in [
        &["-n", "1"][..],
        &["-n", "2"],
        &["-n", "3", "--scrub", "64"],
        &["-n", "2", "--compare", "every"],
        &["-n", "2", "--compare", "io", "--clock", "calls"],
    ] {
        let arguments = [&["run"], options, &["--", &program]].concat();
        let outcome = scene.rcoe(&arguments);
        let what = format!("{options:?}: {}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(0), "{what}");
        assert_eq!(outcome.out(), "kept\n", "{what}");
    }
}
