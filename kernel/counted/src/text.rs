//! Puts counts into assembler text, as GCC, Clang and rustc write it.
//!
//! Text is looked at statement by statement: labels stand before the count, so that whoever goes to
//! a branch by its label counts it. What counts is written by its bytes where the text may be in
//! either of two syntaxes. Lines of sources are left out: assemblers do not agree on how they are
//! told.

use thiserror::Error;

use crate::Arch;

/// Why a text cannot be counted.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line} uses a register that counts branches: {text}")]
pub struct TextError {
    /// The line, from 1 on.
    pub line: usize,
    /// What it says.
    pub text: String,
}

/// What counts on x86-64: `paddq .Lrcoe_count_one(%rip), %xmm15`.
const COUNT_X86_64: &str =
    "\t.byte 0x66, 0x44, 0x0f, 0xd4, 0x3d\n\t.long .Lrcoe_count_one - . - 4\n";
/// And what it adds.
const ONE_X86_64: &str = "\t.section .rodata.rcoe_count, \"a\", @progbits\n\t.balign 16\n\
                          .Lrcoe_count_one:\n\t.quad 1, 0\n\t.text\n";
/// What counts on AArch64: no constant is added there without a register.
const COUNT_AARCH64: &str = "\tmovi d30, #0xffffffffffffffff\n\tsub d31, d31, d30\n";

/// Words before an instruction of x86-64 that change how it is executed.
const PREFIXES: [&str; 8] = [
    "rep", "repe", "repz", "repne", "repnz", "bnd", "notrack", "lock",
];

/// Puts a count before each branch, call and return of an assembler text.
///
/// # Errors
/// The first line that uses a register which counts.
pub fn add_counts(arch: Arch, text: &str) -> Result<String, TextError> {
    let (count, end) = match arch {
        Arch::X86_64 => (COUNT_X86_64, ONE_X86_64),
        Arch::Aarch64 => (COUNT_AARCH64, ""),
    };
    let mut counted = String::with_capacity(text.len() * 2);
    for (line, whole) in (1..).zip(text.lines()) {
        if is_source_line(whole) {
            continue;
        }
        let parts = statements(arch, whole);
        if parts.iter().any(|it| arch.takes_register(it.operands)) {
            let text = whole.trim().to_owned();
            return Err(TextError { line, text });
        }
        if parts.iter().all(|it| !is_branch(arch, it.mnemonic)) {
            counted.push_str(whole);
            counted.push('\n');
            continue;
        }
        for part in parts {
            for label in &part.labels {
                counted.push_str(label);
                counted.push_str(":\n");
            }
            if is_branch(arch, part.mnemonic) {
                counted.push_str(count);
            }
            counted.push('\t');
            counted.push_str(part.instruction);
            counted.push('\n');
        }
    }
    counted.push_str(end);
    Ok(counted)
}

/// Does it tell of the sources?
fn is_source_line(line: &str) -> bool {
    [".file", ".loc"].contains(&word(line).0)
}

/// One statement.
#[derive(Debug, PartialEq, Eq)]
struct Statement<'a> {
    labels: Vec<&'a str>,
    /// All behind the labels.
    instruction: &'a str,
    /// Without words before it; a directive's is empty.
    mnemonic: &'a str,
    operands: &'a str,
}

/// The statements of a line, without comments.
fn statements(arch: Arch, line: &str) -> Vec<Statement<'_>> {
    let comment = match arch {
        Arch::X86_64 => "#",
        Arch::Aarch64 => "//",
    };
    let code = line.split(comment).next().unwrap_or_default();
    // Texts of directives hold any sign, and no branch.
    if code.trim_start().starts_with('.') && !code.contains(':') || code.contains('"') {
        return vec![statement(arch, code)];
    }
    code.split(';').map(|part| statement(arch, part)).collect()
}

fn statement(arch: Arch, part: &str) -> Statement<'_> {
    let (mut labels, mut rest) = (Vec::new(), part.trim());
    while let Some((label, behind)) = rest.split_once(':') {
        let is_name = |it: char| it.is_ascii_alphanumeric() || "._$@".contains(it);
        if label.is_empty() || !label.chars().all(is_name) {
            break;
        }
        labels.push(label);
        rest = behind.trim_start();
    }
    let (instruction, mut mnemonic, mut operands) = (rest, "", "");
    if !rest.starts_with('.') {
        (mnemonic, operands) = word(rest);
        while arch == Arch::X86_64 && PREFIXES.contains(&mnemonic) {
            (mnemonic, operands) = word(operands);
        }
    }
    Statement {
        labels,
        instruction,
        mnemonic,
        operands,
    }
}

/// The first word, and what is behind it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], &text[end..])
}

/// Is it a branch, a call or a return?
fn is_branch(arch: Arch, mnemonic: &str) -> bool {
    match arch {
        Arch::X86_64 => {
            let begins = |word| mnemonic.starts_with(word);
            begins("j") || begins("call") || begins("loop") || begins("ret")
        }
        Arch::Aarch64 => {
            let whole = [
                "b", "bl", "blr", "br", "ret", "cbz", "cbnz", "tbz", "tbnz", "retaa", "retab",
                "braa", "brab", "blraa", "blrab",
            ];
            whole.contains(&mnemonic) || mnemonic.starts_with("b.") || is_conditional(mnemonic)
        }
    }
}

/// Is it a branch on a condition, as older texts have it: `beq`?
fn is_conditional(mnemonic: &str) -> bool {
    const CONDITIONS: [&str; 17] = [
        "eq", "ne", "cs", "hs", "cc", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt",
        "le", "al",
    ];
    let condition = mnemonic.strip_prefix('b');
    condition.is_some_and(|it| CONDITIONS.contains(&it))
}

#[cfg(test)]
mod tests;
