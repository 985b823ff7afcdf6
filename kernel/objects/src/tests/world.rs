//! A kernel in a vector of words, with a sphere that only counts, and calls as a program would make
//! them.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use rcoe_abi::image::{self, ENTRY_WORDS, HEADER_WORDS};
use rcoe_abi::{Label, MessageInfo, ObjectType, Rights, Syscall, boot, layout};
use rcoe_core::Compare;
use rcoe_core::portions::Kept;

use crate::arch::{CALL_BYTES, CAP, INFO, IP, MESSAGE, NUMBER};
use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{BootInput, Cap, Marks, Memory, Ref};

/// Where object memory is said to lie.
pub(super) const BASE: u64 = 0x4000_0000;

/// Words that no kernel entry exceeds: zeroing 64 KiB for 256 objects, each with its slot and what
/// it begins with; or ending what 256 slots hold.
pub(super) const MOST_WRITTEN: u64 = 8192 + 256 * 24;

/// Where a page is that holds zeros.
pub(super) const BLANK: u64 = 0x7000;

/// Where a page of device memory is said to lie: registers are the same for all.
pub(super) fn device_page(page: u32, owner: u64) -> u64 {
    let page = u64::from(page);
    let transfer = (layout::DMA_PAGE..layout::DMA_PAGE + layout::DMA_PAGES).contains(&page);
    if transfer {
        (1 + owner) << 24 | page << 12
    } else {
        1 << 36 | page << 12
    }
}

/// A sphere of one.
#[derive(Debug, Default)]
pub(super) struct Alone {
    pub(super) digest: u64,
    pub(super) events: u64,
    pub(super) votes: u64,
    pub(super) output: Vec<u8>,
    pub(super) unhandled: u64,
    /// What was written into device memory.
    pub(super) written: Vec<(u64, u64)>,
    /// Of each write that may be, whether it is repeatable.
    pub(super) repeatable: Vec<bool>,
    pub(super) generation: u64,
    pub(super) primary: u64,
    pub(super) own: u64,
    pub(super) flushes: u64,
    pub(super) compare: Option<Compare>,
    /// Whose state the processor was to save and to load.
    pub(super) switched: Vec<(Option<Ref>, Ref)>,
    /// How far behind [`BASE`] object memory lies.
    pub(super) shift: u64,
}

impl Sphere for Alone {
    fn compare(&self) -> Compare {
        self.compare.unwrap_or(Compare::Args)
    }
    fn event(&mut self, kind: u32, value: u64) {
        self.events += 1;
        self.digest = rcoe_core::mix(self.digest ^ value ^ rcoe_core::mix(kind.into()));
    }
    fn vote(&mut self) {
        self.votes += 1;
    }
    fn port_in(&mut self, port: u16, _width: u8, _repeatable: bool) -> u32 {
        u32::from(port)
    }
    fn port_out(&mut self, _port: u16, _width: u8, value: u32, repeatable: bool) {
        self.repeatable.push(repeatable);
        self.output.push(value.to_le_bytes()[0]);
    }
    fn port_out_bytes(&mut self, _port: u16, bytes: &[u8]) {
        self.output.extend(bytes);
    }
    fn device_read(&mut self, place: u64, _width: u8, _repeatable: bool) -> u64 {
        place
    }
    fn device_write(&mut self, place: u64, _width: u8, value: u64, repeatable: bool) {
        self.repeatable.push(repeatable);
        self.written.push((place, value));
    }
    fn device_write_address(&mut self, place: u64, _width: u8, target: u64, repeatable: bool) {
        self.repeatable.push(repeatable);
        self.written.push((place, target));
    }
    fn store_address(&mut self, place: u64, target: u64) {
        self.written.push((place, target));
    }
    fn generation(&self) -> u64 {
        self.generation
    }
    fn copy_out(&mut self, place: u64, words: &[u64]) {
        let pairs = (place..).step_by(8).zip(words);
        self.written
            .extend(pairs.map(|(place, &word)| (place, word)));
    }
    fn copy_in(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool {
        if generation == self.generation {
            words.fill(place);
        }
        generation == self.generation
    }
    fn primary(&self) -> u64 {
        self.primary
    }
    fn own(&self) -> u64 {
        self.own
    }
    fn device_page(&self, page: u32, owner: u64) -> u64 {
        device_page(page, owner)
    }
    fn blank_page(&self) -> u64 {
        BLANK
    }
    fn irq_enable(&mut self, _line: u32, _enabled: bool) {}
    fn flush(&mut self) {
        self.flushes += 1;
    }
    fn leave_space(&mut self) {}
    fn kernel_entry(&self) -> u64 {
        0x1003 + self.shift
    }
    fn base(&self) -> u64 {
        BASE + self.shift
    }
    fn switch_fpu(&mut self, _memory: &mut Memory<'_>, from: Option<Ref>, to: Ref) {
        self.switched.push((from, to));
    }
    fn unhandled(&mut self, _thread: Ref) {
        self.unhandled += 1;
    }
}

/// A boot image with a root task of one page.
fn boot_image() -> Vec<u64> {
    let mut words = vec![0; 1024];
    words[..3].copy_from_slice(&[image::MAGIC, 1, 2]);
    let at = HEADER_WORDS;
    words[at..at + 4].copy_from_slice(&image::name_words(b"root").unwrap());
    words[at + 4] = layout::PROGRAM_BASE;
    words[at + 5..at + 9].copy_from_slice(&[layout::PROGRAM_BASE, 1, 5, 1]);
    assert!(at + 9 < HEADER_WORDS + ENTRY_WORDS);
    words
}

/// Words of memory for a world: 8 MiB.
pub(super) fn memory() -> Vec<u64> {
    vec![0; 1 << 20]
}

/// A booted kernel in this memory.
pub(super) fn world(words: &mut [u64]) -> Kernel<'_, Alone> {
    world_at(words, 0)
}

/// A booted kernel of replica `replica`, whose memory lies elsewhere.
pub(super) fn world_at(words: &mut [u64], replica: u64) -> Kernel<'_, Alone> {
    let image = boot_image();
    words[512..512 + image.len()].copy_from_slice(&image);
    let sets = words.len().div_ceil(256).div_ceil(64);
    let kept = Kept::new(vec![0; 3 * sets].leak());
    let mut kernel = Kernel::new(Memory::new(words), kept, Alone::default());
    kernel.sphere.shift = replica << 25;
    kernel.sphere.own = replica;
    let input = BootInput {
        image_bytes: image.len() as u64 * 8,
        command: b"hello 7",
        replica,
    };
    kernel.boot(&input).expect("a root task");
    kernel
}

/// First slot that tests may fill.
pub(super) const FREE: u64 = boot::SLOT_FREE;

impl Kernel<'_, Alone> {
    /// The running thread makes a system call; label and first word of what it learns.
    pub(super) fn act(&mut self, number: Syscall, pointer: u64, label: u64, words: &[u64]) -> Ref {
        let tcb = self.current().expect("somebody runs");
        self.set_register(tcb, NUMBER, number as u64);
        self.set_register(tcb, CAP, pointer);
        self.set_register(tcb, INFO, MessageInfo::new(label, words.len()).word());
        for (index, &word) in words.iter().enumerate() {
            self.set_word(tcb, index, word);
        }
        self.enter(tcb);
        tcb
    }

    /// The running thread's system call, made again as often as the kernel asks for, unless
    /// somebody else runs meanwhile.
    pub(super) fn enter(&mut self, tcb: Ref) {
        while self.enter_once(tcb) && self.current() == Some(tcb) {}
    }

    /// One entry of the running thread; tells whether it is to make its call again. The processor
    /// has its instruction pointer behind the call's instruction.
    pub(super) fn enter_once(&mut self, tcb: Ref) -> bool {
        let behind = self.register(tcb, IP).wrapping_add(CALL_BYTES);
        self.set_register(tcb, IP, behind);
        let before = self.mem.written;
        self.syscall();
        let written = self.mem.written - before;
        assert!(written <= MOST_WRITTEN, "{written} words in one entry");
        self.schedule();
        self.register(tcb, IP) != behind
    }

    /// An invocation by the running thread: label of the answer and its first word.
    pub(super) fn ask(&mut self, pointer: u64, label: Label, words: &[u64]) -> (u64, u64) {
        let tcb = self.act(Syscall::Call, pointer, label as u64, words);
        self.heard(tcb)
    }

    /// What a thread's registers say: label and first word.
    pub(super) fn heard(&self, tcb: Ref) -> (u64, u64) {
        (self.info(tcb).label(), self.register(tcb, MESSAGE[0]))
    }

    /// Makes objects in slots of the root task.
    pub(super) fn make(&mut self, kind: ObjectType, bits: u64, slot: u64, count: u64) -> u64 {
        // The largest untyped memory comes last but for scraps.
        for untyped in (boot::SLOT_UNTYPED..boot::SLOT_FREE).rev() {
            let words = [kind as u64, bits, boot::SLOT_CNODE, slot, count];
            let (label, _) = self.ask(untyped, Label::UntypedRetype, &words);
            if label == 0 {
                return untyped;
            }
        }
        panic!("no memory for {kind:?}");
    }

    /// Makes an object of the largest untyped memory in slot `slot` of a table.
    pub(super) fn make_in(&mut self, kind: ObjectType, table: u64, slot: u64) -> u64 {
        let spare = FREE + 500;
        let untyped = self.make(ObjectType::Untyped, 16, spare, 1);
        assert_ne!(untyped, 0);
        let words = [kind as u64, 0, table, slot, 1];
        self.ask(spare, Label::UntypedRetype, &words).0
    }

    /// The digest of what replicas hold alike.
    pub(super) fn digest(&self) -> u64 {
        self.alike(&mut Box::new(Marks::new()))
    }

    /// The capability in a slot of the root task.
    pub(super) fn root_cap(&self, slot: u64) -> Cap {
        let tcb = self.current().expect("the root task runs");
        self.cap(self.lookup(tcb, slot).expect("a slot"))
    }

    /// A second thread in the root task's own spaces, with its buffer, at `slot` and the next one.
    pub(super) fn thread(&mut self, slot: u64, priority: u64) -> Ref {
        self.make(ObjectType::Tcb, 0, slot, 1);
        self.make(ObjectType::Frame, 0, slot + 1, 1);
        let words = [boot::SLOT_CNODE, boot::SLOT_VSPACE, slot + 1, FREE + 900];
        assert_eq!(self.ask(slot, Label::TcbConfigure, &words).0, 0);
        assert_eq!(self.ask(slot, Label::TcbSetPriority, &[priority]).0, 0);
        match self.root_cap(slot) {
            Cap::Tcb { obj } => obj,
            other => panic!("{other:?} is no thread"),
        }
    }

    /// An endpoint copy with rights and badge.
    pub(super) fn mint(&mut self, to: u64, from: u64, rights: Rights, badge: u64) -> u64 {
        let words = [to, from, rights.word(), badge];
        self.ask(boot::SLOT_CNODE, Label::CNodeMint, &words).0
    }
}
