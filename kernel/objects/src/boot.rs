//! The root task: the one program that the kernel itself starts.
//!
//! Object memory at the start: a page that stays free, so that no object has reference 0; the boot
//! image, from which the root task runs in place; its objects; and the rest, as untyped memory.
//! What the root task itself is made of has no capabilities and stays for ever.

use rcoe_abi::boot::{self, Word};
use rcoe_abi::image::{self, Words};
use rcoe_abi::object::{MIN_UNTYPED_BITS, PAGE, PAGE_BITS, SLOT_BITS, TCB_BITS};
use rcoe_abi::{ObjectType, Rights, layout};

use crate::arch::{IP, SP};
use crate::cap::Mapping;
use crate::field;
use crate::kernel::Kernel;
use crate::queue::PRIORITIES;
use crate::sphere::{IRQ_LINES, Sphere};
use crate::{Cap, Memory, Ref};

/// What the kernel is told at boot.
#[derive(Clone, Copy, Debug)]
pub struct BootInput<'a> {
    /// Bytes of the boot image, which lies at the second page of object memory.
    pub image_bytes: u64,
    /// The root task's command line.
    pub command: &'a [u8],
    /// The replica's number.
    pub replica: u64,
}

/// Where the image lies.
const IMAGE: Ref = Ref::from_units(128);
const _: () = assert!(IMAGE.bytes() == PAGE);

/// The image as the kernel finds it.
struct ImageWords<'a, 'm>(&'a Memory<'m>, usize);

impl Words for ImageWords<'_, '_> {
    fn word(&self, index: usize) -> Option<u64> {
        (index < self.1).then(|| self.0.get(IMAGE, index))
    }
}

/// Takes memory from the beginning on.
struct Bump {
    next: u64,
}

impl Bump {
    fn take(&mut self, bits: u32) -> Ref {
        let start = self.next.next_multiple_of(1 << bits);
        self.next = start + (1 << bits);
        Ref::from_bytes(start)
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// Makes the root task, and the first threads ready. Returns `None` if the image has no root
    /// task or memory is too small.
    #[must_use]
    pub fn boot(&mut self, input: &BootInput<'_>) -> Option<()> {
        let words = usize::try_from(input.image_bytes / 8).ok()?;
        let name = image::name_words(b"root")?;
        let program = image::find(&ImageWords(&self.mem, words), &name)?;
        let mut bump = Bump {
            next: (PAGE + input.image_bytes).next_multiple_of(PAGE),
        };
        // Far more than what follows takes.
        if bump.next + (4 << 20) > self.mem.bytes() {
            return None;
        }
        let cnode = self.allot(&mut bump, boot::ROOT_CNODE_BITS + SLOT_BITS);
        self.irqs = self.allot(&mut bump, IRQ_LINES.next_power_of_two().ilog2() + SLOT_BITS);
        let tcb = self.allot(&mut bump, TCB_BITS);
        self.begin(ObjectType::Tcb, 0, tcb);
        let root = self.allot(&mut bump, PAGE_BITS);
        let Cap::VSpace { obj, asid } = self.begin(ObjectType::VSpace, 0, root) else {
            return None;
        };
        for segment in program.segments {
            let rights = Rights::from_word(segment.rights);
            for page in 0..segment.pages {
                let frame = Ref::from_bytes(PAGE + (segment.first + page) * PAGE);
                let address = segment.address + page * PAGE;
                self.place_page(&mut bump, root, address, frame, rights);
            }
        }
        for page in 0..input.image_bytes.div_ceil(PAGE) {
            let frame = Ref::from_bytes(PAGE + page * PAGE);
            let address = layout::IMAGE + page * PAGE;
            self.place_page(&mut bump, root, address, frame, Rights::READ);
        }
        for page in 1..=layout::STACK_PAGES {
            let frame = self.allot(&mut bump, PAGE_BITS);
            let address = layout::STACK_TOP - page * PAGE;
            self.place_page(&mut bump, root, address, frame, Rights::READ_WRITE);
        }
        let buffer = self.allot(&mut bump, PAGE_BITS);
        self.place_page(
            &mut bump,
            root,
            layout::IPC_BUFFER,
            buffer,
            Rights::READ_WRITE,
        );
        let info = self.allot(&mut bump, PAGE_BITS);
        self.place_page(&mut bump, root, layout::BOOT_INFO, info, Rights::READ);
        self.root_caps(cnode, tcb, Cap::VSpace { obj, asid }, buffer);
        self.info = info;
        self.write_info(info, input);
        self.untyped(&bump, cnode, info);
        self.own(cnode, bump.next - cnode.bytes());
        self.set_register(tcb, IP, program.entry);
        self.set_register(tcb, SP, layout::STACK_TOP - 8);
        self.mem.set(tcb, field::PRIORITY, PRIORITIES - 1);
        self.make_ready(tcb);
        self.schedule();
        Some(())
    }

    fn allot(&mut self, bump: &mut Bump, bits: u32) -> Ref {
        let place = bump.take(bits);
        self.zero(place, bits);
        place
    }

    /// Maps a page, with the tables that this takes.
    fn place_page(&mut self, bump: &mut Bump, root: Ref, address: u64, frame: Ref, rights: Rights) {
        while let Ok(level) = self.missing_level(root, address) {
            let table = self.allot(bump, PAGE_BITS);
            self.map_table(root, address, level, table);
        }
        assert!(self.sphere.allows(rights), "no segment is writable code");
        self.map_frame(root, address, (frame, 0), rights);
    }

    fn root_caps(&mut self, cnode: Ref, tcb: Ref, vspace: Cap, buffer: Ref) {
        let slot = |index: u64| cnode.slot(u32::try_from(index).expect("a low slot"));
        let table = Cap::CNode {
            obj: cnode,
            bits: boot::ROOT_CNODE_BITS,
            guard_bits: crate::lookup::POINTER_BITS - boot::ROOT_CNODE_BITS,
            guard: 0,
        };
        let ports = Cap::Ports {
            first: 0,
            last: u16::MAX,
        };
        self.insert_first(slot(boot::SLOT_CNODE), table);
        self.insert_first(slot(boot::SLOT_VSPACE), vspace);
        self.insert_first(slot(boot::SLOT_TCB), Cap::Tcb { obj: tcb });
        self.insert_first(slot(boot::SLOT_IRQ_CONTROL), Cap::IrqControl);
        let devices = Cap::Devices {
            first: 0,
            last: u32::try_from(layout::DEVICE_PAGES - 1).expect("few pages"),
        };
        self.insert_first(slot(boot::SLOT_PORTS), ports);
        self.insert_first(slot(boot::SLOT_DEVICES), devices);
        self.insert_first(slot(boot::SLOT_TRACE), Cap::Trace);
        self.insert_derived(Self::cspace_slot(tcb), table, slot(boot::SLOT_CNODE));
        self.insert_derived(Self::vspace_slot(tcb), vspace, slot(boot::SLOT_VSPACE));
        let frame = Cap::Frame {
            obj: buffer,
            level: 0,
            rights: Rights::READ_WRITE,
            mapping: Mapping::default(),
        };
        self.insert_first(Self::buffer_slot(tcb), frame);
    }

    /// The root task of a copy is told whose copy it is.
    pub fn set_replica(&mut self, replica: u64) {
        self.mem.set(self.info, Word::ReplicaId as usize, replica);
    }

    fn write_info(&mut self, info: Ref, input: &BootInput<'_>) {
        let command = &input.command[..input.command.len().min(boot::COMMAND_MAX)];
        let words = [
            (Word::Magic, boot::MAGIC),
            (Word::ImageBytes, input.image_bytes),
            (Word::CommandBytes, command.len() as u64),
            (Word::ReplicaId, input.replica),
        ];
        for (word, value) in words {
            self.mem.set(info, word as usize, value);
        }
        for (index, chunk) in command.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let at = boot::COMMAND_LINE + index;
            self.mem.set(info, at, u64::from_le_bytes(word));
        }
    }

    /// The rest of memory, in the largest aligned pieces.
    fn untyped(&mut self, bump: &Bump, cnode: Ref, info: Ref) {
        let end = self.mem.bytes();
        self.given = bump.next;
        let mut next = bump.next.next_multiple_of(PAGE);
        let most = boot::SLOT_FREE - boot::SLOT_UNTYPED;
        let mut count = 0;
        while next + PAGE <= end && count < most {
            let bits = next.trailing_zeros().min((end - next).ilog2());
            assert!(bits >= MIN_UNTYPED_BITS);
            let slot = boot::SLOT_UNTYPED + count;
            let slot = cnode.slot(u32::try_from(slot).expect("a low slot"));
            let cap = Cap::Untyped {
                obj: Ref::from_bytes(next),
                bits,
                used: 0,
                clean: 0,
            };
            self.insert_first(slot, cap);
            let at = Word::UntypedBits as usize + usize::try_from(count).expect("few");
            self.mem.set(info, at, u64::from(bits));
            next += 1 << bits;
            count += 1;
        }
        self.mem.set(info, Word::UntypedCount as usize, count);
    }
}
