//! Invocations of kernel objects, as functions. A pointer is a slot number in the own table.

use rcoe_abi::{Error, Label, ObjectType, Rights, ThreadFlags, guest};

use crate::sys::{Received, call};

/// What an invocation came to.
pub type Outcome = Result<(), Error>;

fn invoke(pointer: u64, label: Label, words: &[u64]) -> Result<Received, Error> {
    let answer = call(pointer, label as u64, words);
    match answer.label {
        0 => Ok(answer),
        label => Err(Error::from_label(label).unwrap_or(Error::IllegalOperation)),
    }
}

fn done(result: Result<Received, Error>) -> Outcome {
    result.map(|_| ())
}

/// Makes `count` objects from untyped memory, into the slots of `table` from `first` on.
///
/// # Errors
/// The kernel's.
pub fn retype(
    untyped: u64,
    kind: ObjectType,
    bits: u32,
    table: u64,
    first: u64,
    count: u64,
) -> Outcome {
    let words = [kind as u64, u64::from(bits), table, first, count];
    done(invoke(untyped, Label::UntypedRetype, &words))
}

/// Copies a capability into slot `to` of `table`.
///
/// # Errors
/// The kernel's.
pub fn copy(table: u64, to: u64, from: u64, rights: Rights) -> Outcome {
    done(invoke(table, Label::CNodeCopy, &[to, from, rights.word()]))
}

/// As [`copy`], with a badge.
///
/// # Errors
/// The kernel's.
pub fn mint(table: u64, to: u64, from: u64, rights: Rights, badge: u64) -> Outcome {
    let words = [to, from, rights.word(), badge];
    done(invoke(table, Label::CNodeMint, &words))
}

/// Moves a capability.
///
/// # Errors
/// The kernel's.
pub fn move_to(table: u64, to: u64, from: u64) -> Outcome {
    done(invoke(table, Label::CNodeMove, &[to, from]))
}

/// Deletes the capability in a slot of `table`.
///
/// # Errors
/// The kernel's.
pub fn delete(table: u64, slot: u64) -> Outcome {
    done(invoke(table, Label::CNodeDelete, &[slot]))
}

/// Deletes all that was derived from the capability in a slot of `table`.
///
/// # Errors
/// The kernel's.
pub fn revoke(table: u64, slot: u64) -> Outcome {
    done(invoke(table, Label::CNodeRevoke, &[slot]))
}

/// Sets a thread's capability table, address space, IPC buffer and fault handler.
///
/// # Errors
/// The kernel's.
pub fn configure(tcb: u64, table: u64, space: u64, buffer: u64, handler: u64) -> Outcome {
    let words = [table, space, buffer, handler];
    done(invoke(tcb, Label::TcbConfigure, &words))
}

/// Sets a thread's capability table, of whose pointers the first `zeros` bits are zero: those that
/// follow are looked up in it, and what is left of them in what it holds there.
///
/// # Errors
/// The kernel's.
pub fn set_table(tcb: u64, table: u64, zeros: u64) -> Outcome {
    done(invoke(tcb, Label::TcbSetTable, &[table, zeros]))
}

/// Sets a thread's priority.
///
/// # Errors
/// The kernel's.
pub fn set_priority(tcb: u64, priority: u64) -> Outcome {
    done(invoke(tcb, Label::TcbSetPriority, &[priority]))
}

/// Says where a thread runs, with which arguments.
///
/// # Errors
/// The kernel's.
pub fn write_registers(tcb: u64, ip: u64, sp: u64, arguments: [u64; 2]) -> Outcome {
    let words = [ip, sp, arguments[0], arguments[1]];
    done(invoke(tcb, Label::TcbWriteRegisters, &words))
}

/// Says how a thread runs.
///
/// # Errors
/// The kernel's.
pub fn set_flags(tcb: u64, flags: ThreadFlags) -> Outcome {
    done(invoke(tcb, Label::TcbSetFlags, &[flags.word()]))
}

/// Says where a thread's own data is: the bases of FS and GS, or its one register and 0.
///
/// # Errors
/// The kernel's.
pub fn write_pointers(tcb: u64, pointers: [u64; 2]) -> Outcome {
    done(invoke(tcb, Label::TcbWritePointers, &pointers))
}

/// Stops a thread, whatever it waits for, and lets it run with these registers, which are all that
/// it has, in the order of the kernel's context.
///
/// # Errors
/// The kernel's.
pub fn write_context(tcb: u64, registers: &[u64]) -> Outcome {
    done(invoke(tcb, Label::TcbWriteContext, registers))
}

/// Copies floating-point state from another thread.
///
/// # Errors
/// The kernel's.
pub fn copy_floats(tcb: u64, from: u64) -> Outcome {
    done(invoke(tcb, Label::TcbCopyFloats, &[from]))
}

/// Reads floating-point state: as many words as there is room for.
///
/// # Errors
/// The kernel's.
pub fn read_floats(tcb: u64, floats: &mut [u64]) -> Outcome {
    let answer = invoke(tcb, Label::TcbReadFloats, &[])?;
    for (index, word) in floats.iter_mut().enumerate() {
        *word = answer.word(index);
    }
    Ok(())
}

/// Sets floating-point state: all its words.
///
/// # Errors
/// The kernel's; that of wrong arguments if there is no such state.
pub fn write_floats(tcb: u64, floats: &[u64]) -> Outcome {
    done(invoke(tcb, Label::TcbWriteFloats, floats))
}

/// Reads the words of a virtual processor ([`rcoe_abi::guest`]).
///
/// # Errors
/// The kernel's.
pub fn read_guest(tcb: u64, words: &mut [u64; guest::WORDS]) -> Outcome {
    let answer = invoke(tcb, Label::TcbReadGuest, &[])?;
    for (index, word) in words.iter_mut().enumerate() {
        *word = answer.word(index);
    }
    Ok(())
}

/// Sets them.
///
/// # Errors
/// The kernel's; that of wrong arguments if no processor can have them.
pub fn write_guest(tcb: u64, words: &[u64; guest::WORDS]) -> Outcome {
    done(invoke(tcb, Label::TcbWriteGuest, words))
}

/// Lets a thread run.
///
/// # Errors
/// The kernel's.
pub fn resume(tcb: u64) -> Outcome {
    done(invoke(tcb, Label::TcbResume, &[]))
}

/// Stops a thread.
///
/// # Errors
/// The kernel's.
pub fn suspend(tcb: u64) -> Outcome {
    done(invoke(tcb, Label::TcbSuspend, &[]))
}

/// Binds a notification to a thread.
///
/// # Errors
/// The kernel's.
pub fn bind(tcb: u64, notification: u64) -> Outcome {
    done(invoke(tcb, Label::TcbBindNotification, &[notification]))
}

/// Maps a frame.
///
/// # Errors
/// The kernel's.
pub fn map_frame(frame: u64, space: u64, address: u64, rights: Rights) -> Outcome {
    let words = [space, address, rights.word()];
    done(invoke(frame, Label::FrameMap, &words))
}

/// Unmaps a frame.
///
/// # Errors
/// The kernel's.
pub fn unmap_frame(frame: u64) -> Outcome {
    done(invoke(frame, Label::FrameUnmap, &[]))
}

/// Makes a page table part of an address space.
///
/// # Errors
/// The kernel's.
pub fn map_table(table: u64, space: u64, address: u64) -> Outcome {
    done(invoke(table, Label::TableMap, &[space, address]))
}

/// Takes a page table out of its address space, with all that is mapped in it.
///
/// # Errors
/// The kernel's.
pub fn unmap_table(table: u64) -> Outcome {
    done(invoke(table, Label::TableUnmap, &[]))
}

/// Makes the handler of an interrupt line in slot `to` of the own table.
///
/// # Errors
/// The kernel's.
pub fn irq_handler(control: u64, line: u64, to: u64) -> Outcome {
    done(invoke(control, Label::IrqControlGet, &[line, to]))
}

/// Says where an interrupt is signalled, and lets it through.
///
/// # Errors
/// The kernel's.
pub fn irq_notification(irq: u64, notification: u64) -> Outcome {
    done(invoke(irq, Label::IrqSetNotification, &[notification]))
}

/// Lets the next interrupt through.
///
/// # Errors
/// The kernel's.
pub fn irq_ack(irq: u64) -> Outcome {
    done(invoke(irq, Label::IrqAck, &[]))
}

/// Reads a port of `width` bytes that holds a status: reading it twice is as good as once.
///
/// # Errors
/// The kernel's.
pub fn port_status(ports: u64, port: u16, width: u64) -> Result<u64, Error> {
    let answer = invoke(ports, Label::PortIn, &[u64::from(port), width, 1])?;
    Ok(answer.words[0])
}

/// Reads a port of `width` bytes.
///
/// # Errors
/// The kernel's.
pub fn port_in(ports: u64, port: u16, width: u64) -> Result<u64, Error> {
    let answer = invoke(ports, Label::PortIn, &[u64::from(port), width])?;
    Ok(answer.words[0])
}

/// Writes a port of `width` bytes, once: should the primary be lost meanwhile, the run ends.
///
/// # Errors
/// The kernel's.
pub fn port_out(ports: u64, port: u16, width: u64, value: u64) -> Outcome {
    let words = [u64::from(port), width, value];
    done(invoke(ports, Label::PortOut, &words))
}

/// Writes a port of `width` bytes for which writing twice is as good as once: should the primary be
/// lost meanwhile, the next one writes it again.
///
/// # Errors
/// The kernel's.
pub fn port_set(ports: u64, port: u16, width: u64, value: u64) -> Outcome {
    let words = [u64::from(port), width, value, 1];
    done(invoke(ports, Label::PortOut, &words))
}

/// Writes up to sixteen bytes to one port.
///
/// # Errors
/// The kernel's.
pub fn port_out_bytes(ports: u64, port: u16, bytes: &[u8]) -> Outcome {
    let mut words = [u64::from(port), bytes.len() as u64, 0, 0];
    for (word, chunk) in words[2..].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(whole);
    }
    done(invoke(ports, Label::PortOutBytes, &words))
}

/// Reads a register of `width` bytes of a device. The answer is the same in all replicas.
///
/// # Errors
/// The kernel's.
pub fn device_read(device: u64, offset: u64, width: u64) -> Result<u64, Error> {
    let answer = invoke(device, Label::DeviceRead, &[offset, width])?;
    Ok(answer.words[0])
}

/// Reads a register that holds a status: reading it twice is as good as once.
///
/// # Errors
/// The kernel's.
pub fn device_status(device: u64, offset: u64, width: u64) -> Result<u64, Error> {
    let answer = invoke(device, Label::DeviceRead, &[offset, width, 1])?;
    Ok(answer.words[0])
}

/// Writes a register of `width` bytes of a device, once, after a vote: should the primary be lost
/// meanwhile, the run ends.
///
/// # Errors
/// The kernel's.
pub fn device_write(device: u64, offset: u64, width: u64, value: u64) -> Outcome {
    let words = [offset, width, value];
    done(invoke(device, Label::DeviceWrite, &words))
}

/// Writes a register for which writing twice is as good as once, or whose driver copes with it:
/// should the primary be lost meanwhile, the next one writes it again.
///
/// # Errors
/// The kernel's.
pub fn device_set(device: u64, offset: u64, width: u64, value: u64) -> Outcome {
    let words = [offset, width, value, 1];
    done(invoke(device, Label::DeviceWrite, &words))
}

/// Tells a device, by a register of eight bytes, where transfer memory is: `target`, counted as
/// `offset` is. The generation that is the answer tells which primary's that is. The next primary
/// may tell it where its own is, should this one be lost meanwhile.
///
/// # Errors
/// The kernel's.
pub fn device_address(device: u64, offset: u64, target: u64) -> Result<u64, Error> {
    let words = [offset, 8, target, 1];
    let answer = invoke(device, Label::DeviceWriteAddress, &words)?;
    Ok(answer.words[0])
}

/// As [`device_address`], by a register of four bytes.
///
/// # Errors
/// The kernel's.
pub fn device_address_short(device: u64, offset: u64, target: u64) -> Result<u64, Error> {
    let words = [offset, 4, target, 1];
    let answer = invoke(device, Label::DeviceWriteAddress, &words)?;
    Ok(answer.words[0])
}

/// Stores in transfer memory, at `offset`, where transfer memory is, as [`device_address`] tells
/// it: for a device that finds addresses there. Each replica stores that of its own.
///
/// # Errors
/// The kernel's.
pub fn store_address(device: u64, offset: u64, target: u64) -> Result<u64, Error> {
    device_address(device, offset, target)
}

/// Makes a capability to page `page` of device memory, counted from the capability's first, that
/// can be mapped, in slot `to` of the own table.
///
/// # Errors
/// The kernel's.
pub fn device_frame(device: u64, page: u64, to: u64) -> Outcome {
    done(invoke(device, Label::DeviceFrame, &[page, to]))
}

/// What replicas are told where they meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Another number after each change among the replicas.
    pub generation: u64,
    /// Is this replica the primary, which alone writes shared pages and sees registers? It is told
    /// each time, because it may be another one the next time. Nothing but what is in shared pages
    /// may depend on it: no system call, no output.
    pub writes: bool,
}

/// Meets the other replicas. The shared pages in the own address space are the present primary's
/// from here on, and hold all that it wrote before.
///
/// # Errors
/// The kernel's.
pub fn meet(shared: u64) -> Result<Meeting, Error> {
    let answer = invoke(shared, Label::SharedMeet, &[])?;
    Ok(Meeting {
        generation: answer.words[0],
        writes: answer.words[1] == 1,
    })
}

/// Copies bytes from `at` in a frame into transfer memory, for a device to fetch.
///
/// # Errors
/// The kernel's.
pub fn copy_out(device: u64, offset: u64, frame: u64, at: u64, bytes: u64) -> Outcome {
    let words = [offset, frame, at, bytes];
    done(invoke(device, Label::DeviceCopyOut, &words))
}

/// Copies what a device stored into transfer memory into a frame of all replicas, from its
/// beginning on. Tells whether the device was told of the present primary's transfer memory: if
/// not, it has to be told again.
///
/// # Errors
/// The kernel's.
pub fn copy_in(
    device: u64,
    offset: u64,
    frame: u64,
    bytes: u64,
    generation: u64,
) -> Result<bool, Error> {
    copy_in_at(device, offset, (frame, 0), bytes, generation)
}

/// As [`copy_in`], to a place in the frame.
///
/// # Errors
/// The kernel's.
pub fn copy_in_at(
    device: u64,
    offset: u64,
    (frame, at): (u64, u64),
    bytes: u64,
    generation: u64,
) -> Result<bool, Error> {
    let words = [offset, frame, at, bytes, generation];
    let answer = invoke(device, Label::DeviceCopyIn, &words)?;
    Ok(answer.words[0] == 1)
}
