//! Who may do what with a segment: the rules of the kernel's `ipcperms` and `ipcctl_obtain_check`.

use rcoe_linux_abi::arena::Segment;

use crate::sys;

const CAP_IPC_LOCK: u32 = 14;
const CAP_IPC_OWNER: u32 = 15;
const CAP_SYS_ADMIN: u32 = 21;

/// Who asks, as far as permissions depend on it.
struct Asker<'a> {
    user: u32,
    group: u32,
    /// The supplementary groups; `None` if there are too many to tell.
    groups: Option<&'a [u32]>,
}

impl Asker<'_> {
    const fn owns(&self, segment: &Segment) -> bool {
        self.user == segment.owners[0] || self.user == segment.owners[2]
    }

    fn is_in(&self, group: u32) -> Option<bool> {
        if group == self.group {
            return Some(true);
        }
        self.groups.map(|groups| groups.contains(&group))
    }

    /// The permissions that the mode grants, as three bits.
    fn granted(&self, segment: &Segment) -> u32 {
        let mode = segment.mode;
        let [group, others] = [mode >> 3 & 7, mode & 7];
        if self.owns(segment) {
            return mode >> 6 & 7;
        }
        match [1, 3].map(|at| self.is_in(segment.owners[at])) {
            [Some(true), _] | [_, Some(true)] => group,
            [Some(false), Some(false)] => others,
            // Whichever it is.
            _ => group & others,
        }
    }
}

fn with_asker<T>(look: impl FnOnce(&Asker<'_>) -> T) -> T {
    sys::with_all_groups(|groups| {
        look(&Asker {
            user: sys::user_ids().effective,
            group: sys::group_ids().file,
            groups,
        })
    })
}

fn has(capability: u32) -> bool {
    sys::capabilities().effective & 1 << capability != 0
}

/// May this process use the segment so? Of the flags any permission counts for all.
pub(super) fn allows(segment: &Segment, flags: u32) -> bool {
    let wanted = (flags >> 6 | flags >> 3 | flags) & 7;
    with_asker(|asker| wanted & !asker.granted(segment) == 0) || has(CAP_IPC_OWNER)
}

/// May it change or remove it?
pub(super) fn allows_change(segment: &Segment) -> bool {
    with_asker(|asker| asker.owns(segment)) || has(CAP_SYS_ADMIN)
}

/// May it lock and unlock it? `None` if there is no limit on how much.
pub(super) fn allows_lock(segment: &Segment) -> Option<bool> {
    if has(CAP_IPC_LOCK) {
        return None;
    }
    Some(with_asker(|asker| asker.owns(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment {
        piece: 0,
        size: 4096,
        times: [0; 3],
        id: 1,
        key: 0,
        mode: 0o742,
        owners: [1, 2, 3, 4],
        pids: [0; 2],
        attached: 0,
    };

    fn granted(user: u32, group: u32, groups: Option<&[u32]>) -> u32 {
        let asker = Asker {
            user,
            group,
            groups,
        };
        asker.granted(&SEGMENT)
    }

    #[test]
    fn owner_and_creator_have_the_first_digit() {
        assert_eq!([granted(1, 9, None), granted(3, 2, None)], [7, 7]);
    }

    #[test]
    fn members_of_a_group_have_the_second() {
        assert_eq!([granted(9, 2, Some(&[])), granted(9, 4, None)], [4, 4]);
        assert_eq!(granted(9, 9, Some(&[8, 4])), 4);
    }

    #[test]
    fn others_have_the_third_and_no_more_than_is_sure() {
        assert_eq!(granted(9, 9, Some(&[8])), 2);
        assert_eq!(granted(9, 9, None), 0);
    }
}
