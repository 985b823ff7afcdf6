//! Link arguments of the freestanding agent image.
//!
//! Position-independent code linked without `-pie` at a fixed high address: every reference is
//! relative to the instruction pointer, and nothing needs to be relocated at start.
//!
//! Its functions lie in the order of `order.txt`.
//!
//! And the image that programs get as their vDSO, assembled and linked from `vdso/` by the C
//! compiler's driver, which Rust needs as its linker anyway; `CC` names another one.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    build_vdso(Path::new(&folder));
    // `AGENT_TEXT` of rcoe-linux-abi; checked against it at run time in `boot`.
    let args = [
        "--no-pie",
        "--image-base=0x6f0000020000",
        "--build-id=none",
        "-znorelro",
        "-znoexecstack",
        "-zmax-page-size=4096",
        "--gc-sections",
    ];
    println!("cargo:rerun-if-changed=own.ld");
    println!("cargo:rustc-link-arg-bins=-T{folder}/own.ld");
    let order = order_functions(Path::new(&folder));
    println!("cargo:rustc-link-arg-bins=-T{}", order.display());
    for arg in args {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
}

/// The word in the image that is to name the agent's entry: "rceo", 0 and "sdv" in memory.
const MARK: u64 = 0x7664_7300_6f65_6372;

/// Builds the image and finds that word in it.
fn build_vdso(folder: &Path) {
    let source = folder.join("vdso/vdso.S");
    let script = folder.join("vdso/vdso.lds");
    for file in [&source, &script] {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    println!("cargo:rerun-if-env-changed=CC");
    let out = std::env::var("OUT_DIR").expect("run by cargo");
    let image = Path::new(&out).join("vdso.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-m64", "-shared", "-nostdlib", "-fPIC"]);
    command.arg("-o").arg(&image).arg(&source);
    command.arg(format!("-Wl,-T,{}", script.display()));
    command.args([
        "-Wl,-soname=linux-vdso.so.1",
        "-Wl,--hash-style=both",
        "-Wl,--eh-frame-hdr",
        "-Wl,-Bsymbolic",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,noexecstack",
        "-Wl,--build-id=none",
        "-Wl,-s",
    ]);
    let status = command.status();
    let built = status.as_ref().is_ok_and(std::process::ExitStatus::success);
    assert!(
        built,
        "{compiler:?} cannot build the vDSO ({status:?}); set CC to a C compiler for x86-64"
    );
    let bytes = std::fs::read(&image).expect("the image was written just now");
    let found = bytes.windows(8).position(|word| word == MARK.to_le_bytes());
    let slot = found.expect("the image has a word for the agent's entry");
    let code = format!("{slot}\n");
    std::fs::write(Path::new(&out).join("vdso_slot.rs"), code).expect("the folder is writable");
}

/// Makes a linker script of the list of functions.
fn order_functions(folder: &Path) -> PathBuf {
    let list = folder.join("order.txt");
    println!("cargo:rerun-if-changed={}", list.display());
    let text = std::fs::read_to_string(&list).expect("it is part of the sources");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    // Functions that are marked as cold have another prefix.
    let named: String = lines
        .map(|path| format!("    *(.text.{0}* .text.unlikely.{0}*)\n", mangled(path)))
        .collect();
    // The host brings in sixteen pages that begin at a multiple of their size.
    let script = format!(
        "SECTIONS {{\n  .text : ALIGN(65536)\n  {{\n    *(.text._start .text.rcoe_*)\n\
         {named}    *(.text .text.*)\n  }}\n}} INSERT AFTER .rodata;\n"
    );
    let out = std::env::var("OUT_DIR").expect("run by cargo");
    let file = Path::new(&out).join("order.ld");
    std::fs::write(&file, script).expect("the folder is writable");
    file
}

/// How the compiler names what has this path, without what follows.
fn mangled(path: &str) -> String {
    let Some(_) = path.find("::") else {
        return path.to_owned();
    };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        if depth == 0
            && let Some(after) = rest.strip_prefix("::")
        {
            parts.push(String::new());
            rest = after;
            continue;
        }
        depth += i32::from(next == '<') - i32::from(next == '>');
        parts.last_mut().expect("one at least").push(next);
        rest = &rest[next.len_utf8()..];
    }
    let parts = parts.iter().map(|part| {
        let escapes = [
            ("<", "$LT$"),
            (">", "$GT$"),
            (" ", "$u20$"),
            (",", "$C$"),
            ("::", ".."),
        ];
        let escaped = escapes
            .iter()
            .fold(part.clone(), |name, (from, to)| name.replace(from, to));
        let escaped = if escaped.starts_with('$') {
            format!("_{escaped}")
        } else {
            escaped
        };
        format!("{}{escaped}", escaped.len())
    });
    format!("_ZN{}", parts.collect::<String>())
}
