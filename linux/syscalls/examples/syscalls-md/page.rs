//! The page about system calls, made from the table.

use rcoe_linux_syscalls::{
    ALL, Arg, Class, FACTS, FILES, NOTES, Place, Request, Requests, Special, Syscall, Valid, entry,
};
use std::fmt::Write as _;

const CLASSES: &[(Class, &str)] = &[
    (
        Class::Local,
        "every replica does it, on its own memory or kernel attributes",
    ),
    (Class::Emulated, "the agent answers, without the host"),
    (
        Class::Input,
        "the primary does it; followers take result and bytes, without a barrier",
    ),
    (
        Class::Output,
        "all meet and vote on arguments and content; then the primary does it once",
    ),
    (Class::Process, "makes, replaces or awaits processes"),
    (
        Class::Unsupported,
        "refused, with one warning unless marked quiet",
    ),
];

const HEAD: &str = "\
# System calls

<!-- Made from linux/syscalls/table.toml; do not edit. To renew:
cargo run -p rcoe-linux-syscalls --example syscalls-md > docs/SYSCALLS.md -->

What happens to each system call of a replicated Linux program (x86-64). A call that is not
described here is refused with `ENOSYS`; a request of `ioctl` that is not described fails with
`ENOTTY`, one of `fcntl` or `prctl` with `EINVAL`.

";

const LEGEND: &str = "
Arguments: `fd`, `pid`, `int` are 32 bits with a sign, `uint` 32 bits, `mode` 16, `long` and `size`
64; `addr` is an address that is only a value, `pointer` leads to memory that is not described,
`path` is a string. `in_*` is read by the call and joins the vote, `out_*` is written by it and
copied to the followers, `inout_*` both. A number in parentheses is a size in bytes, a name is the
argument with the length or count; of an `out_*`
buffer as much is valid as the call returns, or `all`.

Marks: *blocks*, it may wait for ever; *repeatable*, it consumes nothing, so that a new primary may
do it again; *quiet*, refused without a warning; *agent*, the agent has its own code for it;
*straight*, common, and made without detours while nothing rare is under way.

Facts, by which the agent decides (numbers are those of arguments from 0, or bits):

* `waits`: for what, and with which flags it can be asked not to; `unless` these bits say so;
* `time`: where it says how long it waits at most, and whether what is left of that is told;
* `position`: it moves that of its file by what it reads or writes; `offset`: it acts there instead;
* `stream`: how it moves the bytes of a pipe or socket; `takeover`: by what a successor finds out
  what became of it when its primary was lost, `ring` meaning the kernel's own record;
* `content`: what it does to the content of files, which mappings show; `moves`: by which length it
  moves bytes between files, and with which flag no more than are there;
* `opens`: by which path and flags; `descriptors`: which it closes or copies;
* `ids`: where processes are named beside its result; `terminal`: what a process in the background
  may not do; `sigpipe`: whether EPIPE brings that signal; `size`: how far a file would grow.

";

/// The whole page.
pub(crate) fn page() -> String {
    let mut out = String::from(HEAD);
    out += &counts();
    out += LEGEND;
    out += "## Calls\n\n| nr | call | class | arguments | facts | remarks |\n";
    out += "|---:|---|---|---|---|---|\n";
    for call in ALL {
        out += &call_row(call);
    }
    for call in ALL {
        if let Some(requests) = &call.requests {
            out += &request_table(call, requests);
        }
    }
    out += FILES_HEAD;
    for file in FILES {
        let folder = match file.place {
            Place::Process => "/proc/PID/",
            Place::Cgroup => "",
        };
        let treatment = format!("{:?}", file.treatment).to_ascii_lowercase();
        let _ = writeln!(
            out,
            "| `{folder}{}` | {treatment} | {} |",
            file.name, file.doc
        );
    }
    out
}

const FILES_HEAD: &str = "
## Files that act on the process that writes to them

What was opened decides, not the name by which it was opened. *memory*: every replica writes to its
own memory; *each*: every replica writes to its own file; *join*: every replica joins the control
group; *once*: it acts on what all replicas share, and the primary writes; *refused*: opening it for
writing fails with EACCES, with one warning. Refused is also what is not in this list,
and all of them if they are of another process of the program.

| file | treatment | remarks |
|---|---|---|
";

/// Calls per class. A call with requests counts as such, not as unsupported.
fn counts() -> String {
    let mut out = String::from("| class | calls | requests | who does it |\n|---|---:|---:|---|\n");
    let plain = |c: &&Syscall| c.requests.is_none();
    let rows = || ALL.iter().filter_map(|c| c.requests).flat_map(|r| r.rows());
    for (class, meaning) in CLASSES {
        let calls = ALL
            .iter()
            .filter(plain)
            .filter(|c| c.class == *class)
            .count();
        let requests = rows().filter(|r| r.class == *class).count();
        let _ = writeln!(
            out,
            "| {} | {calls} | {requests} | {meaning} |",
            word(*class)
        );
    }
    let by_request = ALL.len() - ALL.iter().filter(plain).count();
    let _ = writeln!(
        out,
        "| by request | {by_request} | | the tables at the end decide |"
    );
    let _ = writeln!(out, "| all | {} | {} | |", ALL.len(), rows().count());
    out
}

fn word(class: Class) -> String {
    format!("{class:?}").to_ascii_lowercase()
}

fn call_row(c: &Syscall) -> String {
    let class = match (c.requests, c.output_if) {
        (Some(_), _) => "by request".into(),
        (_, Some(o)) => {
            format!(
                "input; output if {} & {:#x}",
                c.params()[usize::from(o.arg)],
                o.any_bits
            )
        }
        _ => word(c.class),
    };
    let args: Vec<_> = (0..usize::from(c.nargs)).map(|i| argument(c, i)).collect();
    let remarks = remarks(
        c.blocking,
        c.repeatable,
        c.quiet,
        c.special,
        c.straight,
        &[c.reason(), note(c.name())],
    );
    format!(
        "| {} | `{}` | {class} | {} | {} | {remarks} |\n",
        c.nr,
        c.name(),
        args.join(", "),
        facts(c.name())
    )
}

fn facts(name: &str) -> String {
    let found = FACTS.iter().find(|(known, _)| *known == name);
    let words = found.map_or(&[][..], |(_, facts)| facts);
    let words: Vec<_> = words
        .iter()
        .map(|(key, value)| format!("`{key} {value}`"))
        .collect();
    words.join(", ")
}

fn note(name: &str) -> &'static str {
    NOTES
        .iter()
        .find(|(n, _)| *n == name)
        .map_or("", |(_, note)| note)
}

fn remarks(
    blocks: bool,
    repeatable: bool,
    quiet: bool,
    s: Special,
    straight: bool,
    texts: &[&str],
) -> String {
    let marks = [
        (blocks, "*blocks*"),
        (repeatable, "*repeatable*"),
        (quiet, "*quiet*"),
        (s != Special::None, "*agent*"),
        (straight, "*straight*"),
    ];
    let marks: Vec<_> = marks.iter().filter(|m| m.0).map(|m| m.1).collect();
    let mut parts = vec![marks.join(" ")];
    parts.extend(texts.iter().map(ToString::to_string));
    parts.retain(|p| !p.is_empty());
    parts.join("; ")
}

fn argument(c: &Syscall, i: usize) -> String {
    let (name, kind) = (c.params()[i], kind(c.args[i], &c.params()));
    if name == kind {
        format!("`{kind}`")
    } else {
        format!("`{name}: {kind}`")
    }
}

/// A kind in the words of the table.
fn kind(arg: Arg, params: &[&str; 6]) -> String {
    let of = |i: u8| params[usize::from(i)];
    match arg {
        Arg::InBuf { len_arg } => format!("in_buf({})", of(len_arg)),
        Arg::InMsg { len_arg } => format!("in_msg({})", of(len_arg)),
        Arg::OutMsg { len_arg } => format!("out_msg({})", of(len_arg)),
        Arg::OutBuf { len_arg, valid } => format!("out_buf({}{})", of(len_arg), all(valid)),
        Arg::OutBufLenPtr { lenptr_arg } => format!("out_buf_lenptr({})", of(lenptr_arg)),
        Arg::InArray { count_arg, elem } => format!("in_array({}, {elem})", of(count_arg)),
        Arg::InOutArray { count_arg, elem } => format!("inout_array({}, {elem})", of(count_arg)),
        Arg::OutArray {
            count_arg,
            elem,
            valid,
        } => {
            format!("out_array({}, {elem}{})", of(count_arg), all(valid))
        }
        Arg::IovIn { count_arg } => format!("iov_in({})", of(count_arg)),
        Arg::IovOut { count_arg } => format!("iov_out({})", of(count_arg)),
        Arg::SockaddrIn { len_arg } => format!("sockaddr_in({})", of(len_arg)),
        Arg::SockaddrOut { lenptr_arg } => format!("sockaddr_out({})", of(lenptr_arg)),
        Arg::MmsghdrIn { count_arg } => format!("mmsghdr_in({})", of(count_arg)),
        Arg::MmsghdrOut { count_arg } => format!("mmsghdr_out({})", of(count_arg)),
        Arg::FdSet { nfds_arg } => format!("fd_set({})", of(nfds_arg)),
        other => simple_kind(other),
    }
}

/// The kinds that refer to no other argument.
fn simple_kind(arg: Arg) -> String {
    match arg {
        Arg::StrVec => "str_vec".into(),
        Arg::InStruct { size } => format!("in_struct({size})"),
        Arg::OutStruct { size } => format!("out_struct({size})"),
        Arg::OutStructOnError { size } => format!("out_struct_on_error({size})"),
        Arg::InOutStruct { size } => format!("inout_struct({size})"),
        Arg::SockLenPtr => "sock_len_ptr".into(),
        Arg::MsghdrIn => "msghdr_in".into(),
        Arg::MsghdrOut => "msghdr_out".into(),
        plain => format!("{plain:?}").to_ascii_lowercase(),
    }
}

fn all(valid: Valid) -> &'static str {
    match valid {
        Valid::Ret => "",
        Valid::Arg => ", all",
    }
}

fn request_table(c: &Syscall, requests: &Requests) -> String {
    let data = requests
        .data
        .map_or("argument", |i| c.params()[usize::from(i)]);
    let mut out = format!("\n## Requests of {}\n\n", c.name());
    let _ = writeln!(
        out,
        "| code | request | class | {data} | facts | remarks |\n|---:|---|---|---|---|---|"
    );
    assert_eq!(
        entry(c.nr.into()).map(Syscall::name),
        Some(c.name()),
        "the index is wrong"
    );
    for row in requests.rows() {
        out += &request_row(row);
    }
    out
}

fn request_row(r: &Request) -> String {
    let remarks = remarks(
        r.blocking,
        r.repeatable,
        r.quiet,
        r.special,
        r.straight,
        &[r.reason()],
    );
    let arg = match r.arg {
        Arg::None => String::new(),
        arg => format!("`{}`", kind(arg, &[""; 6])),
    };
    format!(
        "| {:#x} | `{}` | {} | {arg} | {} | {remarks} |\n",
        r.code,
        r.name(),
        word(r.class),
        facts(r.name())
    )
}
