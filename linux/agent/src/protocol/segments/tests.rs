use crate::protocol::segments::{Call, Segments};
use crate::sys::numbers::EINVAL;

fn call(nr: u64, raw: [u64; 6]) -> Call {
    let entry = rcoe_linux_syscalls::entry(nr).expect("a known call");
    Call {
        nr,
        raw,
        what: entry.resolve(&raw),
    }
}

/// Filled lengths of all segments of a call that returns `result`.
fn filled(call: &Call, result: i64, effect: impl FnOnce()) -> Vec<u64> {
    let mut segments = Box::new(Segments::new());
    segments.prepare(call).expect("readable");
    effect();
    segments.settle(result).expect("readable");
    segments.filled().map(|(_, len)| len).collect()
}

#[test]
fn a_read_fills_what_it_returns() {
    let buffer = [0_u8; 64];
    let read = call(0, [3, buffer.as_ptr() as u64, 64, 0, 0, 0]);
    assert_eq!(filled(&read, 10, || {}), [10]);
    assert_eq!(filled(&read, 0, || {}), [0]);
    assert_eq!(filled(&read, -11, || {}), [0]);
}

#[test]
fn a_piece_that_is_filled_to_its_end_need_not_be_looked_at() {
    let whole = |call: &Call, result: i64| {
        let mut segments = Box::new(Segments::new());
        segments.prepare(call).expect("readable");
        let whole = segments.settle_whole(result);
        whole.then(|| segments.filled().map(|(_, len)| len).collect::<Vec<_>>())
    };
    // Nothing is there.
    let read = call(0, [3, 64, 4096, 0, 0, 0]);
    assert_eq!(whole(&read, 4096), Some(vec![4096]));
    for result in [-14, 0, 4095, 4097] {
        assert_eq!(whole(&read, result), None, "{result}");
    }
    let vector = [4096_u64, 16, 8192, 16];
    let readv = call(19, [3, vector.as_ptr() as u64, 2, 0, 0, 0]);
    assert_eq!(whole(&readv, 32), None, "two pieces");
    let status = call(5, [3, 4096, 0, 0, 0, 0]);
    assert_eq!(whole(&status, 144), None, "fstat does not tell how much");
}

#[test]
fn a_vector_shares_out_the_result() {
    let buffer = [0_u8; 64];
    let base = buffer.as_ptr() as u64;
    let vector = [base, 16, base + 16, 0, base + 16, 16, base + 32, 32];
    let readv = call(19, [3, vector.as_ptr() as u64, 4, 0, 0, 0]);
    assert_eq!(
        filled(&readv, 20, || {}),
        [16, 4, 0],
        "empty parts are no segments"
    );
}

#[test]
fn an_address_is_as_long_as_the_kernel_says_but_no_longer_than_its_room() {
    let room = [0_u8; 16];
    for (said, expected) in [(8, 8), (110, 16)] {
        let len = std::sync::atomic::AtomicU32::new(16);
        let raw = [3, room.as_ptr() as u64, len.as_ptr() as u64, 0, 0, 0];
        let name = call(51, raw);
        let got = filled(&name, 0, || {
            len.store(said, std::sync::atomic::Ordering::Relaxed)
        });
        assert_eq!(got, [expected, 4], "getsockname, said {said}");
    }
}

#[test]
fn a_length_that_the_address_is_written_over_tells_nothing() {
    let room = std::sync::atomic::AtomicU32::new(4);
    let place = room.as_ptr() as u64;
    let family = || room.store(2, std::sync::atomic::Ordering::Relaxed);
    let name = call(51, [3, place, place, 0, 0, 0]);
    assert_eq!(filled(&name, 0, family), [4, 4], "getsockname");
    room.store(4, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(filled(&name, -9, family), [0, 4]);
    let place = std::sync::atomic::AtomicU32::new(u32::MAX);
    let (length, room) = (place.as_ptr() as u64, [0_u8; 128]);
    let name = call(51, [3, room.as_ptr() as u64, length, 0, 0, 0]);
    let said = || place.store(16, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(filled(&name, 0, said), [16, 4], "no address is that long");
}

#[test]
fn a_negative_length_is_refused_after_the_message_was_received() {
    let (room, name) = ([0_u8; 64], [0_u8; 16]);
    let (room, name) = (room.as_ptr() as u64, name.as_ptr() as u64);
    for (length, filled_then) in [(-1, 64), (16, 0)] {
        let length: i32 = length;
        let pointer = (&raw const length) as u64;
        let receive = call(45, [3, room, 64, 0, name, pointer]);
        let filled = filled(&receive, EINVAL, || {});
        assert_eq!(filled[0], filled_then, "recvfrom with {length}");
    }
}

#[test]
fn after_a_fault_all_that_is_there_may_be_filled() {
    let place = [0_u8; 64];
    let base = place.as_ptr() as u64;
    let fault = crate::protocol::segments::Fault::RESULT;
    let times = call(96, [base, base + 32, 0, 0, 0, 0]);
    assert_eq!(filled(&times, fault, || {}), [16, 8], "gettimeofday");
    let large = vec![1_u8; 3 << 19];
    let base = large.as_ptr() as u64;
    let vector = [base, 1 << 20, base, 1 << 19];
    let readv = call(19, [3, vector.as_ptr() as u64, 2, 0, 0, 0]);
    assert_eq!(filled(&readv, fault, || {}), [1 << 20, 0], "readv");
}

#[test]
fn a_null_pointer_is_no_segment() {
    let clock = call(228, [1, 0, 0, 0, 0, 0]);
    assert_eq!(filled(&clock, 0, || {}), [0_u64; 0]);
}

#[test]
fn of_several_messages_only_those_counted_are_filled() {
    let (room, control) = ([0_u8; 64], [0_u64; 4]);
    let vector = [room.as_ptr() as u64, 64];
    let message = [
        0,
        0,
        vector.as_ptr() as u64,
        1,
        control.as_ptr() as u64,
        32,
        0,
        7,
    ];
    let messages = [message, message];
    let receive = call(299, [3, messages.as_ptr() as u64, 2, 0, 0, 0]);
    assert_eq!(filled(&receive, 1, || {}), [32, 64, 7, 0, 0, 0]);
    assert_eq!(filled(&receive, 2, || {}), [32, 64, 7, 32, 64, 7]);
    assert_eq!(filled(&receive, -11, || {}), [0; 6]);
}
