//! What `/proc/cpuinfo` tells.

use core::fmt;

use super::identity;
use crate::linux::Machine;

/// Features of a processor that are told by their names: the register, its bit, and the name.
const FEATURES: [(usize, u32, &str); 16] = [
    (3, 0, "fpu"),
    (3, 4, "tsc"),
    (3, 8, "cx8"),
    (3, 15, "cmov"),
    (3, 19, "clflush"),
    (3, 23, "mmx"),
    (3, 24, "fxsr"),
    (3, 25, "sse"),
    (3, 26, "sse2"),
    (2, 0, "pni"),
    (2, 9, "ssse3"),
    (2, 13, "cx16"),
    (2, 19, "sse4_1"),
    (2, 20, "sse4_2"),
    (2, 23, "popcnt"),
    (2, 25, "aes"),
];

/// The one core, as it tells of itself.
pub(crate) struct Cpu {
    vendor: [[u8; 4]; 3],
    brand: [[[u8; 4]; 4]; 3],
    one: [u32; 4],
}

impl Cpu {
    pub(crate) fn new(machine: &impl Machine) -> Self {
        let [_, b, c, d] = identity::of(machine, 0, 0);
        let brand = [0x8000_0002, 0x8000_0003, 0x8000_0004];
        let brand = brand.map(|leaf| identity::of(machine, leaf, 0));
        Self {
            vendor: [b, d, c].map(u32::to_le_bytes),
            brand: brand.map(|words| words.map(u32::to_le_bytes)),
            one: identity::of(machine, 1, 0),
        }
    }
}

/// Text up to its end, without what is no letter of it.
fn readable(out: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    use fmt::Write as _;
    let text = text.iter().take_while(|&&byte| byte != 0);
    for &byte in text.filter(|byte| byte.is_ascii_graphic() || **byte == b' ') {
        out.write_char(byte.into())?;
    }
    Ok(())
}

impl fmt::Display for Cpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [version, ..] = self.one;
        let (family, model) = (version >> 8 & 15, version >> 4 & 15);
        let extended = if family == 15 {
            version >> 20 & 0xff
        } else {
            0
        };
        let more = if [6, 15].contains(&family) {
            version >> 12 & 0xf0
        } else {
            0
        };
        write!(out, "processor\t: 0\nvendor_id\t: ")?;
        readable(out, self.vendor.as_flattened())?;
        writeln!(out, "\ncpu family\t: {}", family + extended)?;
        write!(out, "model\t\t: {}\nmodel name\t: ", model + more)?;
        readable(out, self.brand.as_flattened().as_flattened())?;
        writeln!(out, "\nstepping\t: {}", version & 15)?;
        writeln!(
            out,
            "physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1"
        )?;
        write!(out, "flags\t\t:")?;
        for (register, bit, name) in FEATURES {
            if self.one[register] >> bit & 1 != 0 {
                write!(out, " {name}")?;
            }
        }
        writeln!(out, "\n")
    }
}
