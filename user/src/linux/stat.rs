//! What is told of a file.

use super::files::{Kind, NODES};
use super::machine::PAGE;
use super::streams::Target;
use super::{Machine, Process};
use linux_raw_sys::general::{S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};

/// Words of `struct stat`.
pub(super) const STAT_WORDS: usize = 18;
/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a microsecond.
pub(super) const MICRO: u64 = 1000;

impl<M: Machine> Process<'_, M> {
    /// Kind and permissions of what a node is.
    fn mode(&self, node: usize) -> u32 {
        let found = self.files.node(node);
        let kind = match found.kind {
            Kind::Folder | Kind::Descriptors => S_IFDIR,
            Kind::Link(_) | Kind::Fixed(_) => S_IFLNK,
            Kind::Console | Kind::Fifo(_) => S_IFIFO,
            Kind::Socket(_) => S_IFSOCK,
            Kind::Null | Kind::Zero | Kind::Full | Kind::Random => S_IFCHR,
            Kind::Free | Kind::Packed(_) | Kind::Memory(_) | Kind::Same(_) | Kind::Told { .. } => {
                S_IFREG
            }
        };
        kind | found.mode
    }

    /// The words of `struct stat` of what is no file.
    pub(super) fn stat_stream(&self, target: Target) -> [u64; STAT_WORDS] {
        let (kind, place) = match target {
            Target::Socket(place) => (S_IFSOCK | 0o777, place),
            Target::Reader(place) | Target::Writer(place) | Target::Both(place) => {
                (S_IFIFO | 0o600, place)
            }
            Target::Counter(place)
            | Target::Alarm(place)
            | Target::Poller(place)
            | Target::Node(place) => (0o600, place),
        };
        let mut words = [0; STAT_WORDS];
        words[..4].copy_from_slice(&[2, place as u64 + 1, 1, kind.into()]);
        words[7] = PAGE;
        words
    }

    /// The words of `struct stat`: device, number, links; mode and owner; group; device; bytes,
    /// bytes of a block, blocks of 512 bytes; three times.
    pub(super) fn stat_words(&self, node: usize) -> [u64; STAT_WORDS] {
        let size = match self.files.node(node).kind {
            Kind::Told { .. } => 0,
            _ => self.files.size(node),
        };
        let links = self.files.names(node) as u64;
        let [used, changed] = self.files.times(node);
        let mut words = [0; STAT_WORDS];
        let on_disk = self.files.is_on_disk(&self.files.node(node).path);
        let device = if on_disk { 3 } else { 1 };
        words[..3].copy_from_slice(&[device, node as u64 + 1, links]);
        words[3] = self.mode(node).into();
        words[6..9].copy_from_slice(&[size, PAGE, size.div_ceil(512)]);
        for (place, time) in [(9, used), (11, changed), (13, changed)] {
            words[place] = time / SECOND;
            words[place + 1] = time % SECOND;
        }
        words
    }

    /// The same of the link that names a descriptor.
    pub(super) fn stat_of_link(&self, file: u64) -> [u64; STAT_WORDS] {
        let mut words = [0; STAT_WORDS];
        let mode = (S_IFLNK | 0o700).into();
        words[..4].copy_from_slice(&[1, NODES as u64 + file + 1, 1, mode]);
        words[6..8].copy_from_slice(&[64, PAGE]);
        words
    }
}
