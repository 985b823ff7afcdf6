//! The board, driven by exits as a guest would make them.

use std::vec::Vec;

use super::*;

#[derive(Default)]
struct World {
    sent: Vec<u8>,
    now: u64,
}

impl Outside for World {
    fn send(&mut self, byte: u8) {
        self.sent.push(byte);
    }
    fn now(&mut self) -> u64 {
        self.now
    }
}

/// A board with registers.
struct Guest {
    board: Board<World>,
    registers: Registers,
}

const OWN: u64 = CONTROLLER + PART;

impl Guest {
    fn new() -> Self {
        Self {
            board: Board::new(World::default()),
            registers: [0; 35],
        }
    }

    /// An access by x1: its width as a power of two.
    fn access(&mut self, address: u64, width: u64, writes: bool) -> Turn {
        let syndrome = 1 << 24 | width << 22 | 1 << 16 | u64::from(writes) << 6;
        let exit = Exit::Memory { address, syndrome };
        self.board.serve(exit, &mut self.registers)
    }

    fn store(&mut self, address: u64, value: u64) {
        self.registers[1] = value;
        assert_eq!(self.access(address, 2, true), Turn::Go);
    }

    fn load(&mut self, address: u64) -> u64 {
        assert_eq!(self.access(address, 2, false), Turn::Go);
        self.registers[1]
    }

    fn exception(&mut self, class: u64, syndrome: u64) -> Turn {
        let exit = Exit::Exception { class, syndrome };
        self.board.serve(exit, &mut self.registers)
    }

    /// A register of the processor's, by x1.
    fn system(&mut self, [op0, op1, n, m, op2]: [u64; 5], reads: bool) -> Turn {
        let name = op0 << 20 | op2 << 17 | op1 << 14 | n << 10 | m << 1;
        self.exception(SYSTEM_REGISTER, name | 1 << 5 | u64::from(reads))
    }

    /// A register of the timer.
    fn timer(&mut self, [m, op2]: [u64; 2], value: Option<u64>) -> u64 {
        self.registers[1] = value.unwrap_or(0);
        let name = [3, 3, 14, m, op2];
        assert_eq!(self.system(name, value.is_none()), Turn::Go);
        self.registers[1]
    }

    fn call(&mut self, function: u64, argument: u64) -> (Turn, u64) {
        self.registers[0] = function;
        self.registers[1] = argument;
        let turn = self.exception(FIRMWARE_CALL, 0);
        (turn, self.registers[0])
    }

    /// Lets all interrupts of the words through.
    fn open(&mut self, words: [u64; 2]) {
        self.store(CONTROLLER, 1);
        self.store(CONTROLLER + 0x100, words[0]);
        self.store(CONTROLLER + 0x104, words[1]);
        self.store(OWN + 4, 0xf0);
        self.store(OWN, 1);
    }
}

#[test]
fn accesses_are_told_as_the_processor_says_them() {
    // A load of a signed half word into a register as a whole, then into half of it.
    let load = Access::of(1 << 24 | 1 << 22 | 1 << 21 | 5 << 16 | 1 << 15).unwrap();
    assert_eq!((load.width, load.register, load.writes), (2, 5, false));
    assert_eq!(load.loaded(0x1_8001), 0xffff_ffff_ffff_8001);
    let load = Access::of(1 << 24 | 1 << 22 | 1 << 21 | 5 << 16).unwrap();
    assert_eq!(load.loaded(0x8001), 0xffff_8001);
    let load = Access::of(1 << 24 | 3 << 22).unwrap();
    assert_eq!(load.loaded(u64::MAX), u64::MAX);
    let store = Access::of(1 << 24 | 1 << 6).unwrap();
    assert_eq!((store.width, store.stored(0x1234)), (1, 0x34));
    // The processor does not say; and an access of its translation.
    assert_eq!(Access::of(1 << 6), None);
    assert_eq!(Access::of(1 << 24 | 1 << 7), None);
}

#[test]
fn registers_are_told_by_their_names() {
    // mrs x7, cntpct_el0
    let access = System::of(3 << 20 | 1 << 17 | 3 << 14 | 14 << 10 | 7 << 5 | 1);
    assert_eq!(access.name, [3, 3, 14, 0, 1]);
    assert_eq!((access.register, access.reads), (7, true));
}

#[test]
fn what_the_guest_sends_goes_out_and_it_goes_on_behind_that() {
    let mut guest = Guest::new();
    for byte in b"hi" {
        guest.store(SERIAL, u64::from(*byte) | 0x100);
    }
    assert_eq!(guest.board.outside.sent, b"hi");
    assert_eq!(guest.registers[IP], 8);
    assert_eq!(guest.load(SERIAL + 0x18), 0x90);
    let names = [0xfe0, 0xfe4, 0xff0].map(|place| guest.load(SERIAL + place));
    assert_eq!(names, [0x11, 0x10, 0x0d]);
    guest.store(SERIAL + 0x2c, 0x70);
    assert_eq!(guest.load(SERIAL + 0x2c), 0x70);
}

#[test]
fn the_zero_register_is_neither_read_nor_written() {
    let mut guest = Guest::new();
    let zero = 1 << 24 | 2 << 22 | 31 << 16;
    for (address, bit) in [(SERIAL, 1 << 6), (SERIAL + 0x18, 0)] {
        let syndrome = zero | bit;
        let exit = Exit::Memory { address, syndrome };
        assert_eq!(guest.board.serve(exit, &mut guest.registers), Turn::Go);
    }
    assert_eq!(guest.board.outside.sent, [0]);
    let mut right = [0; 35];
    right[IP] = 8;
    assert_eq!(guest.registers, right);
}

#[test]
fn what_there_is_nothing_for_is_told_and_changes_nothing() {
    let mut guest = Guest::new();
    assert_eq!(guest.access(0x0a00_0000, 2, false), Turn::Lost);
    assert_eq!(guest.access(SERIAL - 4, 2, true), Turn::Lost);
    let exit = Exit::Memory {
        address: SERIAL,
        syndrome: 1 << 6,
    };
    assert_eq!(guest.board.serve(exit, &mut guest.registers), Turn::Lost);
    assert_eq!(guest.exception(0x20, 0), Turn::Lost);
    assert_eq!(guest.registers, [0; 35]);
}

#[test]
fn an_interrupt_is_pending_until_it_is_taken_and_comes_again_when_it_has_ended() {
    let mut guest = Guest::new();
    guest.open([1 << 30, 0]);
    assert!(!guest.board.pending() && !guest.board.expects());
    guest.timer([2, 0], Some(1_000));
    guest.timer([2, 1], Some(1));
    assert!(!guest.board.pending() && guest.board.expects());
    guest.board.outside.now = 1_000;
    assert!(guest.board.pending());
    assert_eq!(guest.load(OWN + 0x18), 30);
    assert_eq!(guest.load(OWN + 0xc), 30);
    // It is being handled; then its line is still up.
    assert!(!guest.board.pending());
    assert_eq!(guest.load(OWN + 0xc), 1023);
    guest.store(OWN + 0x10, 30);
    assert!(guest.board.pending());
    guest.timer([2, 0], Some(500));
    assert!(!guest.board.pending());
}

#[test]
fn the_more_urgent_interrupt_comes_first_and_within_another() {
    let mut guest = Guest::new();
    guest.open([1 << 3 | 1 << 5, 0]);
    guest.store(CONTROLLER + 0x400, 0xa000_0000);
    guest.store(CONTROLLER + 0x404, 0x5000);
    // Both by this processor itself.
    guest.store(CONTROLLER + 0xf00, 2 << 24 | 3);
    assert_eq!(guest.load(OWN + 0xc), 3);
    guest.store(CONTROLLER + 0xf00, 1 << 16 | 5);
    assert!(guest.board.pending());
    assert_eq!(guest.load(OWN + 0xc), 5);
    assert_eq!(guest.load(OWN + 0x14), 0x50);
    guest.store(CONTROLLER + 0xf00, 2 << 24 | 3);
    guest.store(OWN + 0x10, 5);
    // Not while the first is being handled.
    assert!(!guest.board.pending());
    guest.store(OWN + 0x10, 3);
    assert!(guest.board.pending());
    guest.store(OWN + 4, 0xa0);
    assert!(!guest.board.pending(), "below the limit");
}

#[test]
fn sets_are_read_as_they_were_written() {
    let mut guest = Guest::new();
    guest.store(CONTROLLER + 0x104, 0xf0);
    guest.store(CONTROLLER + 0x184, 0x30);
    assert_eq!(guest.load(CONTROLLER + 0x104), 0xc0);
    guest.store(CONTROLLER + 0x204, 2);
    assert_eq!(guest.load(CONTROLLER + 0x204), 2);
    guest.store(CONTROLLER + 0x284, 2);
    assert_eq!(guest.load(CONTROLLER + 0x204), 0);
    guest.store(CONTROLLER + 0xc08, u64::MAX);
    assert_eq!(guest.load(CONTROLLER + 0xc08), 0xaaaa_aaaa);
    // Single bytes of priorities.
    guest.registers[1] = 0x1ff;
    assert_eq!(guest.access(CONTROLLER + 0x421, 0, true), Turn::Go);
    assert_eq!(guest.load(CONTROLLER + 0x420), 0xf000);
    // Every interrupt goes to the one processor; nothing is behind the last.
    assert_eq!(guest.load(CONTROLLER + 0x820), 0x0101_0101);
    assert_eq!(guest.load(CONTROLLER + 0x108), 0);
    guest.store(CONTROLLER + 0x108, 1);
    guest.store(CONTROLLER + 0x7fc, 1);
    assert_eq!(guest.load(CONTROLLER + 4), 1);
}

#[test]
fn the_serial_line_interrupts_who_waits_for_room() {
    let mut guest = Guest::new();
    guest.open([0, 2]);
    assert!(!guest.board.pending());
    guest.store(SERIAL + 0x38, 0x20);
    assert!(guest.board.pending());
    assert_eq!(guest.load(OWN + 0xc), 33);
    guest.store(SERIAL + 0x38, 0);
    guest.store(OWN + 0x10, 33);
    assert!(!guest.board.pending());
}

#[test]
fn the_timer_counts_by_the_clock_outside() {
    let mut guest = Guest::new();
    guest.board.outside.now = 5_000;
    assert_eq!(guest.timer([0, 1], None), 5_000);
    // A time that is past.
    guest.timer([2, 0], Some(0xffff_ffff));
    assert_eq!(guest.timer([2, 2], None), 4_999);
    assert_eq!(guest.timer([2, 0], None), 0xffff_ffff);
    guest.timer([2, 1], Some(7));
    assert_eq!(guest.timer([2, 1], None), 7, "on, masked, due");
    guest.timer([2, 2], Some(9_000));
    assert_eq!(guest.timer([2, 1], None), 3);
    assert!(!guest.board.expects(), "what is masked wakes nobody");
}

#[test]
fn the_firmware_answers_for_one_processor() {
    let mut guest = Guest::new();
    let minus = |number: i64| (Turn::Go, number.cast_unsigned());
    assert_eq!(guest.call(0x8400_0000, 0), (Turn::Go, 0x1_0001));
    assert_eq!(guest.call(0xc400_0003, 0), minus(-4));
    assert_eq!(guest.call(0xc400_0003, 1), minus(-2));
    assert_eq!(guest.call(0xc400_0004, 0), (Turn::Go, 0));
    assert_eq!(guest.call(0x8400_0002, 0), minus(-3));
    assert_eq!(guest.call(0x8400_000a, 0xc400_0003), (Turn::Go, 0));
    assert_eq!(guest.call(0x8400_000a, 0x8000_0000), minus(-1));
    assert_eq!(guest.call(0x1_8400_0000, 0), minus(-1));
    assert_eq!(guest.registers[IP], 32);
    assert_eq!(guest.call(0xc400_0001, 0), (Turn::Wait, 0));
    assert_eq!(guest.call(0x8400_0008, 0).0, Turn::Off);
    assert_eq!(guest.call(0x8400_0009, 0).0, Turn::Reset);
    // The hypervisor's call is as good; another number is none that there is.
    guest.registers[0] = 0x8400_0008;
    assert_eq!(guest.exception(HYPERVISOR_CALL, 0), Turn::Off);
    assert_eq!(guest.exception(HYPERVISOR_CALL, 1), Turn::Reflect(UNKNOWN));
}

#[test]
fn registers_that_are_not_there_are_unknown_or_read_as_zero() {
    let mut guest = Guest::new();
    guest.registers[1] = 9;
    // A debugger's, and a counter's.
    for name in [[2, 0, 0, 2, 2], [3, 3, 9, 12, 0], [3, 3, 14, 15, 7]] {
        assert_eq!(guest.system(name, false), Turn::Go, "{name:?}");
        assert_eq!(guest.system(name, true), Turn::Go, "{name:?}");
        assert_eq!(guest.registers[1], 0);
    }
    // The interrupt controller's, of another version.
    assert_eq!(
        guest.system([3, 0, 12, 12, 7], false),
        Turn::Reflect(UNKNOWN)
    );
    let breakpoint = guest.exception(guest::BREAKPOINT, 0x800);
    assert_eq!(breakpoint, Turn::Reflect(0x3c << 26 | 1 << 25 | 0x800));
}

#[test]
fn a_breakpoint_of_its_number_reads_the_clock() {
    let mut guest = Guest::new();
    guest.board.outside.now = 77;
    assert_eq!(guest.exception(guest::BREAKPOINT, CLOCK | 30), Turn::Go);
    assert_eq!((guest.registers[30], guest.registers[IP]), (77, 4));
    // Into the zero register.
    assert_eq!(guest.exception(guest::BREAKPOINT, CLOCK | 31), Turn::Go);
    assert_eq!(guest.registers[IP], 8);
    let other = guest.exception(guest::BREAKPOINT, CLOCK + 0x20);
    assert!(matches!(other, Turn::Reflect(_)));
}

#[test]
fn an_exception_is_found_where_the_processor_would_have_it() {
    for (state, vector, kept) in [
        (0x6000_0000, 0x400, 0x6000_03c5),
        (0x0000_0005, 0x200, 0x0000_03c5),
        (0x8000_0004, 0x000, 0x8000_03c5),
    ] {
        let (mut words, mut registers) = ([0; guest::WORDS], [7; 35]);
        words[Word::Vectors as usize] = 0x8000;
        registers[STATE] = state;
        reflect(UNKNOWN, &mut words, &mut registers);
        assert_eq!(registers[IP], 0x8000 + vector);
        assert_eq!(registers[STATE], kept);
        assert_eq!(words[Word::Link as usize], 7);
        assert_eq!(words[Word::State as usize], state);
        assert_eq!(words[Word::Syndrome as usize], UNKNOWN);
    }
}
