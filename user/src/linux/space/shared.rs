//! Pages that processes share: each has the same frame, mapped for it by an alias of its own.

use linux_raw_sys::errno::{EACCES, EINVAL, ENOMEM};
use rcoe_abi::Rights;

use super::{BEYOND, Page, Range, STACK_TOP, Space};
use crate::linux::machine::{Machine, PAGE};
use crate::linux::{Errno, Sparse};

impl Space {
    /// Maps new zeroed pages where none are, which children will share; all or nothing.
    pub(crate) fn share(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
        rights: Rights,
    ) -> Result<(), Errno> {
        Self::add_each(store, machine, range, |store, machine, page| {
            add_shared(store, machine, page, rights)
        })
    }

    /// Is any of these pages shared?
    pub(crate) fn has_shared(store: &Sparse<'_>, range: Range) -> bool {
        let mut pages = range
            .pages()
            .filter_map(|it| Page::from_word(store.get(it)));
        pages.any(|it| it.alias != 0)
    }

    /// The alias of the page at an address, if it is shared.
    pub(crate) fn alias_at(store: &Sparse<'_>, address: u64) -> Option<u16> {
        let page = Page::from_word(store.get(address / PAGE)).filter(|_| address < STACK_TOP);
        page.map(|it| it.alias)
            .filter(|&alias| ![0, BEYOND].contains(&alias))
    }

    /// Makes pages zero for all that share them, if all are shared and may be written.
    pub(crate) fn punch(
        store: &Sparse<'_>,
        machine: &mut impl Machine,
        range: Range,
    ) -> Result<(), Errno> {
        for page in range.pages() {
            let page = Page::from_word(store.get(page)).ok_or(Errno(ENOMEM))?;
            match page.alias {
                0 => return Err(Errno(EINVAL)),
                BEYOND => {}
                _ if !page.rights.contains(Rights::WRITE) => return Err(Errno(EACCES)),
                _ => machine.write(page.frame, 0, &[0; 4096]),
            }
        }
        Ok(())
    }
}

/// Has a page be one that is shared: with an alias, or with nobody yet.
pub(super) fn share_page(
    store: &mut Sparse<'_>,
    machine: &mut impl Machine,
    page: u64,
    (frame, rights, like): (u32, Rights, Option<u16>),
) -> Option<()> {
    let alias = machine.share(frame, like)?;
    let it = Page {
        frame,
        rights,
        alias,
        locked: false,
    };
    let mapped = rights == Rights::NONE || machine.map(it.mapped(), page * PAGE, rights);
    let kept = mapped.then(|| store.set(page, it.word())).flatten();
    if kept.is_none() {
        machine.unmap(it.mapped());
        machine.unshare(alias);
    }
    kept
}

/// A new page that is shared with nobody yet.
fn add_shared(
    store: &mut Sparse<'_>,
    machine: &mut impl Machine,
    page: u64,
    rights: Rights,
) -> Option<()> {
    if store.get(page) != 0 {
        return None;
    }
    let frame = machine.take()?;
    let shared = share_page(store, machine, page, (frame, rights, None));
    if shared.is_none() {
        machine.give_back(frame);
    }
    shared
}
