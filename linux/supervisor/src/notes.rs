//! What replicas want the user to know, in words, each once.

use std::collections::HashSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rcoe_linux_abi::{NOTE_SLOTS, Note, OF_OTHER, REMAP, Report};
use rcoe_linux_syscalls::{Class, FILES, Place, Request, Treatment};

/// Remembers what has been told.
#[derive(Debug, Default)]
pub(crate) struct Notebook {
    told: HashSet<u64>,
}

impl Notebook {
    /// The notes of a report that were not told before.
    pub(crate) fn news(&mut self, report: &Report) -> Vec<String> {
        let count = usize::try_from(report.note_count.load(Acquire)).unwrap_or(usize::MAX);
        let words = report
            .notes
            .iter()
            .take(count.min(NOTE_SLOTS))
            .map(|cell| cell.load(Relaxed));
        let fresh = words
            .filter(|&word| self.told.insert(word))
            .collect::<Vec<_>>();
        fresh.into_iter().filter_map(text_of).collect()
    }
}

/// The sentence for a note word; `None` if it is none.
fn text_of(word: u64) -> Option<String> {
    let code = u32::try_from(word >> 32).ok()?;
    let argument = word & u64::from(u32::MAX);
    let named = |request: Option<&'static Request>| {
        request.map_or_else(
            || format!("{argument:#x}"),
            |it| format!("{} ({argument:#x})", it.name()),
        )
    };
    let low = u32::try_from(argument).unwrap_or(0);
    Some(match Note::from_code(code)? {
        Note::UnsupportedCall => {
            let reason = reason(argument);
            format!(
                "system call {} is not supported (ENOSYS): {reason}",
                call(argument)
            )
        }
        Note::UnsupportedIoctl => format!(
            "ioctl {} is not supported",
            named(rcoe_linux_syscalls::ioctl(low))
        ),
        Note::UnsupportedFcntl => format!(
            "fcntl {} is not supported",
            named(rcoe_linux_syscalls::fcntl(low))
        ),
        Note::UnsupportedPrctl => format!(
            "prctl {} is not supported",
            named(rcoe_linux_syscalls::prctl(low))
        ),
        Note::SharedWithChild => "the program forks while it has memory to share with its child \
             (MAP_SHARED); the child gets a copy, and neither sees what the other writes"
            .into(),
        Note::NoSharedMemory => {
            format!("no room for memory that processes share: rcoe has {argument} MiB for it")
        }
        Note::TooManyInstructions => format!(
            "more than {argument} instructions such as rdrand, whose results replicas do not \
             share: the rest may make replicas differ"
        ),
        Note::UnsupportedMmap if argument == REMAP => {
            "mremap of a shared mapping is only supported for one mapping as a whole or in part, \
             as far as the memory behind it goes"
                .to_owned()
        }
        Note::UnsupportedMmap => {
            format!(
                "mmap with flags {argument:#x} is not supported: far beyond the end that the file \
                 had when it was mapped first"
            )
        }
        other => refusal(other, argument),
    })
}

/// The sentence for a note that is about memory, or about making and executing processes.
fn refusal(note: Note, argument: u64) -> String {
    match note {
        Note::AgentMemory => {
            format!("the program touched the memory of rcoe's agent at {argument:#x}; refused")
        }
        Note::AgentFault => format!("fault inside rcoe's agent at {argument:#x}"),
        Note::TooManyProcesses => {
            format!("no more than {argument} processes can exist at once; fork failed with EAGAIN")
        }
        Note::Privileged => "a program with a set-user-id or set-group-id bit or with file \
             capabilities was refused with EPERM: rcoe does not change privileges"
            .into(),
        Note::FewerCapabilities => "a program was executed without capabilities that it would \
             get back without rcoe: its process had given them up"
            .into(),
        Note::CapabilitiesLocked => "a program was refused with EPERM: SECBIT_KEEP_CAPS is \
             locked, and only the host's own execve can clear it"
            .into(),
        Note::Unverified => "the host does not let replicas read each other's memory, or has no \
             descriptor left: a child starts as a copy of its parent's primary"
            .into(),
        Note::ActingFile => acting(u32::try_from(argument).unwrap_or(0)),
        Note::NotLoadable => {
            format!("a program that rcoe cannot load was refused with error {argument}")
        }
        _ => format!("note {note:?} ({argument:#x})"),
    }
}

/// Why writing to a file that acts on a process was refused.
fn acting(argument: u32) -> String {
    let row = FILES.get(usize::try_from(argument & !OF_OTHER).unwrap_or(usize::MAX));
    let name = row.map_or(
        "a file of a process that rcoe does not know".into(),
        |file| match file.place {
            Place::Process => format!("/proc/PID/{}", file.name),
            Place::Cgroup => format!("{} of a control group", file.name),
        },
    );
    let reason = match row {
        _ if argument & OF_OTHER != 0 => "it acts on another process of the program",
        Some(file) if file.treatment == Treatment::Refused => file.doc,
        Some(_) => "it acts on another thread of the program",
        None => "it may act on one replica only",
    };
    format!("writing to {name} is not supported (EACCES): {reason}")
}

/// Why the call is refused, by the table.
fn reason(number: u64) -> &'static str {
    match rcoe_linux_syscalls::entry(number) {
        None => "it is unknown to rcoe",
        Some(call) if !call.reason().is_empty() => call.reason(),
        Some(call) if call.class == Class::Process => {
            "children that share memory with their parent, or have namespaces of their own, are \
             not replicated"
        }
        Some(_) => "not with these arguments",
    }
}

/// A system call by name and number.
pub(crate) fn call(number: u64) -> String {
    format!("{} ({number})", rcoe_linux_syscalls::name(number))
}

/// The last words of a failed agent.
pub(crate) fn epitaph(report: &Report) -> String {
    let length = usize::try_from(report.epitaph_len.load(Acquire)).unwrap_or(0);
    let bytes = report
        .epitaph
        .iter()
        .flat_map(|cell| cell.load(Relaxed).to_le_bytes());
    let bytes = bytes.take(length).collect::<Vec<_>>();
    let text = String::from_utf8_lossy(&bytes);
    if text.is_empty() {
        "no last words".into()
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(note: Note, argument: u64) -> String {
        text_of(u64::from(note as u32) << 32 | argument).expect("a note")
    }

    #[test]
    fn notes_name_the_call_and_the_reason() {
        let unsupported = rcoe_linux_syscalls::ALL
            .iter()
            .find(|call| !call.reason().is_empty());
        let call = unsupported.expect("something is unsupported");
        let text = text(Note::UnsupportedCall, call.nr.into());
        assert!(
            text.contains(call.name()) && text.contains(call.reason()),
            "{text}"
        );
    }

    #[test]
    fn unknown_numbers_and_codes_are_survived() {
        assert!(text(Note::UnsupportedCall, 99_999).contains("99999"));
        assert!(text(Note::UnsupportedIoctl, 0xdead).contains("0xdead"));
        assert_eq!(text_of(u64::from(u32::MAX) << 32), None);
        assert_eq!(text_of(0), None);
    }
}
