//! What closely coupled replicas tell each other beside their outboxes: a board each, and who is to
//! run next.

use rcoe_core::coupling::{Board, Boards, Shape};
use rcoe_core::primitive::{AtomicU64 as Word, Ordering};
use rcoe_core::{MAX_REPLICAS, ReplicaId};

use super::processor::layout::{SHARED, SLICE};

/// Where in a slice these are: behind the digest, before what some processors count with, and the
/// ring.
const TURN: u64 = SLICE / 4 + 64;
const BOARD: u64 = TURN + 64;

/// Boards hold standings and registers; memory is compared by votes.
pub(crate) const SHAPE: Shape = Shape {
    replicas: rcoe_abi::layout::MAX_CORES,
    registers: 4,
    pages: 1,
    sheet: 1,
};
const _: () = assert!(BOARD + SHAPE.words() as u64 * 8 <= SLICE / 2 - 64);

/// The boards of so many replicas.
pub(crate) fn boards(replicas: usize) -> Boards<'static> {
    let mut boards: Boards<'static> = [None; MAX_REPLICAS];
    for (replica, board) in boards.iter_mut().enumerate().take(replicas) {
        let place = SHARED + replica as u64 * SLICE + BOARD;
        // SAFETY: slices are mapped for as long as the kernel runs, nothing else lies there, and
        // atomic words are valid whatever they hold. Of others' slices nothing is written.
        let cells = unsafe { core::slice::from_raw_parts(place as *const Word, SHAPE.words()) };
        *board = Some(Board::new(cells, SHAPE));
    }
    boards
}

fn turn(replica: ReplicaId) -> &'static Word {
    let place = SHARED + replica.index() as u64 * SLICE + TURN;
    // SAFETY: as for boards.
    unsafe { &*(place as *const Word) }
}

/// Tells the others who is to run next.
pub(crate) fn publish_turn(own: ReplicaId, word: u64) {
    turn(own).store(word, Ordering::Release);
}

/// What a replica told last of that.
pub(crate) fn turn_of(replica: ReplicaId) -> u64 {
    turn(replica).load(Ordering::Acquire)
}
