//! The personality of Linux: runs the program of its bundle and serves its calls, until it ends.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::bundle::{Bundle, Word};
use rcoe_abi::invocation::FaultLabel;
use rcoe_user::linux::{Devices, ENDPOINT, Kernel, Nodes, Process, Sparse, Trap, Turn, thread_of};
use rcoe_user::{Received, foreign, memory, recv, reply_recv};

rcoe_user::program!(main);

/// Status of a program that cannot be started.
const NOT_STARTED: u64 = 126;
/// Chunks of the array of pages, besides those that all frames fill.
const CHUNKS: u64 = 320;
/// Words of a fault's message before the registers.
const BEFORE: usize = 4;

fn main(_argument: u64) -> u64 {
    let Some(bundle) = Bundle::new(rcoe_user::bundle()) else {
        rcoe_user::println!("rcoe: there is no program of Linux");
        return NOT_STARTED;
    };
    match run(bundle) {
        Ok(status) => status,
        Err(why) => {
            rcoe_user::println!("rcoe: the program of Linux cannot be started: {why}");
            NOT_STARTED
        }
    }
}

fn run(bundle: Bundle<'static>) -> Result<u64, &'static str> {
    let full = "there is not enough memory: give it more by --memory";
    let pages = bundle.word(Word::Pages).ok_or("the bundle is damaged")?;
    let devices = Devices {
        network: bundle.word(Word::Network).unwrap_or(0) != 0,
        disk: bundle.disk().is_some_and(|folder| !folder.is_empty()),
        input: bundle.word(Word::Input).unwrap_or(0) != 0,
    };
    let kernel = Kernel::new(pages, devices).map_err(|_| full)?;
    let chunks = usize::try_from(pages / 512 + CHUNKS).map_err(|_| full)?;
    let table = memory(Sparse::table_words(chunks)).ok_or(full)?;
    let pool = memory(Sparse::pool_words(chunks)).ok_or(full)?;
    let mut nodes = Nodes::new();
    let store = Sparse::new(table, pool);
    let (mut process, begin) = Process::load(kernel, store, &mut nodes, bundle)?;
    let begun = process.machine().begin(begin.entry, begin.stack);
    begun.map_err(|_| "the kernel refuses its thread")?;
    let status = serve(&mut process);
    process.unmount();
    Ok(status)
}

/// Answers calls and faults until the program ends; its status.
fn serve(process: &mut Process<'_, Kernel>) -> u64 {
    let mut message = recv(ENDPOINT);
    loop {
        let turn = if message.label == FaultLabel::UnknownSyscall as u64 {
            called(process, &message)
        } else {
            trapped(process, &message)
        };
        message = match turn {
            Turn::Answer(answer) => reply_recv(ENDPOINT, 0, &[answer]),
            Turn::Resume(registers) => reply_recv(ENDPOINT, 0, &registers),
            Turn::Same => reply_recv(ENDPOINT, 0, &[]),
            Turn::Other => recv(ENDPOINT),
            Turn::End(status) => return status,
        };
    }
}

fn called(process: &mut Process<'_, Kernel>, message: &Received) -> Turn {
    let words = foreign::ARGUMENTS.map(|register| message.word(1 + register));
    let number = message.word(0);
    let registers = core::array::from_fn(|index| message.word(1 + index));
    process.called(thread_of(message.badge), number, words, &registers)
}

fn trapped(process: &mut Process<'_, Kernel>, message: &Received) -> Turn {
    let (first, code) = (message.word(1), message.word(2));
    let trap = if message.label == FaultLabel::Page as u64 {
        let address = first;
        Trap::Page { address, code }
    } else {
        let vector = first;
        Trap::Exception { vector, code }
    };
    let registers = core::array::from_fn(|index| message.word(BEFORE + index));
    process.trapped(thread_of(message.badge), trap, &registers)
}
