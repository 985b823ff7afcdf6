//! A replica's registers in a form in which equal states are equal bytes.
//!
//! The processor tracks which components of the extended state are in their initial configuration,
//! in its own time, and leaves their bytes out when it saves. Here such components have the bytes
//! that loading would give them, and all are called used. What no program sees, or the host changes
//! by itself, is left out: the trap and resume flags, reserved bytes, and the rights of protection
//! keys, with which the host enters a handler.
//!
//! Contract: [`Layout::measure`] runs before `cpuid` traps.

#[cfg(test)]
use xxhash_rust::xxh3::xxh3_64;

use crate::arch::cpuid::Answer;
use crate::arch::entry::Cpu;
#[cfg(test)]
use crate::arch::entry::Registers;
use crate::convert::size;
use crate::one_thread::OneThread;

/// General registers by the numbers that instructions have for them.
pub(crate) const GENERAL: usize = 16;
pub(crate) const RAX: usize = 0;
pub(crate) const RCX: usize = 1;
pub(crate) const RSP: usize = 4;

/// Flags that are no part of the state: trap and resume.
const UNSEEN: u64 = 1 << 8 | 1 << 16;

/// Everything but the extended state.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct General {
    pub(crate) registers: [u64; GENERAL],
    pub(crate) rip: u64,
    pub(crate) flags: u64,
    /// Of fs and gs.
    pub(crate) bases: [u64; 2],
}

impl General {
    /// Of a program that goes on with these registers.
    pub(crate) const fn new(cpu: &Cpu, bases: [u64; 2]) -> Self {
        let it = &cpu.regs;
        Self {
            registers: [
                it.rax, it.rcx, it.rdx, it.rbx, cpu.rsp, it.rbp, it.rsi, it.rdi, it.r8, it.r9,
                it.r10, it.r11, it.r12, it.r13, it.r14, it.r15,
            ],
            rip: cpu.rip,
            flags: cpu.rflags & !UNSEEN,
            bases,
        }
    }

    /// The same as a program's registers.
    #[cfg(test)]
    pub(crate) fn cpu(&self) -> Cpu {
        let [
            rax,
            rcx,
            rdx,
            rbx,
            rsp,
            rbp,
            rsi,
            rdi,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        ] = self.registers;
        Cpu {
            regs: Registers {
                r15,
                r14,
                r13,
                r12,
                r11,
                r10,
                r9,
                r8,
                rdi,
                rsi,
                rbp,
                rbx,
                rdx,
                rcx,
                rax,
            },
            rflags: self.flags,
            ..Cpu::at(self.rip, rsp)
        }
    }
}

/// Where the legacy part has its control words, registers of x87, and of SSE, and where it ends.
const CONTROL: usize = 24;
const X87: usize = 32;
const SSE: usize = 160;
const RESERVED: usize = 416;
const HEADER: usize = 512;
/// Where the components that are not legacy begin at the earliest.
const COMPONENTS: usize = 576;
/// Component of the rights of protection keys.
const PKRU: usize = 9;
/// Components that are known by number.
const AVX: usize = 2;
const MASKS: usize = 5;
const UPPER_HALVES: usize = 6;
const UPPER_REGISTERS: usize = 7;
/// The control word of x87 in its initial configuration.
const X87_CONTROL: u16 = 0x37f;

/// Where the processor saves which component.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    features: u64,
    bytes: usize,
    /// Start and length of each; those of the first two are fixed.
    components: [[usize; 2]; Layout::MOST],
}

/// In which register a word of the extended state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// At this offset of what `fxsave` saves.
    Legacy(u32),
    /// In a vector register of so many bytes, at this offset.
    Vector { register: u8, bytes: u8, offset: u8 },
    /// A mask register.
    Mask(u8),
}

static LAYOUT: OneThread<Layout> = OneThread::new(Layout::UNKNOWN);

/// That of this machine.
pub(crate) fn layout() -> &'static Layout {
    // SAFETY: written once before the program starts, and only read since.
    unsafe { &*LAYOUT.get() }
}

/// Asks by `cpuid` once and for all.
pub(crate) fn measure(cpuid: impl Fn(u32, u32) -> Answer) {
    // SAFETY: nobody has a reference yet, as nothing runs but the start of the first replica.
    unsafe { *LAYOUT.get() = Layout::measure(cpuid) };
}

impl Layout {
    const MOST: usize = 32;

    const UNKNOWN: Self = Self {
        features: 0,
        bytes: 0,
        components: [[0; 2]; Self::MOST],
    };

    /// Asks by `cpuid`.
    pub(crate) fn measure(cpuid: impl Fn(u32, u32) -> Answer) -> Self {
        let [_, all, ..] = cpuid(0xd, 0);
        let features = enabled();
        let mut components = [[0; 2]; Self::MOST];
        for (number, component) in (0_u32..).zip(&mut components).skip(2) {
            if features & 1 << number != 0 {
                let [bytes, start, ..] = cpuid(0xd, number);
                *component = [size(start.into()), size(bytes.into())];
            }
        }
        Self {
            features,
            bytes: size(all.into()),
            components,
        }
    }

    /// Bytes of a whole image.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    const fn has(&self, component: usize) -> bool {
        component < Self::MOST && self.features & 1 << component != 0
    }

    /// Makes equal states equal bytes. The image is one in the standard form, as the kernel's
    /// signal frames have it. It is not to be loaded then: tiles that nobody has asked for fault.
    ///
    /// # Panics
    /// The image is shorter than [`Layout::bytes`].
    pub(crate) fn normalise(&self, image: &mut [u8]) {
        let image = &mut image[..self.bytes];
        let header = image[HEADER..HEADER + 8].try_into().expect("eight bytes");
        let used = u64::from_le_bytes(header);
        normalise_legacy(image, used);
        for (number, [start, len]) in self.components.iter().enumerate().skip(2) {
            if number == PKRU || used & 1 << number == 0 {
                image[*start..*start + *len].fill(0);
            }
        }
        image[HEADER..COMPONENTS].fill(0);
        let known = self.features & !(1 << PKRU);
        image[HEADER..HEADER + 8].copy_from_slice(&known.to_le_bytes());
    }

    /// Where the rights of protection keys are in what the kernel has saved, if they are there.
    pub(crate) fn rights(&self, saved: u64) -> Option<usize> {
        let [start, len] = self.components[PKRU];
        (len > 0 && saved & 1 << PKRU != 0).then_some(start)
    }

    /// Where the word at this offset of a normalised image can be found in registers; `None` if
    /// only saving the whole state tells.
    pub(crate) fn source(&self, offset: usize) -> Option<Source> {
        let vector = |register: usize, bytes: usize, offset: usize| {
            let [register, bytes, offset] = [register, bytes, offset].map(u8::try_from);
            Some(Source::Vector {
                register: register.ok()?,
                bytes: bytes.ok()?,
                offset: offset.ok()?,
            })
        };
        if offset < SSE {
            return Some(Source::Legacy(u32::try_from(offset).ok()?));
        }
        if offset < RESERVED {
            return vector((offset - SSE) / 16, 16, offset % 16);
        }
        let inside = |number: usize| {
            let [start, len] = self.components[number];
            let within = offset.checked_sub(start)?;
            (self.has(number) && within < len).then_some(within)
        };
        if let Some(within) = inside(AVX) {
            return vector(within / 16, 32, 16 + within % 16);
        }
        if let Some(within) = inside(MASKS) {
            return Some(Source::Mask(u8::try_from(within / 8).ok()?));
        }
        if let Some(within) = inside(UPPER_HALVES) {
            return vector(within / 32, 64, 32 + within % 32);
        }
        let within = inside(UPPER_REGISTERS)?;
        vector(16 + within / 64, 64, within % 64)
    }
}

/// Components that the kernel has enabled.
fn enabled() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the kernel has enabled the instruction on every processor that has `xsave`, which the
    // agent needs; it only writes these registers.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

fn normalise_legacy(image: &mut [u8], used: u64) {
    if used & 1 == 0 {
        image[..CONTROL].fill(0);
        image[..2].copy_from_slice(&X87_CONTROL.to_le_bytes());
        image[X87..SSE].fill(0);
    }
    if used & 2 == 0 {
        image[SSE..RESERVED].fill(0);
    }
    // Which bits of the control word of SSE exist, and what lies behind the ten bytes of each
    // register of x87.
    image[CONTROL + 4..X87].fill(0);
    for register in image[X87..SSE].chunks_exact_mut(16) {
        register[10..].fill(0);
    }
    image[RESERVED..HEADER].fill(0);
}

/// Room for an extended state.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Extended {
    bytes: [u8; Extended::ROOM],
}

impl Extended {
    /// As much as any processor has, with tiles.
    pub(crate) const ROOM: usize = 12 << 10;
    /// Nothing yet. Where `xsave` writes, the header has to be zero.
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; Self::ROOM],
    };

    /// Where an image goes.
    pub(crate) const fn room(&mut self) -> &mut [u8; Self::ROOM] {
        &mut self.bytes
    }

    /// The image.
    ///
    /// # Panics
    /// The processor's is larger than the room.
    #[cfg(test)]
    pub(crate) fn image(&self, layout: &Layout) -> &[u8] {
        &self.bytes[..layout.bytes]
    }
}

/// One digest of a state.
#[cfg(test)]
pub(crate) fn digest(general: &General, extended: &[u8]) -> u64 {
    let General {
        registers,
        rip,
        flags,
        bases,
    } = general;
    let mut words = [0; GENERAL + 5];
    words[..GENERAL].copy_from_slice(registers);
    words[GENERAL..].copy_from_slice(&[*rip, *flags, bases[0], bases[1], xxh3_64(extended)]);
    let mut bytes = [0; 8 * (GENERAL + 5)];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Where these normalised images, or equal ranges of memory, differ first: offset of the word and
/// what the first one has there. They begin at a multiple of eight.
#[cfg(test)]
pub(crate) fn first_word(one: &[u8], other: &[u8]) -> Option<(usize, u64)> {
    let words = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut pairs = one.chunks(8).zip(other.chunks(8));
    let index = pairs.position(|(one, other)| one != other)?;
    let word = &one[index * 8..one.len().min(index * 8 + 8)];
    Some((index * 8, words(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::cpuid;

    fn general() -> General {
        let mut registers = [0; GENERAL];
        for (number, register) in (100..).zip(&mut registers) {
            *register = number;
        }
        General {
            registers,
            rip: 1,
            flags: 0x202,
            bases: [2, 3],
        }
    }

    #[test]
    fn registers_survive_a_round_trip_without_what_is_unseen() {
        let general = general();
        let mut cpu = general.cpu();
        assert_eq!((cpu.regs.rax, cpu.rsp, cpu.regs.r15), (100, 104, 115));
        cpu.rflags |= UNSEEN;
        assert_eq!(General::new(&cpu, general.bases), general);
    }

    #[test]
    fn each_part_differs_by_itself() {
        let one = general();
        let image = [0; 64];
        let check = |other: General| {
            assert_ne!(digest(&one, &image), digest(&other, &image));
        };
        for number in 0..GENERAL {
            let mut other = one;
            other.registers[number] ^= 1 << 63;
            check(other);
        }
        check(General { rip: 9, ..one });
        let flags = 0x203;
        check(General { flags, ..one });
        let bases = [2, 4];
        check(General { bases, ..one });
        let mut other = image;
        other[63] = 1;
        assert_ne!(digest(&one, &image), digest(&one, &other));
        assert_eq!(first_word(&image, &image), None);
        assert_eq!(first_word(&other, &image), Some((56, 1 << 56)));
        assert_eq!(first_word(&image[..62], &other[..62]), None);
    }

    /// A processor with AVX at 576 and protection keys behind it.
    const LAYOUT: Layout = {
        let mut components = [[0; 2]; Layout::MOST];
        components[AVX] = [576, 256];
        components[PKRU] = [832, 8];
        Layout {
            features: 0b10_0000_0111,
            bytes: 840,
            components,
        }
    };

    fn image(used: u64, fill: u8) -> [u8; 840] {
        let mut image = [fill; 840];
        image[HEADER..HEADER + 8].copy_from_slice(&used.to_le_bytes());
        // The control word of SSE counts always.
        image[CONTROL..CONTROL + 4].copy_from_slice(&0x1f80_u32.to_le_bytes());
        image
    }

    #[test]
    fn unused_components_are_in_their_initial_configuration() {
        let (mut one, mut other) = (image(0, 0xaa), image(0, 0x55));
        LAYOUT.normalise(&mut one);
        LAYOUT.normalise(&mut other);
        assert_eq!(one, other);
        let mut initial = image(0b111, 0);
        initial[..2].copy_from_slice(&X87_CONTROL.to_le_bytes());
        LAYOUT.normalise(&mut initial);
        assert_eq!(one, initial, "as one that is used and holds that");
    }

    #[test]
    fn what_is_used_counts_but_for_reserved_bytes_and_rights_of_keys() {
        let mut plain = image(0x207, 0x11);
        LAYOUT.normalise(&mut plain);
        let seen = |offset: usize| {
            let mut other = image(0x207, 0x11);
            other[offset] ^= 0x80;
            LAYOUT.normalise(&mut other);
            other != plain
        };
        for offset in [0, 23, 24, 32, 41, 150, 160, 415, 576, 831] {
            assert!(seen(offset), "{offset}");
        }
        for offset in [28, 42, 47, 416, 511, 520, 575, 832, 839] {
            assert!(!seen(offset), "{offset}");
        }
    }

    #[test]
    fn words_are_found_in_registers() {
        let vector = |register, bytes, offset| {
            Some(Source::Vector {
                register,
                bytes,
                offset,
            })
        };
        assert_eq!(LAYOUT.source(48), Some(Source::Legacy(48)));
        assert_eq!(LAYOUT.source(160 + 24), vector(1, 16, 8));
        assert_eq!(LAYOUT.source(576 + 40), vector(2, 32, 24));
        assert_eq!(LAYOUT.source(832), None);
        let here = Layout::measure(cpuid::machine);
        assert!(here.bytes() >= COMPONENTS && here.bytes() <= Extended::ROOM);
    }
}
