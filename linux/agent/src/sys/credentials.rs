//! System calls about who a process is and what it may do.

use linux_raw_sys::general as nr;
use linux_raw_sys::prctl::{
    PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_RAISE,
    PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS, PR_GET_SECUREBITS, PR_SET_KEEPCAPS,
};
use rcoe_linux_sys::{syscall1, syscall2, syscall3, syscall4};

use crate::sys::{Errno, check, prctl};

/// Numbers of capabilities that fit in a set.
const CAPABILITIES: u32 = 64;
/// "Leave this one as it is."
const KEEP: u64 = 0xffff_ffff;

/// Real, effective, saved and file system id: of the user, or of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Ids {
    pub(crate) real: u32,
    pub(crate) effective: u32,
    pub(crate) saved: u32,
    pub(crate) file: u32,
}

fn ids(three: u32, file: u32) -> Ids {
    let mut found = [0_u32; 3];
    let [real, effective, saved] = [0, 1, 2].map(|i| (&raw mut found[i]) as u64);
    // SAFETY: three places for an id each.
    let done = unsafe { syscall3(u64::from(three), real, effective, saved) };
    assert_eq!(done, 0, "ids can always be read");
    // SAFETY: an id that cannot be set changes nothing, and the old one is returned.
    let file = unsafe { syscall1(u64::from(file), u64::MAX) };
    Ids {
        real: found[0],
        effective: found[1],
        saved: found[2],
        file: crate::convert::low32(file.cast_unsigned()),
    }
}

/// Whose process this is.
pub(crate) fn user_ids() -> Ids {
    ids(nr::__NR_getresuid, nr::__NR_setfsuid)
}

/// Which group it belongs to.
pub(crate) fn group_ids() -> Ids {
    ids(nr::__NR_getresgid, nr::__NR_setfsgid)
}

fn become_effective(call: u32, id: u32) -> Result<(), Errno> {
    let id = u64::from(id);
    // SAFETY: changes what this process may do, nothing of its memory.
    check(unsafe { syscall3(u64::from(call), KEEP, id, id) }).map(drop)
}

/// Makes effective, saved and file system user one.
pub(crate) fn set_effective_user(user: u32) -> Result<(), Errno> {
    become_effective(nr::__NR_setresuid, user)
}

/// Makes effective, saved and file system group one.
pub(crate) fn set_effective_group(group: u32) -> Result<(), Errno> {
    become_effective(nr::__NR_setresgid, group)
}

/// Shows the supplementary groups; of a process that has more than fit, none.
pub(crate) fn with_groups<T>(look: impl FnOnce(&[u32]) -> T) -> T {
    with_all_groups(|groups| look(groups.unwrap_or_default()))
}

/// Shows the supplementary groups; `None` if there are more than fit.
pub(crate) fn with_all_groups<T>(look: impl FnOnce(Option<&[u32]>) -> T) -> T {
    const MOST: usize = 256;
    let mut groups = [0_u32; MOST];
    let room = groups.len() as u64;
    // SAFETY: room for that many ids.
    let found = unsafe {
        syscall2(
            u64::from(nr::__NR_getgroups),
            room,
            groups.as_mut_ptr() as u64,
        )
    };
    look(usize::try_from(found).ok().map(|found| &groups[..found]))
}

/// What a process may do, one bit for each capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Capabilities {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

/// The kernel's version 3 of its header; 0 means this process.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// This process's capabilities.
pub(crate) fn capabilities() -> Capabilities {
    let mut header = HEADER;
    let mut sets = [0_u32; 6];
    // SAFETY: header and data are the kernel's structures of version 3.
    let done = unsafe {
        syscall2(
            u64::from(nr::__NR_capget),
            header.as_mut_ptr() as u64,
            sets.as_mut_ptr() as u64,
        )
    };
    assert_eq!(done, 0, "capabilities can always be read");
    let whole = |at: usize| u64::from(sets[at + 3]) << 32 | u64::from(sets[at]);
    Capabilities {
        effective: whole(0),
        permitted: whole(1),
        inheritable: whole(2),
    }
}

/// Changes this process's capabilities.
pub(crate) fn set_capabilities(wanted: &Capabilities) -> Result<(), Errno> {
    let mut header = HEADER;
    let low = |set: u64| crate::convert::low32(set);
    let high = |set: u64| crate::convert::low32(set >> 32);
    let sets = [wanted.effective, wanted.permitted, wanted.inheritable];
    let [a, b, c] = sets.map(low);
    let [d, e, f] = sets.map(high);
    let sets = [a, b, c, d, e, f];
    // SAFETY: as above; it changes what this process may do, nothing of its memory.
    check(unsafe {
        syscall2(
            u64::from(nr::__NR_capset),
            header.as_mut_ptr() as u64,
            sets.as_ptr() as u64,
        )
    })
    .map(drop)
}

/// Runs `body` while all capabilities that are permitted are in effect.
pub(crate) fn with_all_permitted<T>(body: impl FnOnce() -> T) -> T {
    let own = capabilities();
    let all = Capabilities {
        effective: own.permitted,
        ..own
    };
    if own == all || set_capabilities(&all).is_err() {
        return body();
    }
    let result = body();
    set_capabilities(&own).expect("what is in effect can be put aside");
    result
}

/// Asks the host about each capability of `candidates`; ends at the first that it does not know.
fn set_of(candidates: u64, is_set: impl Fn(u64) -> Result<u64, Errno>) -> u64 {
    let mut set = 0;
    for number in (0..CAPABILITIES).filter(|number| candidates >> number & 1 != 0) {
        match is_set(u64::from(number)) {
            Ok(1) => set |= 1 << number,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    set
}

/// Capabilities that a program executed by root may have.
pub(crate) fn bounding_set() -> u64 {
    set_of(u64::MAX, |number| prctl(PR_CAPBSET_READ, [number, 0, 0, 0]))
}

/// Capabilities that every program executed gets: some of those that are permitted and inheritable.
pub(crate) fn ambient_set(capabilities: &Capabilities) -> u64 {
    let candidates = capabilities.permitted & capabilities.inheritable;
    let ask = u64::from(PR_CAP_AMBIENT_IS_SET);
    set_of(candidates, |number| {
        prctl(PR_CAP_AMBIENT, [ask, number, 0, 0])
    })
}

/// Empties the ambient set.
pub(crate) fn clear_ambient() -> Result<(), Errno> {
    let clear = u64::from(PR_CAP_AMBIENT_CLEAR_ALL);
    prctl(PR_CAP_AMBIENT, [clear, 0, 0, 0]).map(drop)
}

/// Puts these into the ambient set, as far as the host allows.
pub(crate) fn raise_ambient(set: u64) {
    let raise = u64::from(PR_CAP_AMBIENT_RAISE);
    for number in (0..CAPABILITIES).filter(|number| set >> number & 1 != 0) {
        // Refused where the program has locked the set: then it keeps less.
        let _ = prctl(PR_CAP_AMBIENT, [raise, u64::from(number), 0, 0]);
    }
}

/// The flags that rule what root means.
pub(crate) fn secure_bits() -> u64 {
    prctl(PR_GET_SECUREBITS, [0; 4]).expect("every kernel can do this")
}

/// Do capabilities survive giving up root?
pub(crate) fn keep_capabilities(keep: bool) -> Result<(), Errno> {
    prctl(PR_SET_KEEPCAPS, [u64::from(keep), 0, 0, 0]).map(drop)
}

/// Are programs executed to give no privileges that this process has not?
pub(crate) fn no_new_privileges() -> bool {
    prctl(PR_GET_NO_NEW_PRIVS, [0; 4]) == Ok(1)
}

/// The host's release, major and minor number; zero where it does not read as such.
pub(crate) fn release() -> (u32, u32) {
    const FIELD: usize = 65;
    let mut names = [0_u8; 6 * FIELD];
    // SAFETY: room for the kernel's six names.
    let _ = unsafe { syscall1(u64::from(nr::__NR_uname), names.as_mut_ptr() as u64) };
    let mut numbers = names[2 * FIELD..3 * FIELD]
        .split(|byte| !byte.is_ascii_digit())
        .map(|digits| core::str::from_utf8(digits).unwrap_or_default())
        .map(|digits| digits.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next())
}

/// What an open file's `security.capability` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCapabilities {
    None,
    Some {
        permitted: u64,
        inheritable: u64,
        effective: bool,
    },
    /// In a form that is not known here.
    Unknown,
}

/// Reads an open file's capabilities.
pub(crate) fn file_capabilities(fd: i32) -> FileCapabilities {
    use linux_raw_sys::errno::{ENODATA, EOPNOTSUPP};
    let mut value = [0_u8; 64];
    // SAFETY: name and buffer are valid.
    let len = check(unsafe {
        syscall4(
            u64::from(nr::__NR_fgetxattr),
            i64::from(fd).cast_unsigned(),
            c"security.capability".as_ptr() as u64,
            value.as_mut_ptr() as u64,
            value.len() as u64,
        )
    });
    match len {
        Ok(len) => parse(&value[..crate::convert::size(len)]),
        Err(Errno(errno)) if [ENODATA, EOPNOTSUPP].contains(&errno.cast_unsigned()) => {
            FileCapabilities::None
        }
        Err(_) => FileCapabilities::Unknown,
    }
}

fn parse(value: &[u8]) -> FileCapabilities {
    const REVISION: u32 = 0xff00_0000;
    const SECOND: u32 = 0x0200_0000;
    const EFFECTIVE: u32 = 1;
    let word = |at: usize| {
        let bytes = value.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let wide = |low: usize| Some(u64::from(word(low + 2)?) << 32 | u64::from(word(low)?));
    match (word(0), wide(1), wide(2)) {
        (Some(magic), Some(permitted), Some(inheritable)) if magic & REVISION == SECOND => {
            FileCapabilities::Some {
                permitted,
                inheritable,
                effective: magic & EFFECTIVE != 0,
            }
        }
        _ => FileCapabilities::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_form_of_file_capabilities_is_read() {
        let words = [0x0200_0001_u32, 0x2000, 0x4000, 1, 2];
        let bytes = words.map(u32::to_le_bytes).concat();
        let expected = FileCapabilities::Some {
            permitted: 0x1_0000_2000,
            inheritable: 0x2_0000_4000,
            effective: true,
        };
        assert_eq!(parse(&bytes), expected);
    }

    #[test]
    fn what_is_cut_short_or_of_another_form_is_unknown() {
        let words = [0x0200_0001_u32, 0x2000, 0x4000, 1, 2];
        let bytes = words.map(u32::to_le_bytes).concat();
        assert_eq!(parse(&bytes[..19]), FileCapabilities::Unknown);
        assert_eq!(parse(&[]), FileCapabilities::Unknown);
        let other = [0x0300_0001_u32, 0, 0, 0, 0, 7].map(u32::to_le_bytes);
        assert_eq!(parse(&other.concat()), FileCapabilities::Unknown);
    }

    #[test]
    fn a_process_can_be_asked_who_it_is() {
        let capabilities = capabilities();
        assert_eq!(capabilities.effective & !capabilities.permitted, 0);
        assert_eq!(ambient_set(&capabilities) & !capabilities.permitted, 0);
        assert_eq!(user_ids().file, user_ids().effective);
        assert!(release().0 >= 5);
    }
}
