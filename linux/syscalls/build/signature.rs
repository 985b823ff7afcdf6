//! The little language of `args`: `"fd: fd, buf: out_buf(count), count: size"`.
//!
//! Lengths are named, not numbered, in the table; here the names become argument indices.

/// Kinds without operands: the word in the table and the variant of `Arg`.
const PLAIN: &[(&str, &str)] = &[
    ("none", "None"),
    ("fd", "Fd"),
    ("pid", "Pid"),
    ("int", "Int"),
    ("uint", "Uint"),
    ("mode", "Mode"),
    ("long", "Long"),
    ("size", "Size"),
    ("addr", "Addr"),
    ("pointer", "Pointer"),
    ("path", "Path"),
    ("str_vec", "StrVec"),
    ("sock_len_ptr", "SockLenPtr"),
    ("msghdr_in", "MsghdrIn"),
    ("msghdr_out", "MsghdrOut"),
];

/// Kinds with the size in bytes of what they point to.
const SIZED: &[(&str, &str)] = &[
    ("in_struct", "InStruct"),
    ("out_struct", "OutStruct"),
    ("out_struct_on_error", "OutStructOnError"),
    ("inout_struct", "InOutStruct"),
];

/// Kinds that name one other argument: word, variant, field, and the words that argument may be.
const NAMING: &[(&str, &str, &str, &[&str])] = &[
    ("in_buf", "InBuf", "len_arg", LENGTHS),
    ("in_msg", "InMsg", "len_arg", LENGTHS),
    ("out_msg", "OutMsg", "len_arg", LENGTHS),
    ("out_buf_lenptr", "OutBufLenPtr", "lenptr_arg", LEN_PTR),
    ("iov_in", "IovIn", "count_arg", LENGTHS),
    ("iov_out", "IovOut", "count_arg", LENGTHS),
    ("sockaddr_in", "SockaddrIn", "len_arg", LENGTHS),
    ("sockaddr_out", "SockaddrOut", "lenptr_arg", LEN_PTR),
    ("mmsghdr_in", "MmsghdrIn", "count_arg", LENGTHS),
    ("mmsghdr_out", "MmsghdrOut", "count_arg", LENGTHS),
    ("fd_set", "FdSet", "nfds_arg", LENGTHS),
];

const LENGTHS: &[&str] = &["int", "uint", "long", "size"];
const LEN_PTR: &[&str] = &["sock_len_ptr"];

/// One argument as written: its name, the word for its kind, and the operands of that word.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    word: String,
    operands: Vec<String>,
}

/// Splits a signature into its arguments.
pub(crate) fn parse(text: &str) -> Result<Vec<Param>, String> {
    let params: Vec<Param> = split(text)
        .iter()
        .map(|s| param(s))
        .collect::<Result<_, _>>()?;
    if params.len() > 6 {
        return Err(format!(
            "{} arguments; a system call has at most 6",
            params.len()
        ));
    }
    for (i, p) in params.iter().enumerate() {
        if params[..i].iter().any(|q| q.name == p.name) {
            return Err(format!("two arguments are called `{}`", p.name));
        }
    }
    Ok(params)
}

/// Splits at the commas that are not inside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|s| !s.is_empty()).collect()
}

fn param(text: &str) -> Result<Param, String> {
    let (name, kind) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}` is not `name: kind`"))?;
    kind_of(name.trim(), kind.trim())
}

/// Parses a kind alone, as rows of requests have it.
pub(crate) fn kind_of(name: &str, text: &str) -> Result<Param, String> {
    let (word, operands) = match text.split_once('(') {
        None => (text, ""),
        Some((word, rest)) => (
            word,
            rest.strip_suffix(')')
                .ok_or_else(|| format!("`{text}` lacks its `)`"))?,
        ),
    };
    let operands = operands.split(',').map(str::trim).filter(|s| !s.is_empty());
    Ok(Param {
        name: name.into(),
        word: word.trim().into(),
        operands: operands.map(Into::into).collect(),
    })
}

/// The index of the argument called `name`.
pub(crate) fn index(params: &[Param], name: &str) -> Result<usize, String> {
    let found = params.iter().position(|p| p.name == name);
    found.ok_or_else(|| format!("there is no argument `{name}`"))
}

/// The Rust expression for an argument, or what is wrong with it.
pub(crate) fn render(p: &Param, all: &[Param]) -> Result<String, String> {
    let operands: Vec<&str> = p.operands.iter().map(String::as_str).collect();
    let word = p.word.as_str();
    if let ([], Some((_, variant))) = (&operands[..], PLAIN.iter().find(|k| k.0 == word)) {
        return Ok(format!("Arg::{variant}"));
    }
    if let ([size], Some((_, variant))) = (&operands[..], SIZED.iter().find(|k| k.0 == word)) {
        return Ok(format!("Arg::{variant} {{ size: {} }}", bytes(size)?));
    }
    if let ([other], Some(kind)) = (&operands[..], NAMING.iter().find(|k| k.0 == word)) {
        let at = reference(all, other, kind.3)?;
        return Ok(format!("Arg::{} {{ {}: {at} }}", kind.1, kind.2));
    }
    array(word, &operands, all).unwrap_or_else(|| {
        Err(format!(
            "unknown kind `{word}` with {} operands",
            operands.len()
        ))
    })
}

/// Kinds with a choice of how many bytes are valid, and arrays of structs.
fn array(word: &str, operands: &[&str], all: &[Param]) -> Option<Result<String, String>> {
    let (variant, count, elem, valid) = match (word, operands) {
        ("out_buf", [len]) => ("OutBuf", len, None, Some("Ret")),
        ("out_buf", [len, "all"]) => ("OutBuf", len, None, Some("Arg")),
        ("in_array", [count, elem]) => ("InArray", count, Some(elem), None),
        ("inout_array", [count, elem]) => ("InOutArray", count, Some(elem), None),
        ("out_array", [count, elem]) => ("OutArray", count, Some(elem), Some("Ret")),
        ("out_array", [count, elem, "all"]) => ("OutArray", count, Some(elem), Some("Arg")),
        _ => return None,
    };
    Some(counted(variant, count, elem.copied(), valid, all))
}

fn counted(
    variant: &str,
    count: &str,
    elem: Option<&str>,
    valid: Option<&str>,
    all: &[Param],
) -> Result<String, String> {
    let field = if elem.is_some() {
        "count_arg"
    } else {
        "len_arg"
    };
    let mut out = format!(
        "Arg::{variant} {{ {field}: {}",
        reference(all, count, LENGTHS)?
    );
    if let Some(elem) = elem {
        out += &format!(", elem: {}", bytes(elem)?);
    }
    if let Some(valid) = valid {
        out += &format!(", valid: Valid::{valid}");
    }
    Ok(out + " }")
}

/// The index of `name`, which must be of one of the `allowed` kinds.
fn reference(all: &[Param], name: &str, allowed: &[&str]) -> Result<usize, String> {
    let at = index(all, name)?;
    if allowed.contains(&all[at].word.as_str()) {
        return Ok(at);
    }
    Err(format!(
        "`{name}` is a {}; it must be one of {allowed:?}",
        all[at].word
    ))
}

fn bytes(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is not a size in bytes")),
        Ok(size) => Ok(size),
    }
}
