//! The program's standard input, where it comes while the machine runs: a pipe, of which the
//! machine is who writes.
//!
//! Nothing is fetched before somebody reads the pipe or asks what it has, and it is empty.

use linux_raw_sys::general::O_RDONLY;

use crate::input::Came;
use crate::linux::streams::{PAGE_BYTES, Target};
use crate::linux::{Errno, Machine, Process};

impl<M: Machine> Process<'_, M> {
    /// Has the first descriptor lead to what comes.
    pub(in crate::linux) fn connect_input(&mut self) -> Result<(), Errno> {
        self.close(0)?;
        let pipe = self.streams.add_pipe()?;
        self.streams.input = Some(pipe);
        self.files.open(Target::Reader(pipe), O_RDONLY).map(|_| ())
    }

    /// Fetches what came, if this pipe is the input, and empty.
    pub(super) fn tend_input(&mut self, pipe: usize) {
        let is_empty = self.streams.pipes[pipe].len == 0;
        // What is taken is to have a place: the first page of a pipe that is empty.
        if self.streams.input != Some(pipe) || !is_empty || self.pipe_frame(pipe, 0).is_err() {
            return;
        }
        let mut bytes = [0; PAGE_BYTES];
        let (mut len, mut more) = (0, true);
        while more && len < PAGE_BYTES {
            let came = self.machine.input(&mut bytes[len..]);
            more = matches!(came, Came::Bytes(_, true));
            match came {
                Came::Bytes(count, _) => len += count,
                Came::End if len == 0 => {
                    self.streams.input = None;
                    self.streams.pipes[pipe].writers = false;
                }
                Came::End | Came::Nothing => {}
            }
        }
        if len == 0 {
            return self.empty_pipe(pipe);
        }
        let kept = self.append(pipe, &bytes[..len]);
        assert!(kept.is_ok(), "there is a page");
    }
}
