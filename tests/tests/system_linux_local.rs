//! The system sphere: unmodified programs of Linux that connect to others of the same machine.
//!
//! Each program prints what it sees, and does the same on the host.

use rcoe_tests::launch::Ended;
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::rcoe::Scene;
use rcoe_tests::system::{is_aarch64, system};

const LOCAL: &str = include_str!("system_linux_local/local.c");

#[test]
fn servers_and_clients_of_one_machine_do_what_they_do_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (compiler, replicas, compare) in [
        (GLIBC, "1", "args"),
        (MUSL, "2", "every"),
        (GLIBC, "3", "io"),
    ] {
        scene.compile_by(compiler, "local", LOCAL, &["-O2"]);
        let native = scene.run(&["./local"]);
        let options = ["-n", replicas, "--compare", compare];
        let outcome = system(&scene, &options, &["./local"]);
        assert_eq!(native.ended, Ended::Exit(0), "{}", native.out());
        let what = format!("{compiler:?} {replicas} {compare}");
        assert_alike(&outcome, &native, &what);
    }
}
