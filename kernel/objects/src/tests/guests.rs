//! Virtual processors: there are some where the processor has them, and nowhere else.

use rcoe_abi::{Error, Label, ObjectType, boot, guest};

use super::invariants::check;
use super::world::{FREE, memory, world};
use crate::arch;

const SPACE: u64 = FREE;
const THREAD: u64 = FREE + 10;

#[test]
fn a_guests_space_is_made_where_there_are_virtual_processors() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let wanted = [ObjectType::GuestSpace as u64, 0, boot::SLOT_CNODE, SPACE, 1];
    let (label, _) = kernel.ask(boot::SLOT_UNTYPED, Label::UntypedRetype, &wanted);
    let right = match arch::GUEST {
        Some(_) => 0,
        None => Error::InvalidArgument as u64,
    };
    assert_eq!(label, right);
    check(&mut kernel);
}

#[test]
fn a_thread_of_a_program_has_no_words_of_a_guest() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let thread = kernel.thread(THREAD, 63);
    let before = kernel.register(thread, arch::STATUS);
    let refused = Error::IllegalOperation as u64;
    assert_eq!(kernel.ask(THREAD, Label::TcbReadGuest, &[]).0, refused);
    let set = kernel.ask(THREAD, Label::TcbWriteGuest, &[1; guest::WORDS]);
    assert_eq!(set.0, refused);
    assert_eq!(kernel.register(thread, arch::STATUS), before);
    assert!(!kernel.runs_guest());
    check(&mut kernel);
}
