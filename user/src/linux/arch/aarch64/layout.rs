//! What lies in memory otherwise than on another processor.

/// Bytes of an event of `epoll`, and where in it the program's own word is.
pub(crate) const EVENT: usize = 16;
/// See [`EVENT`].
pub(crate) const EVENT_DATA: usize = 8;

/// The first byte of an instruction that is replaced in code, and what is put there: there is none.
/// What differs between cores either faults by itself, or is an instruction that the processor does
/// not have.
pub(crate) const REPLACED: Option<[u8; 2]> = None;

/// Where code is by which a handler returns that names no way back, and that code: below what
/// programs map. Debuggers and what unwinds stacks know the code (`mov x8, #139`, `svc #0`).
pub(crate) const TRAMPOLINE: Option<(u64, [u8; 8])> = Some((
    0xf_ffff_f000,
    [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
));

/// Words of `struct stat`, from those that the rest knows: device, number, links; mode and owner;
/// group; device; bytes, bytes of a block, blocks; three times.
pub(crate) const fn file_words(words: &[u64; 18]) -> [u64; 16] {
    let mut file = [0; 16];
    (file[0], file[1]) = (words[0], words[1]);
    let (mode, links) = (words[3] & 0xffff_ffff, words[2] & 0xffff_ffff);
    file[2] = mode | links << 32;
    let (owner, group) = (words[3] >> 32, words[4] & 0xffff_ffff);
    file[3] = owner | group << 32;
    file[4] = words[5];
    (file[6], file[7], file[8]) = (words[6], words[7], words[8]);
    let mut at = 0;
    while at < 6 {
        file[9 + at] = words[9 + at];
        at += 1;
    }
    file
}
