//! Starting programs of the boot image.

use rcoe_abi::image::{self, Program};
use rcoe_abi::object::{LARGE, PAGE};
use rcoe_abi::service::Device;
use rcoe_abi::{Error, ObjectType, Rights, boot as slots, layout, service};
use rcoe_user::{fill_scratch, object};

use crate::SENDER;
use crate::boot::Boot;
use crate::memory::Memory;

/// Most programs.
const PROGRAMS: usize = 32;

/// What a program is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The driver of the serial line.
    Serial,
    /// The driver of the timer.
    Timer,
    /// The driver of the device for exercises.
    Edu,
    /// A program that reads the event timer.
    Hpet,
    /// A program that has its primary read the event timer.
    Clock,
    /// The driver of the network card.
    Nic,
    /// The driver of the disk.
    Disk,
    /// The driver of the input.
    Input,
    /// The TCP/IP stack.
    Net,
    /// The personality of Linux.
    Linux,
    /// The monitor of a guest.
    Monitor,
    /// Any other.
    Program,
}

impl Role {
    const fn priority(self) -> u64 {
        match self {
            Self::Serial => 50,
            Self::Timer => 51,
            Self::Edu | Self::Nic | Self::Disk | Self::Input => 30,
            Self::Net => 25,
            Self::Hpet | Self::Clock | Self::Linux | Self::Monitor | Self::Program => 20,
        }
    }

    /// Pages of its stack.
    const fn stack_pages(self) -> u64 {
        match self {
            // Their tables stand there.
            Self::Net => 4 * layout::STACK_PAGES,
            Self::Linux => 24 * layout::STACK_PAGES,
            _ => layout::STACK_PAGES,
        }
    }

    const fn device(self) -> Device {
        match self {
            Self::Serial => layout::CONSOLE,
            Self::Timer => layout::TIMER,
            Self::Edu => layout::EDU,
            Self::Hpet => layout::HPET,
            Self::Net => layout::NET,
            Self::Nic => layout::NIC,
            Self::Disk => layout::DISK,
            Self::Input => layout::INPUT,
            Self::Clock | Self::Monitor => layout::CLOCK,
            Self::Linux => layout::LINUX,
            Self::Program => Device::NONE,
        }
    }

    /// What a program that somebody asks for is: drivers are known by name.
    pub(crate) fn of(name: &[u64; image::NAME_WORDS]) -> Self {
        let is = |known: &[u8]| image::name_words(known).as_ref() == Some(name);
        if is(b"edu") {
            Self::Edu
        } else if is(b"hpet") {
            Self::Hpet
        } else if is(b"clock") {
            Self::Clock
        } else if is(b"rtl8139") || is(b"virtio-net") {
            Self::Nic
        } else if is(b"virtio-blk") {
            Self::Disk
        } else if is(b"input") {
            Self::Input
        } else if is(b"net") {
            Self::Net
        } else if is(b"linux") {
            Self::Linux
        } else if is(b"monitor") {
            Self::Monitor
        } else {
            Self::Program
        }
    }
}

/// A program that was started.
#[derive(Clone, Copy, Default)]
struct Started {
    space: u64,
    heap: u64,
}

/// What starts programs.
pub(crate) struct Starter<'a> {
    boot: &'a Boot,
    memory: Memory,
    requests: u64,
    console: u64,
    timer: u64,
    peer: u64,
    /// A page table that is in no space yet.
    spare: Option<u64>,
    started: [Started; PROGRAMS],
    count: u64,
}

impl<'a> Starter<'a> {
    pub(crate) fn new(boot: &'a Boot) -> Result<Self, Error> {
        let mut memory = Memory::new(boot.untyped());
        let mut endpoint = || memory.make(ObjectType::Endpoint, 0);
        let [requests, console, timer, peer] = [endpoint()?, endpoint()?, endpoint()?, endpoint()?];
        // The root task is a client of the console too, and finds it where all do.
        object::copy(slots::SLOT_CNODE, service::SLOT_CONSOLE, console, SENDER)?;
        let mut starter = Self {
            boot,
            memory,
            requests,
            console,
            timer,
            peer,
            spare: None,
            started: [Started::default(); PROGRAMS],
            count: 0,
        };
        starter.tables(slots::SLOT_VSPACE, layout::SCRATCH)?;
        Ok(starter)
    }

    /// Where programs ask the root task.
    pub(crate) const fn requests(&self) -> u64 {
        self.requests
    }

    /// Starts a program; its number, from 1.
    pub(crate) fn start(
        &mut self,
        name: &[u64; image::NAME_WORDS],
        argument: u64,
        role: Role,
    ) -> Option<u64> {
        let program = image::find(self.boot.image, name)?;
        let number = usize::try_from(self.count).ok()?;
        if number >= PROGRAMS {
            return None;
        }
        let number = self.count + 1;
        self.build(&program, argument, role, number).ok()?;
        Some(number)
    }

    fn build(
        &mut self,
        program: &Program,
        argument: u64,
        role: Role,
        number: u64,
    ) -> Result<(), Error> {
        let space = self.memory.make(ObjectType::VSpace, 0)?;
        let table = self.memory.make(ObjectType::CNode, service::CNODE_BITS)?;
        let tcb = self.memory.make(ObjectType::Tcb, 0)?;
        self.load(program, space)?;
        let data = Rights::READ_WRITE;
        for page in 1..=role.stack_pages() {
            self.page(space, layout::STACK_TOP - page * PAGE, data, &[])?;
        }
        let buffer = self.page(space, layout::IPC_BUFFER, data, &[])?;
        self.grant(table, space, tcb, role, number)?;
        object::configure(tcb, table, space, buffer, service::SLOT_ROOT)?;
        object::set_priority(tcb, role.priority())?;
        let stack = layout::STACK_TOP - 16;
        object::write_registers(tcb, program.entry, stack, [argument, 0])?;
        self.started[usize::try_from(number - 1).unwrap_or_default()] = Started {
            space,
            heap: layout::HEAP,
        };
        self.count = number;
        object::resume(tcb)
    }

    fn load(&mut self, program: &Program, space: u64) -> Result<(), Error> {
        for segment in program.segments {
            for page in 0..segment.pages {
                let first = usize::try_from((segment.first + page) * PAGE / 8);
                let first = first.map_err(|_| Error::RangeError)?;
                let content = self.boot.image.get(first..first + 512);
                let content = content.ok_or(Error::RangeError)?;
                let rights = Rights::from_word(segment.rights);
                let address = segment.address + page * PAGE;
                self.page(space, address, rights, content)?;
            }
        }
        Ok(())
    }

    /// Maps a new page with this content; the slot of its frame.
    fn page(
        &mut self,
        space: u64,
        address: u64,
        rights: Rights,
        content: &[u64],
    ) -> Result<u64, Error> {
        let frame = self.memory.make(ObjectType::Frame, 0)?;
        if !content.is_empty() {
            let own = slots::SLOT_VSPACE;
            object::map_frame(frame, own, layout::SCRATCH, Rights::READ_WRITE)?;
            fill_scratch(content);
            object::unmap_frame(frame)?;
        }
        self.map(frame, space, address, rights)?;
        Ok(frame)
    }

    /// Maps a frame, with the page tables that are missing.
    fn map(&mut self, frame: u64, space: u64, address: u64, rights: Rights) -> object::Outcome {
        loop {
            match object::map_frame(frame, space, address, rights) {
                Err(Error::MissingTable) => self.table(space, address)?,
                other => return other,
            }
        }
    }

    /// Makes the page tables that are missing on the way to an address.
    fn tables(&mut self, space: u64, address: u64) -> Result<(), Error> {
        loop {
            match self.table(space, address) {
                Err(Error::DeleteFirst) => return Ok(()),
                other => other?,
            }
        }
    }

    /// Makes the first page table that is missing there.
    fn table(&mut self, space: u64, address: u64) -> Result<(), Error> {
        let table = match self.spare.take() {
            Some(table) => table,
            None => self.memory.make(ObjectType::PageTable, 0)?,
        };
        let mapped = object::map_table(table, space, address);
        if mapped.is_err() {
            self.spare = Some(table);
        }
        mapped
    }

    /// Gives a program what it begins with.
    fn grant(
        &mut self,
        table: u64,
        space: u64,
        tcb: u64,
        role: Role,
        number: u64,
    ) -> Result<(), Error> {
        let all = Rights::ALL;
        // Replies bring capabilities only to those who may grant.
        let asker = SENDER.or(Rights::GRANT);
        object::mint(table, service::SLOT_ROOT, self.requests, asker, number)?;
        object::copy(table, service::SLOT_TCB, tcb, all)?;
        object::copy(table, service::SLOT_CNODE, table, all)?;
        object::copy(table, service::SLOT_VSPACE, space, all)?;
        object::copy(table, service::SLOT_PEER, self.peer, all)?;
        let console = if role == Role::Serial { all } else { SENDER };
        object::copy(table, service::SLOT_CONSOLE, self.console, console)?;
        if !matches!(role, Role::Serial | Role::Timer) {
            object::copy(table, service::SLOT_TRACE, slots::SLOT_TRACE, all)?;
        }
        let timer = if role == Role::Timer { all } else { SENDER };
        object::copy(table, service::SLOT_TIMER, self.timer, timer)?;
        self.grant_device(table, role.device())
    }

    /// Gives a driver its device.
    fn grant_device(&mut self, table: u64, device: Device) -> Result<(), Error> {
        let Device { ports, pages, line } = device;
        let all = Rights::ALL;
        if let Some((first, count)) = ports {
            let range = u64::from(first) | u64::from(first + count - 1) << 16;
            object::mint(table, service::SLOT_PORTS, slots::SLOT_PORTS, all, range)?;
        }
        if let Some((first, last)) = pages {
            let range = first | last << 32;
            object::mint(table, service::SLOT_DEVICE, slots::SLOT_DEVICES, all, range)?;
        }
        line.map_or(Ok(()), |line| self.grant_interrupt(table, line))
    }

    fn grant_interrupt(&mut self, table: u64, line: u64) -> Result<(), Error> {
        let notification = self.memory.make(ObjectType::Notification, 0)?;
        let to = service::SLOT_NOTIFICATION;
        object::mint(table, to, notification, Rights::ALL, 1)?;
        let irq = self.memory.slot()?;
        object::irq_handler(slots::SLOT_IRQ_CONTROL, line, irq)?;
        object::move_to(table, service::SLOT_IRQ, irq)
    }

    /// The space of a program, and where its heap ends.
    fn of(&self, program: u64) -> Option<(usize, Started)> {
        let index = usize::try_from(program.checked_sub(1)?).ok()?;
        Some((index, *self.started.get(index)?))
    }

    /// A new object for a program, of so many bits where it has any size; the slot of its
    /// capability.
    pub(crate) fn give_object(&mut self, kind: u64, bits: u64) -> Option<u64> {
        let kind = ObjectType::from_number(kind)?;
        let given = [
            ObjectType::Untyped,
            ObjectType::Endpoint,
            ObjectType::Notification,
            ObjectType::Frame,
            ObjectType::Tcb,
            ObjectType::LargeFrame,
        ];
        let bits = match kind {
            ObjectType::Untyped => u32::try_from(bits).ok()?,
            _ => 0,
        };
        let made = given
            .contains(&kind)
            .then(|| self.memory.make_to_hand_out(kind, bits))?;
        made.ok()
    }

    /// Makes the page tables of a program's window for shared frames; where it begins.
    pub(crate) fn make_window(&mut self, program: u64) -> Option<u64> {
        let (_, Started { space, .. }) = self.of(program)?;
        let made = self.tables(space, layout::WINDOW);
        made.ok().map(|()| layout::WINDOW)
    }

    /// Maps zeroed memory for a program; where it begins.
    pub(crate) fn give_memory(&mut self, program: u64, pages: u64) -> Option<u64> {
        let (index, Started { space, heap }) = self.of(program)?;
        let bytes = pages.checked_mul(PAGE)?;
        let start = match bytes {
            LARGE.. => heap.next_multiple_of(LARGE),
            _ => heap,
        };
        let end = start.checked_add(bytes)?;
        let mut next = start;
        while next < end {
            match self.memory_at(space, next, end - next) {
                Ok(bytes) => next += bytes,
                Err(_) => break,
            }
        }
        // What is there of what cannot be had in full is lost.
        self.started[index].heap = next;
        (next == end).then_some(start)
    }

    /// Maps a zeroed frame of at most so many bytes; how many it has.
    fn memory_at(&mut self, space: u64, address: u64, most: u64) -> Result<u64, Error> {
        let data = Rights::READ_WRITE;
        let large = most >= LARGE && address.is_multiple_of(LARGE);
        if large && let Ok(frame) = self.memory.make(ObjectType::LargeFrame, 0) {
            self.map(frame, space, address, data)?;
            return Ok(LARGE);
        }
        self.page(space, address, data, &[])?;
        Ok(PAGE)
    }
}
