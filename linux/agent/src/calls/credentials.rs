//! Process ids that the host tells, or is told, beside a call's result: of a socket's peer
//! (`SO_PEERCRED`), of a message's sender (`SCM_CREDENTIALS`), of a lock's owner (`F_GETLK`).
//!
//! To the host they are those of replicas, to the program those of its processes. The primary puts
//! what it is told into the program's terms before the result is published, and what the program
//! tells into the host's for the time of the call. A call that tells more than [`MOST_IDS`], or one
//! of them behind more than [`MOST`] control messages, is refused by name.
//!
//! Not covered: the id of a replica that is gone since; descriptors of processes instead of ids
//! (`SO_PEERPIDFD`), which are refused.

use linux_raw_sys::errno::ENOPROTOOPT;
use rcoe_linux_syscalls::Ids;

use crate::calls::ipc::of_program;
use crate::calls::processes::replica_of;
use crate::calls::{Call, agreed, emulated};
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::protocol::arguments::IOV_MAX;
use crate::sys;
use crate::sys::numbers::{SCM_CREDENTIALS, SCM_RIGHTS, SO_PEERCRED, SO_PEERPIDFD, SOL_SOCKET};

/// Bytes of the head of a control message: length, level and type.
const HEAD: u64 = 16;
/// Most control messages that are looked at.
const MOST: u64 = 64;
/// Most process ids that one call may tell.
const MOST_IDS: usize = 1024;
/// Distance of the messages of one `sendmmsg` or `recvmmsg`.
const STRIDE: u64 = 64;

fn arg(call: &Call, index: u8) -> u64 {
    call.arg(usize::from(index))
}

/// Primary: the result of a call that would tell more than ids.
pub(super) fn refused(call: &Call) -> Option<i64> {
    let Ids::Option(level, name, _) = call.what.facts.ids else {
        return None;
    };
    let asks = arg(call, level) == SOL_SOCKET && arg(call, name) == SO_PEERPIDFD;
    asks.then_some(sys::error(ENOPROTOOPT))
}

/// Primary, after a call with this result: what the host told is in the program's terms.
pub(super) fn told(call: &Call, result: i64) {
    if result < 0 {
        return;
    }
    match call.what.facts.ids {
        Ids::Option(level, name, value) => {
            if arg(call, level) == SOL_SOCKET && arg(call, name) == SO_PEERCRED {
                translate(arg(call, value), of_program);
            }
        }
        Ids::Owner(lock) => {
            const PID: u64 = 24;
            translate(arg(call, lock) + PID, of_program);
        }
        Ids::Received(message) => {
            each_id(arg(call, message), |at| translate(at, of_program));
        }
        Ids::ReceivedMany(messages) => {
            for i in 0..result.cast_unsigned().min(IOV_MAX) {
                let message = arg(call, messages) + STRIDE * i;
                each_id(message, |at| translate(at, of_program));
            }
        }
        Ids::None | Ids::Sent(_) | Ids::SentMany(..) => {}
    }
}

/// The messages of a call that sends some, which may tell ids: address of the first one, and how
/// many.
fn sent(call: &Call) -> (u64, u64) {
    match call.what.facts.ids {
        Ids::Sent(message) => (arg(call, message), 1),
        Ids::SentMany(messages, count) => (arg(call, messages), arg(call, count).min(IOV_MAX)),
        _ => (0, 0),
    }
}

/// All replicas: does the call tell more ids than can be put into the host's terms and back?
pub(super) fn tells_too_many(call: &Call) -> bool {
    let (first, messages) = sent(call);
    let mut ids = 0;
    let all = (0..messages).all(|i| each_id(first + STRIDE * i, |_| ids += 1));
    !all || ids > MOST_IDS
}

/// Primary: makes the call `work` with ids that the host knows.
pub(super) fn telling<T>(
    kernel: &mut Kernel,
    call: &Call,
    work: impl FnOnce(&mut Kernel) -> T,
) -> T {
    let (first, messages) = sent(call);
    let mut some = false;
    for i in 0..messages {
        each_id(first + STRIDE * i, |_| some = true);
    }
    match some {
        true => translated(kernel, call, work),
        false => work(kernel),
    }
}

/// The ids are in the host's terms while `work` is done. Which words they are is found alike before
/// and after it: nobody else writes to the program's memory meanwhile.
#[inline(never)]
fn translated<T>(kernel: &mut Kernel, call: &Call, work: impl FnOnce(&mut Kernel) -> T) -> T {
    let own = emulated::own_pid(kernel);
    let of_host = |pid: u32| match pid {
        pid if pid == own => sys::getpid(),
        pid => replica_of(pid).unwrap_or(pid),
    };
    let mut kept = [0; MOST_IDS];
    let voted = agreed::is_voted(kernel, call);
    if voted {
        agreed::check(kernel, call);
    }
    each_sent(call, |place, at| {
        if let (Ok(pid), Some(kept)) = (guest::read::<u32>(at), kept.get_mut(place)) {
            *kept = pid;
            translate(at, of_host);
        }
    });
    let result = if voted {
        agreed::altered(kernel, call, work)
    } else {
        work(kernel)
    };
    each_sent(call, |place, at| {
        if let Some(pid) = kept.get(place) {
            translate(at, |_| *pid);
        }
    });
    result
}

/// Goes through the ids that a call tells, with their places among them.
fn each_sent(call: &Call, mut visit: impl FnMut(usize, u64)) {
    let (first, messages) = sent(call);
    let mut place = 0;
    for i in 0..messages {
        each_id(first + STRIDE * i, |at| {
            visit(place, at);
            place += 1;
        });
    }
}

/// Replaces a process id in the program's memory; what cannot be changed stays.
fn translate(at: u64, into: impl FnOnce(u32) -> u32) {
    let Ok(pid) = guest::read::<u32>(at) else {
        return;
    };
    let new = into(pid);
    if new != pid {
        let _ = guest::write(at, &new);
    }
}

/// Goes through the process ids in the control data of a message; says whether that were all.
fn each_id(header: u64, mut visit: impl FnMut(u64)) -> bool {
    each_control(header, SCM_CREDENTIALS, |at, len| {
        if len >= 4 {
            visit(at);
        }
    })
}

/// Goes through the descriptors that came with the messages of a call with this result.
pub(super) fn each_descriptor(call: &Call, result: i64, mut visit: impl FnMut(u32)) {
    let (first, messages) = match call.what.facts.ids {
        Ids::Received(message) if result >= 0 => (arg(call, message), 1),
        Ids::ReceivedMany(messages) => {
            let count = u64::try_from(result).unwrap_or(0).min(IOV_MAX);
            (arg(call, messages), count)
        }
        _ => return,
    };
    for i in 0..messages {
        each_control(first + STRIDE * i, SCM_RIGHTS, |at, len| {
            for place in (at..at + len / 4 * 4).step_by(4) {
                if let Ok(fd) = guest::read::<u32>(place) {
                    visit(fd);
                }
            }
        });
    }
}

/// Goes through what the control data of a message holds of one kind: address and length. False if
/// there is more of it than is looked at.
fn each_control(header: u64, wanted: u64, mut visit: impl FnMut(u64, u64)) -> bool {
    let Ok([_, _, _, _, control, bytes]) = guest::read::<[u64; 6]>(header) else {
        return true;
    };
    let mut at = 0;
    for _ in 0..MOST {
        if control == 0 || bytes.saturating_sub(at) < HEAD {
            return true;
        }
        let Ok([len, kind]) = guest::read::<[u64; 2]>(control + at) else {
            return true;
        };
        if len < HEAD || len > bytes - at {
            return true;
        }
        if kind == wanted << 32 | SOL_SOCKET {
            visit(control + at + HEAD, len - HEAD);
        }
        at += len.next_multiple_of(8);
    }
    bytes.saturating_sub(at) < HEAD
}

#[cfg(test)]
mod tests {
    use crate::calls::credentials::{
        Call, HEAD, MOST_IDS, each_descriptor, each_id, tells_too_many,
    };
    use linux_raw_sys::general as nr;

    #[test]
    fn ids_are_found_among_other_control_data() {
        // A descriptor, credentials, and a head that says more than there is.
        let control = [
            20,
            1 << 32 | 1,
            7,
            HEAD + 12,
            2 << 32 | 1,
            99,
            0,
            1 << 40,
            1,
        ];
        let header = [0, 0, 0, 0, control.as_ptr() as u64, 72];
        let mut found = Vec::new();
        each_id(header.as_ptr() as u64, |at| found.push(at));
        assert_eq!(found, [control.as_ptr() as u64 + 40]);
    }

    #[test]
    fn more_ids_than_can_be_translated_are_noticed() {
        let control = [HEAD + 12, 2 << 32 | 1, 99, 0];
        let header = |control: &[u64]| {
            let bytes = control.len() as u64 * 8;
            [0, 0, 0, 0, control.as_ptr() as u64, bytes, 0, 0]
        };
        let tells = |messages: &[[u64; 8]]| {
            let nr = nr::__NR_sendmmsg.into();
            let raw = [3, messages.as_ptr() as u64, messages.len() as u64, 0, 0, 0];
            let entry = rcoe_linux_syscalls::entry(nr).expect("known");
            let what = entry.resolve(&raw);
            tells_too_many(&Call { nr, raw, what })
        };
        let mut messages = vec![header(&control); MOST_IDS];
        assert!(!tells(&messages));
        let two = control.repeat(2);
        messages[3] = header(&two);
        assert!(tells(&messages));
        let [most, more] = [64, 65].map(|count| control.repeat(count));
        assert!(!tells(&[header(&most)]));
        assert!(tells(&[header(&more)]));
    }

    #[test]
    fn descriptors_are_found_in_messages_that_came() {
        let control = [HEAD + 8, 1 << 32 | 1, 9 << 32 | 7];
        let header = [0, 0, 0, 0, control.as_ptr() as u64, 24, 0];
        let found = |result| {
            let entry = rcoe_linux_syscalls::entry(nr::__NR_recvmsg.into()).expect("known");
            let raw = [3, header.as_ptr() as u64, 0, 0, 0, 0];
            let call = Call {
                nr: nr::__NR_recvmsg.into(),
                raw,
                what: entry.resolve(&raw),
            };
            let mut found = Vec::new();
            each_descriptor(&call, result, |fd| found.push(fd));
            found
        };
        assert_eq!(found(0), [7, 9]);
        assert_eq!(found(-11), [0_u32; 0]);
    }
}
