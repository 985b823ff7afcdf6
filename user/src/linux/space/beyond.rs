//! Pages of files that are mapped to be shared, and places for those that a file does not have.

use rcoe_abi::Rights;

use super::{PROMISED, Page, STACK_TOP, Space, drop_page, share_page};
use crate::linux::Sparse;
use crate::linux::machine::{Machine, PAGE};

/// What stands for the alias of a page that its file does not have.
pub(super) const BEYOND: u16 = u16::MAX;

impl Space {
    /// Has a place for a page of a file, where nothing is. `None` if there is no room for it.
    pub(crate) fn reserve(store: &mut Sparse<'_>, page: u64, rights: Rights) -> Option<()> {
        let it = Page {
            frame: PROMISED,
            rights,
            alias: BEYOND,
            locked: false,
        };
        (store.get(page) == 0)
            .then(|| store.set(page, it.word()))
            .flatten()
    }

    /// Is there such a place at an address, and no page of the file?
    pub(crate) fn is_beyond(store: &Sparse<'_>, address: u64) -> bool {
        let page = Page::from_word(store.get(address / PAGE)).filter(|_| address < STACK_TOP);
        page.is_some_and(|it| it.alias == BEYOND)
    }

    /// The file has such a page by now: this frame, of which it has that alias.
    pub(crate) fn fill_in(
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        page: u64,
        (frame, own): (u32, u16),
    ) -> Option<()> {
        let place = Page::from_word(store.get(page)).filter(|it| it.alias == BEYOND)?;
        share_page(store, machine, page, (frame, place.rights, Some(own)))
    }

    /// The file has no such page any more.
    pub(crate) fn withdraw(store: &mut Sparse<'_>, machine: &mut impl Machine, page: u64) {
        let mapped = |it: &Page| it.frame != PROMISED && it.alias != 0;
        if let Some(it) = Page::from_word(store.get(page)).filter(mapped) {
            drop_page(machine, it);
            let place = Page {
                frame: PROMISED,
                alias: BEYOND,
                ..it
            };
            // There is room for what is there.
            let _ = store.set(page, place.word());
        }
    }
}
