//! Runs a piece of code with all registers of its own, until it comes to its end or to the landing.

use core::arch::global_asm;
use core::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linux_raw_sys::general::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::arch::cpuid;
use crate::convert::size;
use crate::coupling::emit::Code;
use crate::coupling::patch::{self, Patch, Protection};
use crate::coupling::place::{Surroundings, Window, window};
use crate::coupling::state::{Extended, General, Layout};
use crate::coupling::stub::{AREA, Data, Stops, Stub, Wanted};
use crate::memory::nearby::map_area;
use crate::one_thread::OneThread;
use crate::sys;

/// The registers of the code under test.
#[repr(C, align(64))]
pub(super) struct Machine {
    pub(super) general: General,
    host_stack: u64,
    /// Not 0: it came to its end.
    ended: u64,
    pub(super) extended: Extended,
}

#[unsafe(no_mangle)]
static RCOE_TEST_MACHINE: OneThread<Machine> = OneThread::new(Machine {
    general: General {
        registers: [0; 16],
        rip: 0,
        flags: 0x202,
        bases: [0; 2],
    },
    host_stack: 0,
    ended: 0,
    extended: Extended::EMPTY,
});

global_asm!(
    r#"
    .globl rcoe_test_run
rcoe_test_run:
    .irp name, rbx, rbp, r12, r13, r14, r15
    push \name
    .endr
    mov qword ptr [rip + RCOE_TEST_MACHINE + {host}], rsp
    mov eax, -1
    mov edx, -1
    xrstor64 [rip + RCOE_TEST_MACHINE + {extended}]
    push qword ptr [rip + RCOE_TEST_MACHINE + {flags}]
    popfq
    .set index, 0
    .irp name, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
    mov \name, qword ptr [rip + RCOE_TEST_MACHINE + 8*index]
    .set index, index + 1
    .endr
    jmp qword ptr [rip + RCOE_TEST_MACHINE + {rip_at}]

    .globl rcoe_test_end
rcoe_test_end:
    mov qword ptr [rip + RCOE_TEST_MACHINE + {ended}], 1
    .globl rcoe_test_landing
rcoe_test_landing:
    .set index, 0
    .irp name, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
    mov qword ptr [rip + RCOE_TEST_MACHINE + 8*index], \name
    .set index, index + 1
    .endr
    mov rsp, qword ptr [rip + RCOE_TEST_MACHINE + {host}]
    pushfq
    pop qword ptr [rip + RCOE_TEST_MACHINE + {flags}]
    push 0x202
    popfq
    mov eax, -1
    mov edx, -1
    xsave64 [rip + RCOE_TEST_MACHINE + {extended}]
    .irp name, r15, r14, r13, r12, rbp, rbx
    pop \name
    .endr
    ret
    "#,
    host = const offset_of!(Machine, host_stack),
    extended = const offset_of!(Machine, extended),
    flags = const offset_of!(Machine, general) + offset_of!(General, flags),
    rip_at = const offset_of!(Machine, general) + offset_of!(General, rip),
    ended = const offset_of!(Machine, ended),
);

unsafe extern "C" {
    fn rcoe_test_run();
    fn rcoe_test_end();
    fn rcoe_test_landing();
}

/// Where a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    ToItsEnd,
    ToTheLanding,
}

/// Bytes of code, and of data with a stack at their end.
const BYTES: u64 = 64 << 10;
/// Where the program begins in its code.
const BEGIN: u64 = 1 << 12;
/// How the code is mapped.
pub(super) const CODE: Protection = Protection {
    bits: PROT_READ | PROT_EXEC,
    is_private: true,
};

/// A program, its memory, and a stub.
pub(super) struct Fixture {
    _alone: MutexGuard<'static, ()>,
    pub(super) text: u64,
    pub(super) memory: u64,
    area: u64,
    pub(super) data: Box<Data>,
    pub(super) patch: Patch,
    pub(super) layout: Layout,
}

fn map(prot: u32) -> u64 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    unsafe { sys::mmap(0, BYTES, prot, flags, -1, 0) }.expect("memory")
}

impl Fixture {
    /// With this code, followed by a jump to the end.
    pub(super) fn new(program: &[u8]) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, memory) = (map(PROT_READ | PROT_EXEC), map(PROT_READ | PROT_WRITE));
        let mut code = vec![0x90; size(BYTES)];
        let (begin, end) = (size(BEGIN), size(BEGIN) + program.len());
        code[begin..end].copy_from_slice(program);
        // The address stands far away, where it cannot look like a branch to the program.
        let slot = size(BYTES - 64);
        code[end..end + 2].copy_from_slice(&[0xff, 0x25]);
        let displacement = u32::try_from(slot - end - 6).expect("near");
        code[end + 2..end + 6].copy_from_slice(&displacement.to_le_bytes());
        code[slot..slot + 8].copy_from_slice(&(rcoe_test_end as *const () as u64).to_le_bytes());
        patch::write(text, &code, CODE).expect("code can be written");
        Self {
            _alone: alone,
            text,
            memory,
            area: map_area(text, AREA).expect("room near the code"),
            data: Box::new(Data::ZERO),
            patch: Patch::NONE,
            layout: Layout::measure(cpuid::machine),
        }
    }

    /// Where an instruction of the program is.
    pub(super) fn at(&self, offset: usize) -> u64 {
        self.text + BEGIN + offset as u64
    }

    pub(super) fn around(&self) -> Surroundings<'static> {
        Surroundings {
            code: self.text..self.text + BYTES,
            others: &[],
            made: None,
            changes: None,
        }
    }

    pub(super) fn window(&self, offset: usize) -> Window {
        window(self.at(offset), &self.around()).expect("a window")
    }

    /// The program's memory as words.
    pub(super) fn words(&mut self) -> &mut [u64] {
        // SAFETY: mapped, and nobody uses it while the program does not run.
        unsafe { core::slice::from_raw_parts_mut(self.memory as *mut u64, size(BYTES / 8)) }
    }

    /// Begins anew: memory of words that are all different, registers likewise.
    pub(super) fn start(&mut self) {
        for (index, word) in self.words().iter_mut().enumerate() {
            *word = 0x1111_0000_0000 + index as u64;
        }
        let (text, memory) = (self.at(0), self.memory);
        let machine = machine();
        for (index, register) in machine.general.registers.iter_mut().enumerate() {
            *register = 0x5555_0000 + index as u64;
        }
        machine.general.registers[4] = memory + BYTES - 1024;
        machine.general.registers[7] = memory;
        machine.general.rip = text;
        machine.general.flags = 0x202;
        let image = machine.extended.room();
        image.fill(0);
        image[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        image[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
    }

    /// Puts a stub there that stops whoever has what is wanted, or everybody.
    pub(super) fn put_in(&mut self, window: &Window, wanted: Option<&Wanted<'_>>) -> Stub {
        self.put(window, wanted.map_or(Stops::First, Stops::At))
    }

    /// Puts a stub there.
    pub(super) fn put(&mut self, window: &Window, stops: Stops<'_>) -> Stub {
        let landing = rcoe_test_landing as *const () as u64;
        let mut code = Code::new();
        let stub = Stub::new(self.area, window, stops, &mut self.data, landing, &mut code);
        let stub = stub.expect("a stub");
        patch::write(self.area, code.bytes(), CODE).expect("room for it");
        self.patch.put_in(window, stub.at, CODE).expect("patched");
        stub
    }

    pub(super) fn take_out(&mut self) {
        self.patch.take_out(CODE).expect("taken out");
    }

    /// Goes on from where the machine is.
    pub(super) fn run(&mut self) -> Came {
        let machine = machine();
        machine.ended = 0;
        // SAFETY: the code of a test, which uses its own memory and comes back at its end.
        unsafe { rcoe_test_run() };
        let machine = self::machine();
        if machine.ended != 0 {
            Came::ToItsEnd
        } else {
            Came::ToTheLanding
        }
    }

    /// Registers, extended state and memory.
    pub(super) fn state(&mut self) -> (General, Vec<u8>, Vec<u64>) {
        let mut image = machine().extended.image(&self.layout).to_vec();
        self.layout.normalise(&mut image);
        (machine().general, image, self.words().to_vec())
    }

    /// The states at the first visits to the window in a run from the start.
    pub(super) fn visits(&mut self, window: &Window, most: usize) -> Vec<(General, Vec<u8>)> {
        self.start();
        let stub = self.put_in(window, None);
        let mut states = Vec::new();
        while states.len() < most && self.run() == Came::ToTheLanding {
            machine().general.rip = window.at;
            let (general, image, _) = self.state();
            states.push((general, image));
            machine().general.rip = stub.past();
        }
        self.take_out();
        states
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for (start, len) in [(self.text, BYTES), (self.memory, BYTES), (self.area, AREA)] {
            // SAFETY: the fixture's own, and nobody uses it any more.
            unsafe { sys::munmap(start, len) }.expect("mapped until now");
        }
    }
}

/// Gives this thread a stack for handlers, for good.
pub(super) fn signal_stack() {
    let stack = vec![0_u8; 128 << 10].leak();
    sys::set_signal_stack(stack.as_ptr() as u64, stack.len() as u64);
}

/// The machine; one test at a time has it.
pub(super) fn machine() -> &'static mut Machine {
    // SAFETY: used under the fixture's lock only, and no reference is kept over a run.
    unsafe { &mut *RCOE_TEST_MACHINE.get() }
}
