//! The registers of a replica as gdb knows those of x86-64: their order, and what it is told of
//! them.
//!
//! Not covered: upper halves of vector registers (AVX) and what is beyond.

use std::fmt::Write as _;
use std::sync::OnceLock;

use gdbstub::arch;
use nix::libc::{user_fpregs_struct, user_regs_struct};

/// The processor.
#[derive(Debug)]
pub(super) enum Amd64 {}

impl arch::Arch for Amd64 {
    type Usize = u64;
    type Registers = Registers;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static TEXT: OnceLock<String> = OnceLock::new();
        Some(TEXT.get_or_init(describe))
    }
}

/// General registers in gdb's order.
const GENERAL: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Flags and selectors.
const SHORT: [&str; 7] = ["eflags", "cs", "ss", "ds", "es", "fs", "gs"];
/// Control and state of the x87 unit.
const UNIT: [&str; 8] = [
    "fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop",
];
/// Parts of a vector register: name, type of an element, how many.
const PARTS: [(&str, &str, u32); 6] = [
    ("v4f", "ieee_single", 4),
    ("v2d", "ieee_double", 2),
    ("v16i8", "int8", 16),
    ("v8i16", "int16", 8),
    ("v4i32", "int32", 4),
    ("v2i64", "int64", 2),
];

/// The description of the target, in the order in which registers are sent.
fn describe() -> String {
    let mut text =
        String::from("<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">");
    text += "<target version=\"1.0\"><architecture>i386:x86-64</architecture>";
    text += "<osabi>GNU/Linux</osabi>";
    let register = |text: &mut String, name: &str, bits: u32, kind: &str| {
        // A string takes all that is written.
        let _ = write!(
            text,
            "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"/>"
        );
    };
    text += "<feature name=\"org.gnu.gdb.i386.core\">";
    for name in GENERAL {
        let pointer = ["rbp", "rsp"].contains(&name);
        register(
            &mut text,
            name,
            64,
            if pointer { "data_ptr" } else { "int64" },
        );
    }
    register(&mut text, "rip", 64, "code_ptr");
    SHORT
        .iter()
        .for_each(|name| register(&mut text, name, 32, "int32"));
    (0..8).for_each(|at| register(&mut text, &format!("st{at}"), 80, "i387_ext"));
    UNIT.iter()
        .for_each(|name| register(&mut text, name, 32, "int"));
    text += "</feature><feature name=\"org.gnu.gdb.i386.sse\">";
    for (name, of, count) in PARTS {
        let _ = write!(
            text,
            "<vector id=\"{name}\" type=\"{of}\" count=\"{count}\"/>"
        );
    }
    text += "<union id=\"vec128\">";
    for (name, ..) in PARTS {
        let _ = write!(text, "<field name=\"{name}\" type=\"{name}\"/>");
    }
    text += "<field name=\"uint128\" type=\"uint128\"/></union>";
    (0..16).for_each(|at| register(&mut text, &format!("xmm{at}"), 128, "vec128"));
    register(&mut text, "mxcsr", 32, "int32");
    text += "</feature><feature name=\"org.gnu.gdb.i386.linux\">";
    register(&mut text, "orig_rax", 64, "int64");
    text += "</feature><feature name=\"org.gnu.gdb.i386.segments\">";
    register(&mut text, "fs_base", 64, "int");
    register(&mut text, "gs_base", 64, "int");
    text + "</feature></target>"
}

/// All registers that gdb is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    general: [u64; 16],
    pub(super) rip: u64,
    short: [u32; 7],
    x87: [[u8; 10]; 8],
    unit: [u32; 8],
    xmm: [[u8; 16]; 16],
    mxcsr: u32,
    /// The call under way, the bases of fs and gs.
    rest: [u64; 3],
}

/// The low half of a register of the host.
#[expect(clippy::cast_possible_truncation, reason = "the half that is wanted")]
const fn low(word: u64) -> u32 {
    word as u32
}

impl Registers {
    /// As the host has them.
    pub(super) fn new(user: &user_regs_struct, unit: &user_fpregs_struct) -> Self {
        let mut all = Self {
            general: [
                user.rax, user.rbx, user.rcx, user.rdx, user.rsi, user.rdi, user.rbp, user.rsp,
                user.r8, user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
            ],
            rip: user.rip,
            short: [
                user.eflags,
                user.cs,
                user.ss,
                user.ds,
                user.es,
                user.fs,
                user.gs,
            ]
            .map(low),
            mxcsr: unit.mxcsr,
            rest: [user.orig_rax, user.fs_base, user.gs_base],
            ..Self::default()
        };
        let (slots, _) = unit.st_space.as_chunks::<4>();
        for (to, from) in all.x87.iter_mut().zip(slots) {
            to.copy_from_slice(&bytes_of(from)[..10]);
        }
        let (slots, _) = unit.xmm_space.as_chunks::<4>();
        for (to, from) in all.xmm.iter_mut().zip(slots) {
            *to = bytes_of(from);
        }
        let [fioff, fooff] = [unit.rip, unit.rdp].map(low);
        let [control, state, op] = [unit.cwd, unit.swd, unit.fop].map(u32::from);
        all.unit = [control, state, full_tags(unit.ftw), 0, fioff, 0, fooff, op];
        all
    }

    /// Changes the host's to these, but for what tells of a call under way.
    pub(super) fn store(&self, user: &mut user_regs_struct, unit: &mut user_fpregs_struct) {
        let [
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = self.general;
        let [eflags, cs, ss, ds, es, fs, gs] = self.short.map(u64::from);
        let [_, fs_base, gs_base] = self.rest;
        *user = user_regs_struct {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip: self.rip,
            orig_rax: user.orig_rax,
            eflags,
            cs,
            ss,
            ds,
            es,
            fs,
            gs,
            fs_base,
            gs_base,
        };
        let (slots, _) = unit.st_space.as_chunks_mut::<4>();
        for (to, from) in slots.iter_mut().zip(&self.x87) {
            let mut all = bytes_of(to);
            all[..10].copy_from_slice(from);
            *to = words_of(&all);
        }
        let (slots, _) = unit.xmm_space.as_chunks_mut::<4>();
        for (to, from) in slots.iter_mut().zip(&self.xmm) {
            *to = words_of(from);
        }
        let half = |word: u32| u16::try_from(word & 0xffff).unwrap_or(0);
        (unit.cwd, unit.swd) = (half(self.unit[0]), half(self.unit[1]));
        (unit.ftw, unit.fop) = (short_tags(self.unit[2]), half(self.unit[7]));
        unit.mxcsr = self.mxcsr;
    }

    /// Names of the registers in which these differ.
    pub(super) fn differing(&self, other: &Self) -> Vec<String> {
        let mut names = Vec::new();
        let mut see = |differs: bool, name: &str| {
            if differs {
                names.push(name.to_owned());
            }
        };
        for (at, name) in GENERAL.iter().enumerate() {
            see(self.general[at] != other.general[at], name);
        }
        see(self.rip != other.rip, "rip");
        for (at, name) in SHORT.iter().enumerate() {
            see(self.short[at] != other.short[at], name);
        }
        for at in 0..8 {
            see(self.x87[at] != other.x87[at], &format!("st{at}"));
        }
        for (at, name) in UNIT.iter().enumerate() {
            see(self.unit[at] != other.unit[at], name);
        }
        for at in 0..16 {
            see(self.xmm[at] != other.xmm[at], &format!("xmm{at}"));
        }
        see(self.mxcsr != other.mxcsr, "mxcsr");
        see(self.rest[1..] != other.rest[1..], "a segment's base");
        names
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.general.iter().flat_map(|it| it.to_le_bytes()));
        bytes.extend(self.rip.to_le_bytes());
        bytes.extend(self.short.iter().flat_map(|it| it.to_le_bytes()));
        bytes.extend(self.x87.iter().flatten());
        bytes.extend(self.unit.iter().flat_map(|it| it.to_le_bytes()));
        bytes.extend(self.xmm.iter().flatten());
        bytes.extend(self.mxcsr.to_le_bytes());
        bytes.extend(self.rest.iter().flat_map(|it| it.to_le_bytes()));
        bytes
    }

    /// The reverse; `None` if there are too few bytes.
    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (first, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(*first)
        }
        let mut all = Self::default();
        for cell in &mut all.general {
            *cell = u64::from_le_bytes(take(&mut bytes)?);
        }
        all.rip = u64::from_le_bytes(take(&mut bytes)?);
        for cell in &mut all.short {
            *cell = u32::from_le_bytes(take(&mut bytes)?);
        }
        for cell in &mut all.x87 {
            *cell = take(&mut bytes)?;
        }
        for cell in &mut all.unit {
            *cell = u32::from_le_bytes(take(&mut bytes)?);
        }
        for cell in &mut all.xmm {
            *cell = take(&mut bytes)?;
        }
        all.mxcsr = u32::from_le_bytes(take(&mut bytes)?);
        for cell in &mut all.rest {
            *cell = u64::from_le_bytes(take(&mut bytes)?);
        }
        Some(all)
    }
}

impl arch::Registers for Registers {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        self.to_bytes()
            .into_iter()
            .for_each(|byte| write_byte(Some(byte)));
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        *self = Self::from_bytes(bytes).ok_or(())?;
        Ok(())
    }
}

fn bytes_of(words: &[u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *to = from.to_le_bytes();
    }
    bytes
}

fn words_of(bytes: &[u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (to, from) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = u32::from_le_bytes(*from);
    }
    words
}

/// Two bits for each x87 register, of which the host keeps one: whether it is in use.
fn full_tags(short: u16) -> u32 {
    let empty = (0..8).filter(|at| short >> at & 1 == 0);
    empty.fold(0, |tags, at| tags | 3 << (2 * at))
}

fn short_tags(full: u32) -> u16 {
    let used = (0..8).filter(|at| full >> (2 * at) & 3 != 3);
    used.fold(0, |tags, at| tags | 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_go_to_gdb_and_back() {
        let mut all = Registers {
            rip: 7,
            mxcsr: 0x1f80,
            rest: [1, 2, 3],
            ..Registers::default()
        };
        all.general[15] = 15;
        all.xmm[15] = [9; 16];
        all.x87[7] = [8; 10];
        let bytes = all.to_bytes();
        // As many bits as the description has.
        let text = describe();
        let bits = text
            .split("bitsize=\"")
            .skip(1)
            .map(|it| it.split('"').next());
        let bits: usize = bits
            .map(|it| it.expect("a number").parse::<usize>().expect("bits"))
            .sum();
        assert_eq!(bytes.len() * 8, bits);
        assert_eq!(Registers::from_bytes(&bytes), Some(all.clone()));
        assert_eq!(Registers::from_bytes(&bytes[1..]), None);
        let mut other = all.clone();
        other.general[0] = 1;
        other.xmm[3][0] = 1;
        assert_eq!(all.differing(&other), ["rax", "xmm3"]);
    }

    #[test]
    fn tags_keep_what_is_in_use() {
        assert_eq!(full_tags(0), 0xffff);
        assert_eq!(full_tags(0x81), 0x3ffc);
        assert_eq!(short_tags(full_tags(0x81)), 0x81);
    }
}
