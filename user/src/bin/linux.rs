//! The personality of Linux: runs the program of its bundle and serves its calls, until it ends.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::bundle::{Bundle, Word};
use rcoe_abi::invocation::FaultLabel;
use rcoe_user::linux::{
    CALL_WORDS, ENDPOINT, Kernel, Machine as _, Nodes, Process, Sparse, Turn, thread_of,
};
use rcoe_user::{Received, foreign, memory, recv, reply_recv};

rcoe_user::program!(main);

/// Status of a program that cannot be started, and of one that faults or is no more after one.
const NOT_STARTED: u64 = 126;
const FAULTED: u64 = 139;
const UNDEFINED: u64 = 132;
/// Chunks of the array of pages, besides those that all frames fill.
const CHUNKS: u64 = 320;
/// Words of an exception's message before the registers.
const BEFORE: usize = 4;
/// The exception of an undefined instruction.
const UNDEFINED_INSTRUCTION: u64 = 6;

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
    let network = bundle.word(Word::Network) == Some(1);
    let kernel = Kernel::new(pages, network).map_err(|_| full)?;
    let chunks = usize::try_from(pages / 512 + CHUNKS).map_err(|_| full)?;
    let table = memory(Sparse::table_words(chunks)).ok_or(full)?;
    let pool = memory(Sparse::pool_words(chunks)).ok_or(full)?;
    let mut nodes = Nodes::new();
    let store = Sparse::new(table, pool);
    let (mut process, begin) = Process::load(kernel, store, &mut nodes, bundle)?;
    let begun = process.machine().begin(begin.entry, begin.stack);
    begun.map_err(|_| "the kernel refuses its thread")?;
    Ok(serve(&mut process))
}

/// Answers calls and faults until the program ends; its status.
fn serve(process: &mut Process<'_, Kernel>) -> u64 {
    let mut message = recv(ENDPOINT);
    loop {
        let done = if message.label == FaultLabel::UnknownSyscall as u64 {
            called(process, &message)
        } else if message.label == FaultLabel::Page as u64 {
            fault(process, &message)
        } else {
            exception(process, &message)
        };
        message = match done {
            Ok(next) => next,
            Err(status) => return status,
        };
    }
}

/// What comes next, or the status of a program that has ended.
type Done = Result<Received, u64>;

fn called(process: &mut Process<'_, Kernel>, message: &Received) -> Done {
    let words = foreign::ARGUMENTS.map(|register| message.word(1 + register));
    let number = message.word(0);
    let registers = core::array::from_fn(|index| message.word(1 + index));
    match process.called(thread_of(message.badge), number, words, &registers) {
        Turn::Answer(answer) => Ok(reply_recv(ENDPOINT, 0, &[answer])),
        Turn::Other => Ok(recv(ENDPOINT)),
        Turn::End(status) => Err(status),
    }
}

fn fault(process: &mut Process<'_, Kernel>, message: &Received) -> Done {
    let (ip, address) = (message.word(0), message.word(1));
    if process.page_fault(address) {
        return Ok(reply_recv(ENDPOINT, 0, &[]));
    }
    let text = format_args!("the program has no access to {address:#x}, at {ip:#x}");
    process.machine().note(text);
    Err(FAULTED)
}

fn exception(process: &mut Process<'_, Kernel>, message: &Received) -> Done {
    let (ip, vector) = (message.word(0), message.word(1));
    let mut registers = [0; CALL_WORDS];
    for (index, register) in registers.iter_mut().enumerate() {
        *register = message.word(BEFORE + index);
    }
    if let Some(after) = process.exception(vector, &registers) {
        return Ok(reply_recv(ENDPOINT, 0, &after));
    }
    let text = format_args!("the program had exception {vector} at {ip:#x}");
    process.machine().note(text);
    Err(if vector == UNDEFINED_INSTRUCTION {
        UNDEFINED
    } else {
        FAULTED
    })
}
