//! Tells where the program stands in this replica when replicas were found to differ.
//!
//! The entry saves the program's registers at one place, the upper end of the agent's stack, and
//! they stay there until the call is over. So nothing is noted while all is well.
//!
//! Contract: nothing here faults or changes anything, however broken this replica is. Registers of
//! which it is not certain that they are those of the present call are told as such: a clock is
//! read, and a fault handled, without that frame.
//!
//! Not covered: how the program came there is for the reader, who gets a piece of its stack.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

use rcoe_core::ReplicaSet;
use rcoe_linux_abi::scene::{
    PAUSE, RAX, REGISTERS, RIP, RSP, STACK_WORDS, STUB_CALL, STUB_RETURN, Scene,
};

use crate::arch::context;
use crate::arch::entry::{Cpu, TrapFrame, stack_range};
use crate::arch::frames::UContext;
use crate::memory::guest;
use crate::sys;
use crate::sys::polling::PPOLL;

/// Words of the stack that are copied at once.
const PIECE: usize = 64;

const _: () = assert!(size_of::<Cpu>() == REGISTERS * 8);
const _: () = assert!(STACK_WORDS.is_multiple_of(PIECE));

/// Tells, as a vote begins, where registers and the number of the call are found in whoever is
/// ended before it can leave its scene.
#[cold]
pub(crate) fn announce(scene: &Scene, call: &u64) {
    scene.frame.store(frame(), Relaxed);
    scene
        .asked
        .store(core::ptr::from_ref(call).addr() as u64, Relaxed);
}

/// Where the entry saves the program's registers.
fn frame() -> u64 {
    let frame = stack_range().1 - size_of::<TrapFrame>() as u64;
    frame + core::mem::offset_of!(TrapFrame, cpu) as u64
}

/// Leaves the scene of the call with this number, by a vote that removes these.
#[cold]
pub(crate) fn leave(scene: &Scene, call: u64, gone: ReplicaSet) {
    scene.gone.store(gone.bits().into(), Relaxed);
    let registers = note_registers(scene);
    // Threads that all wait do so in a call of the agent's own.
    let known = registers[RAX] == call || call == PPOLL;
    finish(scene, if known { registers[RAX] } else { call }, known);
}

/// Leaves the scene of the last call that was entered, for one that fails.
#[cold]
pub(crate) fn leave_unasked(scene: &Scene) {
    scene.gone.store(0, Relaxed);
    let registers = note_registers(scene);
    finish(scene, registers[RAX], true);
}

/// Stops for the debugger that traces this replica, and tells it where the program's registers are.
#[cold]
pub(crate) fn pause() {
    // SAFETY: the debugger that has asked for this takes the trap; nothing changes.
    unsafe { core::arch::asm!("int3", in("rdi") frame(), in("rsi") PAUSE, options(nostack)) };
}

/// Is it in [`pause`] that the agent was interrupted by a trap?
pub(crate) fn is_pause(context: &UContext) -> bool {
    let regs = context.machine.cpu().regs;
    regs.rsi == PAUSE && regs.rdi == frame() && guest::is_agent(context.machine.rip, 1)
}

/// Notes registers and stack.
fn note_registers(scene: &Scene) -> [u64; REGISTERS] {
    let cpu = frame();
    // SAFETY: as many words at the upper end of the agent's stack, which is never unmapped; the
    // entry writes them before anything of the agent runs for a call, and nobody else does now.
    let registers = unsafe { (cpu as *const [u64; REGISTERS]).read_volatile() };
    scene.frame.store(cpu, Relaxed);
    store(&scene.registers, &registers);
    store(&scene.bases, &context::bases());
    scene.behind.store(behind(registers[RIP]), Relaxed);
    note_stack(scene, registers[RSP]);
    registers
}

/// The call for which a stub stands that goes on here; a word without meaning if there is none.
fn behind(rip: u64) -> u64 {
    let mut word = [0; 8];
    let at = rip.wrapping_sub(STUB_RETURN).wrapping_add(STUB_CALL);
    sys::read_process(sys::getpid(), at, &mut word);
    u64::from_le_bytes(word)
}

/// Copies the stack as far as it goes, by the kernel, which finds out what can be read.
fn note_stack(scene: &Scene, from: u64) {
    let own = sys::getpid();
    let mut copied = 0;
    for cells in scene.stack.chunks(PIECE) {
        let mut bytes = [0; PIECE * 8];
        let read = sys::read_process(own, from.wrapping_add(copied * 8), &mut bytes);
        let (words, _) = bytes[..read.min(PIECE * 8)].as_chunks();
        for (cell, word) in cells.iter().zip(words) {
            cell.store(u64::from_le_bytes(*word), Relaxed);
        }
        copied += words.len() as u64;
        if words.len() < PIECE {
            break;
        }
    }
    scene
        .stack_len
        .store(u32::try_from(copied).unwrap_or(0), Relaxed);
}

fn store(cells: &[AtomicU64], words: &[u64]) {
    for (cell, &word) in cells.iter().zip(words) {
        cell.store(word, Relaxed);
    }
}

fn finish(scene: &Scene, call: u64, known: bool) {
    scene.call.store(call, Relaxed);
    scene.known.store(known.into(), Relaxed);
    let count = scene.count.load(Relaxed).wrapping_add(1);
    scene.count.store(count, Release);
}
