//! The header for programs in C says what the kernel and the root task do.

use rcoe_abi::{
    CAPS_WORD, Error, FIRST_BUFFER_WORD, IN_REGISTERS, Label, MAX_CAPS, MAX_MESSAGE, MessageInfo,
    ObjectType, RECEIVE_WORD, Rights, Syscall, layout, service,
};

const HEADER: &str = include_str!("../include/rcoe-system.h");

/// Every number that the header defines, and what it has to be.
fn expected() -> Vec<(&'static str, u64)> {
    let word = |number: usize| u64::try_from(number).unwrap();
    let calls = [
        ("CALL", Syscall::Call),
        ("REPLY_RECV", Syscall::ReplyRecv),
        ("SEND", Syscall::Send),
        ("NB_SEND", Syscall::NbSend),
        ("RECV", Syscall::Recv),
        ("NB_RECV", Syscall::NbRecv),
        ("REPLY", Syscall::Reply),
        ("YIELD", Syscall::Yield),
        ("ADD_TRACE", Syscall::AddTrace),
    ];
    let labels = [
        ("TCB_CONFIGURE", Label::TcbConfigure),
        ("TCB_SET_PRIORITY", Label::TcbSetPriority),
        ("TCB_WRITE_REGISTERS", Label::TcbWriteRegisters),
        ("TCB_RESUME", Label::TcbResume),
        ("CNODE_COPY", Label::CNodeCopy),
        ("CNODE_MINT", Label::CNodeMint),
        ("CNODE_MOVE", Label::CNodeMove),
        ("CNODE_DELETE", Label::CNodeDelete),
        ("CNODE_REVOKE", Label::CNodeRevoke),
        ("FRAME_MAP", Label::FrameMap),
        ("FRAME_UNMAP", Label::FrameUnmap),
        ("DEVICE_FRAME", Label::DeviceFrame),
        ("SHARED_MEET", Label::SharedMeet),
    ];
    let mut all = vec![
        ("SLOT_ROOT", service::SLOT_ROOT),
        ("SLOT_CONSOLE", service::SLOT_CONSOLE),
        ("SLOT_TCB", service::SLOT_TCB),
        ("SLOT_PEER", service::SLOT_PEER),
        ("SLOT_CNODE", service::SLOT_CNODE),
        ("SLOT_VSPACE", service::SLOT_VSPACE),
        ("SLOT_TIMER", service::SLOT_TIMER),
        ("SLOT_DEVICE", service::SLOT_DEVICE),
        ("SLOT_TRACE", service::SLOT_TRACE),
        ("SLOT_FREE", service::SLOT_FREE),
        ("ROOT_EXIT", service::ROOT_EXIT),
        ("ROOT_SPAWN", service::ROOT_SPAWN),
        ("ROOT_MAP", service::ROOT_MAP),
        ("ROOT_MAKE", service::ROOT_MAKE),
        ("ROOT_WINDOW", service::ROOT_WINDOW),
        ("CONSOLE_WRITE", service::CONSOLE_WRITE),
        ("TIMER_SLEEP", service::TIMER_SLEEP),
        ("EDU_FACTORIAL", service::EDU_FACTORIAL),
        ("EDU_COPY", service::EDU_COPY),
        ("TCB", ObjectType::Tcb as u64),
        ("ENDPOINT", ObjectType::Endpoint as u64),
        ("NOTIFICATION", ObjectType::Notification as u64),
        ("FRAME", ObjectType::Frame as u64),
        ("READ", Rights::READ.word()),
        ("WRITE", Rights::WRITE.word()),
        ("GRANT", Rights::GRANT.word()),
        ("MISSING_TABLE", Error::MissingTable as u64),
        ("MAX_MESSAGE", word(MAX_MESSAGE)),
        ("MAX_CAPS", word(MAX_CAPS)),
        ("IN_REGISTERS", word(IN_REGISTERS)),
        ("FIRST_BUFFER_WORD", word(FIRST_BUFFER_WORD)),
        ("CAPS_WORD", word(CAPS_WORD)),
        ("RECEIVE_WORD", word(RECEIVE_WORD)),
        ("IPC_BUFFER", layout::IPC_BUFFER),
        ("WINDOW", layout::WINDOW),
    ];
    all.extend(calls.map(|(name, call)| (name, call as u64)));
    all.extend(labels.map(|(name, label)| (name, label as u64)));
    all.sort_unstable();
    all
}

#[test]
fn every_number_of_the_header_is_the_kernels() {
    let mut found: Vec<(&str, u64)> = HEADER
        .lines()
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("#define RCOE_")?.split_once(' ')?;
            let value = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            Some((name, value.ok()?))
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, expected());
}

#[test]
fn messages_are_laid_out_as_the_header_says() {
    let info = MessageInfo::new(1, 0).with_caps(0, 0);
    assert_eq!(info.word(), 1 << 12);
    assert_eq!(MessageInfo::new(0, 127).word() & 127, word_of(MAX_MESSAGE));
    assert_eq!(MessageInfo::new(0, 0).with_caps(1, 0).word(), 1 << 7);
    assert_eq!(MessageInfo::new(0, 0).with_caps(0, 1).word(), 1 << 9);
}

fn word_of(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}
