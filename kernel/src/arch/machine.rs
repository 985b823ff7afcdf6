//! The replica's kernel: where it lies, how it is entered, and its address spaces.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use rcoe_core::primitive::AtomicU64 as Word;
use rcoe_core::{MAX_REPLICAS, Outbox, Port, Ports};
use rcoe_kernel_objects::arch::KERNEL_ENTRY;
use rcoe_kernel_objects::{Checksum, Memory, Ref, fpu_words};

use super::donate;
use super::loader::{COMMAND_MAX, MAGIC, Parameters};
use super::processor::layout::{COPY, OBJECTS, SHARED, SLICE, TABLES, WINDOW};
use super::processor::{cpu, guest, install, interrupts, tables, trap};
use crate::config::Probe;
use crate::machine::Machine;

/// The one machine of this partition.
struct Cell(UnsafeCell<MaybeUninit<Machine>>);

// SAFETY: one core runs in a partition, and the kernel is not entered while it runs.
unsafe impl Sync for Cell {}

static MACHINE: Cell = Cell(UnsafeCell::new(MaybeUninit::uninit()));
/// Is there a machine, and is nobody in it?
static FREE: AtomicBool = AtomicBool::new(false);

/// Where the statics are that each replica has its own of.
pub(super) fn own_statics() -> [Range<u64>; 4] {
    let start = &raw const MACHINE as u64;
    let machine = start..start + size_of_val(&MACHINE) as u64;
    let [marks, kept] = super::alike::own_statics();
    [machine, interrupts::own_statics(), marks, kept]
}

/// Runs the kernel. Entering it while it runs is a broken invariant.
pub(super) fn with_machine(run: impl FnOnce(&mut Machine)) {
    assert!(
        FREE.swap(false, Ordering::Relaxed),
        "the kernel is not re-entered"
    );
    // SAFETY: it was initialised before it became free, and nobody else is in it.
    run(unsafe { (*MACHINE.0.get()).assume_init_mut() });
    FREE.store(true, Ordering::Relaxed);
}

/// What the loader told this replica, and its command line.
pub(super) fn parameters() -> (Parameters, [u8; COMMAND_MAX as usize]) {
    // SAFETY: the loader wrote them at the beginning of object memory, which no object uses.
    let parameters = unsafe { (WINDOW as *const Parameters).read_volatile() };
    assert!(is_sound(&parameters), "this is a partition");
    let text = WINDOW + size_of::<Parameters>() as u64;
    // SAFETY: the command line follows, and has this much room in the page.
    let command = unsafe { (text as *const [u8; COMMAND_MAX as usize]).read() };
    (parameters, command)
}

/// A digest of what the loader told all replicas alike.
pub(crate) fn told_alike() -> u64 {
    let (parameters, command) = parameters();
    let mut sum = Checksum::default();
    sum.words(&[
        parameters.replicas,
        parameters.objects,
        parameters.image,
        parameters.cycles,
        parameters.timer,
        parameters.command,
        rcoe_kernel_objects::digest(&command),
    ]);
    sum.digest()
}

/// Are these a loader's, and do they lead to the page tables that it made?
fn is_sound(parameters: &Parameters) -> bool {
    let root = parameters.base.wrapping_add(TABLES);
    parameters.magic == MAGIC && parameters.root == root
}

/// All object memory. The first page belongs to the loader's parameters.
fn objects(parameters: &Parameters) -> Memory<'static> {
    // SAFETY: this partition's object memory, mapped for as long as the kernel runs; taken once.
    // Nobody refers to its first page through the slice, because nowhere has no words.
    Memory::new(unsafe {
        core::slice::from_raw_parts_mut(WINDOW as *mut u64, (parameters.objects / 8) as usize)
    })
}

/// Words of a results ring: half a slice.
const RING_WORDS: usize = (SLICE / 16) as usize;
const _: () = assert!(size_of::<Outbox>() as u64 <= SLICE / 2);

/// The published memory of all replicas.
fn ports(replicas: u64) -> Ports<'static> {
    let mut ports: Ports<'static> = [None; MAX_REPLICAS];
    for (replica, port) in ports.iter_mut().enumerate().take(replicas as usize) {
        let slice = SHARED + replica as u64 * SLICE;
        // SAFETY: slices are mapped for as long as the kernel runs; an outbox and a ring of atomics
        // are valid whatever bytes they hold. Of others' slices nothing is written.
        let (outbox, ring) = unsafe {
            (
                &*(slice as *const Outbox),
                core::slice::from_raw_parts((slice + SLICE / 2) as *const Word, RING_WORDS),
            )
        };
        *port = Some(Port { outbox, ring });
    }
    ports
}

/// A core's first Rust function in its partition.
#[unsafe(no_mangle)]
extern "C" fn partition_main() -> ! {
    let (parameters, command) = parameters();
    // SAFETY: once, in a fresh partition, with interrupts off.
    unsafe { install::install() };
    if donate::is_copy() {
        // SAFETY: the copy holds the donor's machine, complete, and nobody is in it.
        let machine = unsafe { (*MACHINE.0.get()).assume_init_mut() };
        let context = *machine.revive(&parameters);
        FREE.store(true, Ordering::Relaxed);
        trap::first_leave(&context)
    }
    let memory = objects(&parameters);
    let command = &command[..(parameters.command as usize).min(command.len())];
    let machine = Machine::new(&parameters, command, memory, ports(parameters.replicas));
    // SAFETY: nobody is in the machine before it is free.
    let machine = unsafe { (*MACHINE.0.get()).write(machine) };
    let context = *machine.start();
    FREE.store(true, Ordering::Relaxed);
    trap::first_leave(&context)
}

/// The entry of a root table in object memory that maps the kernel.
fn entry_of(root: u64) -> *mut u64 {
    (WINDOW + root + KERNEL_ENTRY as u64 * 8) as *mut u64
}

/// Does the root table at this place in object memory map the kernel?
fn maps_kernel(root: u64, kernel_entry: u64) -> bool {
    // SAFETY: object memory is mapped for as long as the kernel runs; a place outside of it, which
    // only a broken kernel comes to, faults.
    let entry = unsafe { entry_of(root).read_volatile() };
    entry & !tables::ACCESSED == kernel_entry
}

/// Where object memory begins physically, as the loader told.
fn told_base() -> u64 {
    let parameters = WINDOW as *const Parameters;
    // SAFETY: the loader's parameters stay where they are, in memory that no object uses.
    let base = unsafe { (&raw const (*parameters).base).read_volatile() };
    base.wrapping_add(OBJECTS)
}

/// Enters the address space with this root table, in object memory.
///
/// # Panics
/// If it does not map the kernel, or the kernel forgot how it is mapped or where object memory is:
/// entered all the same, the processor would reset, and with it the machine.
pub(crate) fn enter_space(base: u64, root: Ref, kernel_entry: u64) {
    // What is checked is the very number that is entered: it may have come out wrong.
    let physical = core::hint::black_box(base + root.bytes());
    if cpu::root_table() == physical {
        return;
    }
    let place = physical.wrapping_sub(told_base());
    if !place.is_multiple_of(4096) || !maps_kernel(place, kernel_entry) {
        // The present one may be no better.
        leave_objects();
        panic!("address space {root:?} does not map the kernel");
    }
    // SAFETY: it maps the kernel as all root tables do.
    unsafe { cpu::set_root_table(physical) };
}

/// Enters a guest's space with this root table, in object memory, as [`enter_space`] does a
/// program's; and with an interrupt pending or not.
pub(crate) fn enter_guest(base: u64, root: Ref, kernel_entry: u64, lines: u64) {
    let place = core::hint::black_box(base + root.bytes()).wrapping_sub(told_base());
    if !place.is_multiple_of(4096) || !maps_kernel(place, kernel_entry) {
        leave_objects();
        panic!("the guest's space {root:?} does not map the kernel");
    }
    // SAFETY: the root table is in object memory, as was seen to.
    let first = unsafe { ((WINDOW + place) as *const u64).read_volatile() };
    let own = told_base() - OBJECTS + TABLES;
    // SAFETY: the first entry of a guest's root table leads to its first table, and those are the
    // tables that the partition began with.
    unsafe { guest::enter(first, own, lines) };
}

/// Damages all root tables but the present one, where a test says so. Is there any?
pub(crate) fn damage_spaces(parameters: &Parameters) -> bool {
    let mut damaged = false;
    let present = cpu::root_table().wrapping_sub(objects_base(parameters));
    for root in (4096..parameters.objects).step_by(4096) {
        if root != present && maps_kernel(root, kernel_entry(parameters)) {
            // SAFETY: a page of object memory, whose entries nobody refers to meanwhile.
            unsafe { *entry_of(root) ^= 1 << 20 };
            damaged = true;
        }
    }
    damaged
}

/// Leaves whatever address space this core is in for the kernel's own: that of a replica that stops
/// may be overwritten by a copy of another.
pub(super) fn leave_objects() {
    // SAFETY: the loader's parameters stay where they are; they are checked before they are used.
    let parameters = unsafe { (WINDOW as *const Parameters).read_volatile() };
    if is_sound(&parameters) {
        // SAFETY: these are the tables that the partition began with.
        unsafe { cpu::leave_space(parameters.root) };
    }
}

/// Stops this core for good, where it can be called again once its memory holds a copy of another
/// replica.
pub(crate) fn retire() -> ! {
    leave_objects();
    declare_broken();
    cpu::retire()
}

/// Stores where a test says that no store may succeed.
pub(crate) fn wild_store(parameters: &Parameters, probe: Probe) {
    let sibling = (parameters.replica + 1) % parameters.replicas;
    let address = match probe {
        Probe::Sibling => SHARED + sibling * SLICE,
        Probe::Code => partition_main as *const () as u64,
        Probe::Window => COPY,
        Probe::Program => rcoe_abi::layout::STACK_TOP - 8,
        Probe::Astray | Probe::Late | Probe::Remains | Probe::Spaces | Probe::Off => return,
        Probe::Loop | Probe::Deaf | Probe::Shutdown | Probe::Halt | Probe::Sudden | Probe::Base => {
            return;
        }
        Probe::Stop | Probe::Refuse | Probe::Command | Probe::Exclude | Probe::Devices => return,
    };
    // SAFETY: none of these is writable for the kernel, so nothing is stored: the processor faults,
    // which ends this replica.
    unsafe { (address as *mut u64).write_volatile(0) };
}

/// Has this replica's core come to a halt?
pub(crate) fn is_retired(replica: u64) -> bool {
    let slice = SHARED + replica * SLICE;
    // SAFETY: slices are mapped for as long as the kernel runs, and an outbox is made of atomics.
    let outbox = unsafe { &*(slice as *const Outbox) };
    outbox.is_broken()
}

/// Enters the kernel's own address space.
///
/// # Panics
/// If this is not how the kernel is mapped.
pub(crate) fn enter_kernel_space(root: u64, kernel_entry: u64) {
    assert!(
        tables::kernel_entry(root) == kernel_entry,
        "the kernel's root table"
    );
    // SAFETY: these are the tables that the partition began with.
    unsafe { cpu::leave_space(root) };
}

/// The entry of root tables that maps the kernel.
#[must_use]
pub(crate) const fn kernel_entry(parameters: &Parameters) -> u64 {
    tables::kernel_entry(parameters.root)
}

/// Where object memory begins, physically.
#[must_use]
pub(crate) const fn objects_base(parameters: &Parameters) -> u64 {
    parameters.base + OBJECTS
}

/// Saves the floating-point state of the thread that the processor holds it for.
pub(crate) fn save_fpu(memory: &mut Memory<'_>, of: Ref) {
    let words = fpu_words(memory, of).as_mut_ptr();
    // SAFETY: saving and loading the same state changes nothing but its copy in memory.
    unsafe { cpu::exchange_fpu(Some(words), words) };
}

/// Loads the floating-point state of a thread.
pub(crate) fn load_fpu(memory: &mut Memory<'_>, of: Ref) {
    let words = fpu_words(memory, of).as_ptr();
    // SAFETY: it was saved there.
    unsafe { cpu::exchange_fpu(None, words) };
}

/// Exchanges the floating-point state of two threads.
pub(crate) fn switch_fpu(memory: &mut Memory<'_>, from: Option<Ref>, to: Ref) {
    let from = from.map(|tcb| fpu_words(memory, tcb).as_mut_ptr());
    let to = fpu_words(memory, to).as_ptr();
    // SAFETY: both lie in their threads at a multiple of 512 bytes, and hold what a thread is made
    // with or what was saved there.
    unsafe { cpu::exchange_fpu(from, to) };
}

/// Tells the others that this replica is broken, whatever it was doing.
pub(crate) fn declare_broken() {
    let slice = SHARED + u64::from(interrupts::id()) * SLICE;
    // SAFETY: the own slice is mapped for as long as the kernel runs, and an outbox is made of
    // atomics.
    unsafe { &*(slice as *const Outbox) }.declare_broken();
}

/// This core's number.
#[must_use]
pub(crate) fn core() -> u32 {
    interrupts::id()
}
