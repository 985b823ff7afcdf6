//! How a process reads a file that each replica reads by itself.

use rcoe_core::{Bug, Call, Ports};

use super::{DIFFERENCE, Process, READ, Stage, World};
use crate::program::absorb;
use crate::reading::{Told, content, digest};

impl Process {
    /// Reads the piece from the file.
    pub(super) fn read_piece(&mut self, world: &World) {
        self.reading.piece = Some(content(self.at, world.version));
    }

    fn piece(&self) -> u64 {
        self.reading.piece.expect("it was read")
    }

    /// Primary, which has read the piece: waits for room for what it tells, and until nobody asks
    /// for what it keeps.
    pub(super) fn await_place(&self, ports: &Ports<'_>) -> Call {
        match self.reading.kept_until {
            Some(end) if end < self.node.position() && !self.deferred.masks => {
                self.node.begin_publish_past(ports, 1, end)
            }
            _ => self.node.begin_publish(1),
        }
    }

    /// Primary: what it tells.
    pub(super) fn tell_piece(&mut self, ports: &Ports<'_>, world: &mut World) -> Told {
        let version = self.reading.version(self.at, world.version);
        let kept = self.reading.kept_until;
        let has_place = kept.is_none_or(|end| self.node.all_have_passed(ports, end));
        if let Some(version) = version
            && has_place
            && !self.deferred.masks
        {
            world.kept = self.piece();
            return Told::Digest(digest(world.kept), version);
        }
        // The second reading.
        self.read_piece(world);
        world.pieces.push((self.at, self.piece()));
        Told::Piece(self.piece())
    }

    /// Primary: the record is there.
    pub(super) fn told_piece(&mut self, ports: &Ports<'_>) {
        if let Told::Digest(..) = Told::of(self.result) {
            self.reading.kept_until = Some(self.node.position());
        }
        self.use_piece(ports);
    }

    /// Follower, with the record.
    pub(super) fn hear_piece(&mut self, record: u64, ports: &Ports<'_>) {
        self.result = record;
        match Told::of(record) {
            Told::Piece(piece) if !self.reading.guards.off(Bug::RingIgnored) => {
                self.reading.piece = Some(piece);
                self.use_piece(ports);
            }
            Told::Digest(..) => self.take_ahead(ports),
            Told::Piece(_) => self.stage = Stage::Read,
        }
    }

    /// Follower: takes what it has read ahead if the primary has the same, else it reads.
    fn take_ahead(&mut self, ports: &Ports<'_>) {
        self.stage = Stage::Read;
        let Some(version) = self.reading.ahead else {
            return;
        };
        self.reading.piece = Some(content(self.at, version));
        if self.is_as_told() || self.reading.guards.off(Bug::DigestUncompared) {
            self.use_piece(ports);
        } else {
            self.reading.piece = None;
            self.reading.ahead = None;
        }
    }

    /// Follower: reads by itself.
    pub(super) fn read_own(&mut self, world: &World, ports: &Ports<'_>) {
        self.read_piece(world);
        match Told::of(self.result) {
            Told::Piece(_) => self.use_piece(ports),
            Told::Digest(..) => {
                self.reading.ahead.get_or_insert(world.version);
                self.stage = Stage::Digest;
            }
        }
    }

    /// Follower, with a piece from the file: is it what the primary has?
    pub(super) fn compare_piece(&mut self, ports: &Ports<'_>) {
        if self.is_as_told() || self.reading.guards.off(Bug::DigestUncompared) {
            self.use_piece(ports);
        } else if self.reading.reads_again() {
            self.stage = Stage::Read;
        } else {
            self.stage = Stage::Look;
        }
    }

    fn is_as_told(&self) -> bool {
        matches!(Told::of(self.result), Told::Digest(told, _) if told == digest(self.piece()))
    }

    /// Follower, whose piece is another: has somebody changed the file?
    pub(super) fn look(&mut self, world: &World, ports: &Ports<'_>) {
        let same = matches!(Told::of(self.result), Told::Digest(_, told) if told == world.version);
        if same && !self.reading.guards.off(Bug::DifferenceTaken) {
            return self.differ(ports);
        }
        self.reading.piece = Some(world.kept);
        self.stage = Stage::Kept;
    }

    /// Follower, with a piece that the primary has kept.
    pub(super) fn compare_kept(&mut self, ports: &Ports<'_>) {
        if self.is_as_told() {
            self.use_piece(ports);
        } else {
            self.differ(ports);
        }
    }

    /// All vote.
    fn differ(&mut self, ports: &Ports<'_>) {
        self.event(DIFFERENCE, digest(self.piece()), ports);
        let call = self.node.begin_alarm();
        self.called(call);
    }

    /// The program gets what was read. Its content is no event.
    pub(super) fn use_piece(&mut self, ports: &Ports<'_>) {
        self.event(READ, self.label(), ports);
        self.accumulator = absorb(self.accumulator, self.piece());
        self.reading.done();
        self.next();
    }
}
