//! The system sphere: programs in C.

use std::path::Path;
use std::process::Command;

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;
use rcoe_tests::system::{is_aarch64, system};

/// The folder of the sources.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Builds a program by the very command that the header tells users.
fn build(scene: &Scene, name: &str, source: &str) {
    let header = std::fs::read_to_string(root().join("user/include/rcoe-system.h")).unwrap();
    let start = header.find("gcc -std").expect("the header has a command");
    let end = start + header[start..].find("\n *\n").expect("the command ends");
    let command = header[start..end].replace("\\\n *", "");
    let text = scene.write(&format!("{name}.c"), source);
    let text = text.to_str().unwrap();
    let mut words = command.split_whitespace().map(|word| match word {
        "program.c" => text.to_owned(),
        "program" => scene.path().join(name).to_str().unwrap().to_owned(),
        word => word.to_owned(),
    });
    let usual = words.next().unwrap();
    let mut compiler = Command::new(if is_aarch64() {
        "aarch64-linux-gnu-gcc".to_owned()
    } else {
        usual
    });
    let words = words.filter(|word| !is_aarch64() || word != "-fcf-protection=none");
    compiler.args(words).current_dir(root());
    assert!(compiler.status().unwrap().success(), "{name} is built");
}

#[test]
fn a_program_in_c_of_the_image_computes_the_same_replicated_or_not() {
    let scene = Scene::new();
    for replicas in ["1", "2", "3"] {
        let outcome = system(&scene, &["-n", replicas], &["sieve", "30000"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{replicas}: {}",
            outcome.err()
        );
        assert_eq!(outcome.out(), "3245 primes up to 30000\n", "{replicas}");
    }
    let refused = system(&scene, &["-n", "2"], &["sieve", "5000000"]);
    assert_eq!(refused.ended, Ended::Exit(1), "{}", refused.err());
    assert_eq!(refused.out(), "sieve: no memory\n");
}

/// Talks to `pong`, which is not in C.
const CLIENT: &str = r#"
#include "rcoe-system.h"

static uint64_t client(uint64_t argument)
{
    uint64_t words[2] = {1, 0};
    if (!rcoe_spawn("pong", 0) || rcoe_spawn("nobody", 0))
        return 1;
    for (; words[1] < argument; words[1]++) {
        words[0] = rcoe_call(RCOE_SLOT_PEER, 40, words, 2).words[0];
        rcoe_yield();
    }
    rcoe_print_number(words[0]);
    rcoe_print("\n");
    return words[0] == 0;
}

RCOE_PROGRAM(client);
"#;

/// Has the driver `edu` copy a frame that it is lent.
const LENDER: &str = r#"
#include "rcoe-system.h"

#define FROM RCOE_SLOT_FREE
#define TO (FROM + 1)
#define LOAN (FROM + 2)

static uint64_t lender(uint64_t argument)
{
    const char text[] = "a text that a device moved, lent by a program in C\n";
    char back[sizeof text];
    uint64_t length = sizeof text, loans[2] = {LOAN, TO};
    if (!rcoe_spawn("edu", 0) || !rcoe_make(RCOE_FRAME, FROM) || !rcoe_make(RCOE_FRAME, TO))
        return 1;
    volatile char *from = rcoe_map(FROM, 0, RCOE_READ | RCOE_WRITE);
    volatile char *to = rcoe_map(TO, 1, RCOE_READ);
    if (from == NULL || to == NULL || rcoe_copy(LOAN, FROM, RCOE_READ) != 0)
        return 2;
    for (size_t i = 0; i < length; i++)
        from[i] = text[i];
    if (rcoe_call_with(RCOE_SLOT_PEER, RCOE_EDU_COPY, &length, 1, loans, 2).label != 0)
        return 3;
    for (size_t i = 0; i < length; i++)
        back[i] = to[i];
    rcoe_print(back);
    return rcoe_delete(LOAN) + memcmp(back, text, length) + argument;
}

RCOE_PROGRAM(lender);
"#;

#[test]
fn users_build_programs_in_c_that_talk_to_others() {
    let scene = Scene::new();
    build(&scene, "client", CLIENT);
    build(&scene, "lender", LENDER);
    let mut value = 1_u64;
    for round in 0..20 {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round | 1);
    }
    for replicas in ["1", "3"] {
        let outcome = system(&scene, &["-n", replicas], &["./client", "20"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "{replicas}: {}",
            outcome.err()
        );
        assert_eq!(outcome.out(), format!("{value}\n"), "{replicas}");
        let outcome = system(&scene, &["-n", replicas], &["./lender", "9"]);
        assert_eq!(
            outcome.ended,
            Ended::Exit(9),
            "{replicas}: {}",
            outcome.err()
        );
        let text = "a text that a device moved, lent by a program in C\n";
        assert_eq!(outcome.out(), text, "{replicas}");
    }
}
