//! The build script refuses tables that contradict themselves, and says how.
#![forbid(unsafe_code)]

#[path = "../build/check.rs"]
mod check;
#[path = "../build/columns.rs"]
mod columns;
#[path = "../build/emit.rs"]
mod emit;
#[path = "../build/model.rs"]
mod model;
#[path = "../build/pools.rs"]
mod pools;
#[path = "../build/signature.rs"]
mod signature;

/// What the build script says to these calls.
fn verdict(calls: &str) -> Result<String, String> {
    let text = format!("[calls]\n{calls}\n[requests]\n[files]\n");
    let table: model::Table = toml::from_str(&text).map_err(|e| e.to_string())?;
    check::table(&table)?;
    emit::table(&table)
}

fn refused(calls: &str, because: &str) {
    let message = verdict(calls).expect_err("accepted");
    assert!(
        message.contains(because),
        "`{message}` does not say `{because}`"
    );
}

#[test]
fn a_good_call_becomes_code() {
    let code = verdict("f = { nr = 2, class = \"input\", args = \"b: out_buf(n), n: size\" }");
    let code = code.expect("refused");
    assert!(
        code.contains("Arg::OutBuf { len_arg: 1, valid: Valid::Ret }"),
        "{code}"
    );
    assert!(code.contains("= [\nu16::MAX,\nu16::MAX,\n0,\n]"), "{code}");
}

#[test]
fn facts_are_words_with_operands() {
    let row = |facts: &str| {
        format!(
            "f = {{ nr = 1, class = \"local\", args = \"a: fd, b: uint\", facts = {{ {facts} }} }}"
        )
    };
    let code =
        verdict(&row("waits = \"move(b, a)\", unless = \"bits(b, 0o17)\"")).expect("refused");
    assert!(
        code.contains("waits: Waits::Move(1, 0)") && code.contains("Unless::Bits(1, 0o17)"),
        "{code}"
    );
    refused(&row("wait = \"read\""), "there is no column `wait`");
    refused(&row("waits = \"reads\""), "`reads` is no such word");
    refused(&row("waits = \"move(a)\""), "`move` has 2 operands");
    refused(&row("waits = \"send(c)\""), "there is no argument `c`");
    refused(&row("waits = \"send(a\""), "it lacks its `)`");
}

#[test]
fn names_and_numbers_are_unique() {
    let row = |name, nr| format!("{name} = {{ nr = {nr}, class = \"local\" }}\n");
    refused(&(row("f", 1) + &row("f", 2)), "duplicate key");
    refused(
        &(row("f", 1) + &row("g", 1)),
        "`f` and `g` are both number 1",
    );
}

#[test]
fn a_call_needs_a_known_class_and_known_keys() {
    refused("f = { nr = 1 }", "missing field `class`");
    refused("f = { nr = 1, class = \"other\" }", "unknown variant");
    refused(
        "f = { nr = 1, class = \"local\", blocks = true }",
        "unknown field",
    );
}

#[test]
fn kinds_and_lengths_exist() {
    let input = |args| format!("f = {{ nr = 1, class = \"input\", args = \"{args}\" }}");
    refused(&input("a: string"), "unknown kind `string`");
    refused(&input("a: out_buf(n)"), "no argument `n`");
    refused(&input("a: out_buf(b), b: addr"), "`b` is a addr");
    refused(
        &input("a: sockaddr_out(n), n: uint"),
        "must be one of [\"sock_len_ptr\"]",
    );
    refused(&input("a: in_struct(0)"), "not a size");
    refused(&input("a: in_struct(9"), "lacks its `)`");
    refused(&input("a: int, a: int"), "two arguments are called `a`");
    refused(
        &input("a: int, b: int, c: int, d: int, e: int, f: int, g: int"),
        "at most 6",
    );
    refused(&input("int"), "not `name: kind`");
}

#[test]
fn classes_bring_what_they_need() {
    let row = |rest| format!("f = {{ nr = 1, {rest} }}");
    refused(&row("class = \"unsupported\""), "needs a `reason`");
    refused(
        &row("class = \"local\", reason = \"x\""),
        "for unsupported calls",
    );
    refused(&row("class = \"emulated\""), "need a `handler`");
    refused(&row("class = \"process\""), "need a `handler`");
    refused(&row("class = \"emulated\", handler = \"No\""), "lower case");
    refused(
        &row("class = \"output\", repeatable = true"),
        "`repeatable`",
    );
    refused(&row("class = \"local\", quiet = true"), "`quiet`");
    refused(
        &row("class = \"local\", args = \"a: int\", output_if = { arg = \"a\", any_bits = 1 }"),
        "`output_if`",
    );
}
