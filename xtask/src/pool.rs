//! Work that several threads take piece by piece.
//!
//! Contract: pieces are begun in their order. After an error no worker that met one begins another
//! piece; the others end the list.
//!
//! Not covered: a piece that panics takes its worker with it, and the panic is the caller's.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

/// Does `each` with every piece, by so many threads.
///
/// # Errors
///
/// What the first worker that failed was told.
pub(crate) fn work<T: Send>(
    pieces: impl IntoIterator<Item = T>,
    workers: usize,
    each: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let waiting: Mutex<VecDeque<T>> = Mutex::new(pieces.into_iter().collect());
    let worker = || -> Result<()> {
        loop {
            let next = lock(&waiting).pop_front();
            let Some(piece) = next else {
                return Ok(());
            };
            each(piece)?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut ended = workers.into_iter();
        ended.try_for_each(|it| it.join().expect("a worker ends"))
    })
}

/// What it guards, also after a panic elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What it guarded.
pub(crate) fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_done_once_by_any_number_of_workers() {
        for workers in [1, 2, 7] {
            let done = Mutex::new(Vec::new());
            work(0..50, workers, |piece| {
                lock(&done).push(piece);
                Ok(())
            })
            .unwrap();
            let mut done = into_inner(done);
            done.sort_unstable();
            assert_eq!(done, (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_is_told_and_one_worker_stops_there() {
        let done = Mutex::new(Vec::new());
        let told = work(0..9, 1, |piece| {
            anyhow::ensure!(piece < 4, "no {piece}");
            lock(&done).push(piece);
            Ok(())
        });
        assert_eq!(told.unwrap_err().to_string(), "no 4");
        assert_eq!(into_inner(done), [0, 1, 2, 3]);
    }
}
