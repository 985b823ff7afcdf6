//! The root task: starts the drivers and the program that the command line names, serves its
//! requests, and switches the machine off when it ends.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod boot;
mod memory;

mod start;
mod tables;

use rcoe_abi::image::name_words;
use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::{Rights, boot as slots, layout, service};
use rcoe_user::{Received, object, println, recv, reply_recv, reply_recv_with};

use crate::boot::Boot;
use crate::start::{Role, Starter};

rcoe_user::program!(main);

/// Status of a program that is not in the image.
const NOT_FOUND: u64 = 127;
/// Status of a program that faulted.
const FAULTED: u64 = 139;

/// Label of the answer to a request that cannot be met.
const REFUSED: u64 = 1;

fn main(_argument: u64) -> u64 {
    let boot = Boot::read();
    let mut starter = Starter::new(&boot).expect("there is memory at the start");
    for (name, role) in [("serial", Role::Serial), ("timer", Role::Timer)] {
        let words = name_words(name.as_bytes());
        let started = words.and_then(|words| starter.start(&words, 0, role));
        assert!(started.is_some(), "the driver {name} starts");
    }
    let (name, len, argument) = boot.command();
    let words = name_words(&name[..len]);
    let program = words.and_then(|words| starter.start(&words, argument, Role::of(&words)));
    let Some(program) = program else {
        let name = core::str::from_utf8(&name[..len]).unwrap_or("of that name");
        println!("rcoe: cannot start {name}: it is not in the boot image, or too large");
        off(NOT_FOUND);
    };
    let status = serve(&mut starter, program);
    off(status)
}

/// Serves requests until the program ends; returns its status.
fn serve(starter: &mut Starter<'_>, program: u64) -> u64 {
    let mut message = recv(starter.requests());
    loop {
        let status = match message.label {
            service::ROOT_EXIT => Some(message.words[0]),
            service::ROOT_SPAWN | service::ROOT_MAP | service::ROOT_MAKE | service::ROOT_WINDOW => {
                None
            }
            _ => Some(report(&message)),
        };
        if let Some(status) = status {
            if message.badge == program {
                return status;
            }
            // Any other program just ends: nobody answers it.
            message = recv(starter.requests());
            continue;
        }
        let answer = request(starter, &message);
        let requests = starter.requests();
        message = match answer {
            Some(Answer::Word(word)) => reply_recv(requests, 0, &[word]),
            Some(Answer::Capability(slot)) => reply_recv_with(requests, 0, &[], &[slot]),
            None => reply_recv(requests, REFUSED, &[]),
        };
    }
}

/// What a request is answered with.
enum Answer {
    Word(u64),
    /// The capability in this slot.
    Capability(u64),
}

fn request(starter: &mut Starter<'_>, message: &Received) -> Option<Answer> {
    match message.label {
        service::ROOT_MAP => {
            let address = starter.give_memory(message.badge, message.words[0]);
            address.map(Answer::Word)
        }
        service::ROOT_MAKE => starter
            .give_object(message.words[0], message.words[1])
            .map(Answer::Capability),
        service::ROOT_WINDOW => starter.make_window(message.badge).map(Answer::Word),
        _ => {
            let name = message.words;
            let started = starter.start(&name, message.word(4), Role::of(&name));
            started.map(Answer::Word)
        }
    }
}

/// Tells of a fault; returns the status of the program that had it.
fn report(message: &Received) -> u64 {
    let [ip, first, second, _] = message.words;
    let program = message.badge;
    if message.label == FaultLabel::Page as u64 {
        println!("rcoe: program {program}: no access to {first:#x} (code {second:#x}) at {ip:#x}");
    } else if message.label == FaultLabel::Exception as u64 {
        println!("rcoe: program {program}: exception {first} (code {second:#x}) at {ip:#x}");
    } else if message.label == FaultLabel::UnknownSyscall as u64 {
        println!("rcoe: program {program}: unknown system call {ip}");
    } else {
        println!("rcoe: program {program}: unknown request {}", message.label);
    }
    FAULTED
}

/// Tells the status and switches the machine off. Both are outputs, so both are voted.
fn off(status: u64) -> ! {
    let ports = slots::SLOT_PORTS;
    loop {
        // Neither can fail: the root task has all ports.
        let _ = object::port_set(ports, layout::PORT_STATUS, 1, status & 0xff);
        let _ = object::port_set(ports, layout::PORT_OFF, 4, 0);
    }
}

/// Rights of those who only send.
const SENDER: Rights = Rights::WRITE;
