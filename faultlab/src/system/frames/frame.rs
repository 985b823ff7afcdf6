//! Frames that no well-meaning card or peer sends, and what strangers answer.
//!
//! What is sent is made up, or is one that the machine exchanged with its client, cut, lengthened
//! or with bits changed; of half of them the checksums are right, so that they get further. They
//! come from strangers, whom the emulator's network does not know: a right frame in the name of the
//! client could end or change its connection, as anybody could who is in a network.
//!
//! Not covered: names other than addresses of IPv4, of which the machine has none.

use crate::plan::Rng;

/// Most bytes of a frame, and fewest that a card lets through.
pub(super) const MAX: usize = 1514;
const MIN: usize = 60;

/// The machine's card and address.
const CARD: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const MACHINE: [u8; 4] = [10, 0, 2, 15];
/// The card in whose name the emulator speaks for the client.
const CLIENT: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];
/// Strangers: the first one's last byte, and how many there are: no more than the stack remembers.
const FIRST: u8 = 200;
const STRANGERS: u8 = 6;

/// Where things are in frames: kind, then of ARP and of IPv4.
const KIND: usize = 12;
const ARP: [u8; 2] = [8, 6];
const IPV4: [u8; 2] = [8, 0];
const BODY: usize = 14;
const ARP_SENDER: usize = BODY + 8;
const ARP_TARGET: usize = BODY + 24;
const SOURCE: usize = BODY + 12;
const GOAL: usize = BODY + 16;
const TCP: u8 = 6;

fn below(rng: &mut Rng, limit: usize) -> usize {
    usize::try_from(rng.next() % limit.max(1) as u64).unwrap_or(0)
}

fn byte(rng: &mut Rng) -> u8 {
    rng.next().to_le_bytes()[3]
}

/// A stranger's address.
const fn stranger(number: u8) -> [u8; 4] {
    [10, 0, 2, FIRST + number % STRANGERS]
}

/// The card of whoever has this address.
const fn card(address: [u8; 4]) -> [u8; 6] {
    let [a, b, c, d] = address;
    [2, 0, a, b, c, d]
}

/// Is it nobody's whom the emulator speaks for, nor the machine's?
fn is_strange(address: [u8; 4]) -> bool {
    address != MACHINE && ![[10, 0, 2, 2], [10, 0, 2, 3]].contains(&address)
}

/// One that is sent: from one of those that were heard, or made up.
pub(super) fn next(rng: &mut Rng, heard: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = match heard.get(below(rng, heard.len())) {
        Some(frame) if !rng.next().is_multiple_of(4) => frame.clone(),
        _ => made_up(rng),
    };
    frame.resize(frame.len().clamp(MIN, MAX), 0);
    let from = stranger(byte(rng));
    introduce(&mut frame, from);
    match rng.next() % 4 {
        0 => frame.truncate(MIN + below(rng, frame.len() - MIN + 1)),
        1 => frame.resize((frame.len() + below(rng, 200)).min(MAX), 0xa5),
        _ => {}
    }
    for _ in 0..rng.next() % 4 {
        let at = below(rng, frame.len());
        frame[at] ^= 1 << (rng.next() % 8);
    }
    if rng.next().is_multiple_of(2) {
        mend(&mut frame);
    }
    frame
}

fn made_up(rng: &mut Rng) -> Vec<u8> {
    let len = MIN + below(rng, MAX - MIN + 1);
    let mut frame: Vec<u8> = (0..len).map(|_| byte(rng)).collect();
    frame[KIND..BODY].copy_from_slice(if rng.next().is_multiple_of(2) {
        &ARP
    } else {
        &IPV4
    });
    if rng.next().is_multiple_of(2) {
        // A segment of TCP to the server as far as headers go.
        let total = u16::try_from(len - BODY).unwrap_or(0).to_be_bytes();
        frame[BODY + 2..BODY + 4].copy_from_slice(&total);
        frame[BODY + 6..BODY + 8].fill(0);
        (frame[BODY], frame[BODY + 9], frame[BODY + 32]) = (0x45, TCP, 0x50);
        frame[BODY + 22..BODY + 24].copy_from_slice(&[0, 7]);
    }
    frame
}

/// Does it come from the machine, or from its client, whom the emulator speaks for?
pub(super) fn is_sample(frame: &[u8]) -> bool {
    frame.len() >= MIN.min(BODY + 20) && [CARD, CLIENT].iter().any(|card| frame[6..12] == *card)
}

/// Is it what the machine says to a stranger?
pub(super) fn is_reply(frame: &[u8]) -> bool {
    frame.len() >= BODY && frame[6..12] == CARD && frame[..2] == card(MACHINE)[..2]
}

/// Makes it one of a stranger's to the machine.
fn introduce(frame: &mut [u8], address: [u8; 4]) {
    let card = card(address);
    frame[..6].copy_from_slice(&CARD);
    frame[6..12].copy_from_slice(&card);
    if frame[KIND..BODY] == ARP {
        frame[ARP_SENDER..][..6].copy_from_slice(&card);
        frame[ARP_SENDER + 6..][..4].copy_from_slice(&address);
        frame[ARP_TARGET..][..4].copy_from_slice(&MACHINE);
    } else {
        frame[SOURCE..][..4].copy_from_slice(&address);
        frame[GOAL..][..4].copy_from_slice(&MACHINE);
    }
}

/// The sum that the internet's checksums are made of.
fn sum(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u32 = pairs
        .iter()
        .map(|pair| u32::from(u16::from_be_bytes(*pair)))
        .sum();
    whole + rest.first().map_or(0, |last| u32::from(*last) << 8)
}

fn folded(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}

/// Bytes of the header, and where the packet ends; `None` if it is no packet of IPv4 that could be
/// right.
fn packet(frame: &[u8]) -> Option<(usize, usize)> {
    let header = usize::from(frame.get(BODY)? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([
        *frame.get(BODY + 2)?,
        *frame.get(BODY + 3)?,
    ]));
    let fits = frame[KIND..BODY] == IPV4 && header >= 20 && header <= total;
    (fits && BODY + total <= frame.len()).then_some((header, BODY + total))
}

/// Makes checksums right.
fn mend(frame: &mut [u8]) {
    let Some((header, end)) = packet(frame) else {
        return;
    };
    frame[BODY + 10..BODY + 12].fill(0);
    let of_header = folded(sum(&frame[BODY..BODY + header]));
    frame[BODY + 10..BODY + 12].copy_from_slice(&of_header);
    let start = BODY + header;
    if frame[BODY + 9] != TCP || end - start < 20 {
        return;
    }
    frame[start + 16..start + 18].fill(0);
    let len = u32::try_from(end - start).unwrap_or(0);
    let ends = sum(&frame[SOURCE..GOAL + 4]);
    let of_segment = folded(ends + u32::from(TCP) + len + sum(&frame[start..end]));
    frame[start + 16..start + 18].copy_from_slice(&of_segment);
}

/// What a stranger says to a frame of the machine: where it is; or that it wants no connection.
pub(super) fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    if frame.get(6..12)? != CARD {
        return None;
    }
    match frame.get(KIND..BODY)?.try_into().ok()? {
        ARP => answer_arp(frame),
        IPV4 => refuse(frame),
        _ => None,
    }
}

fn answer_arp(frame: &[u8]) -> Option<Vec<u8>> {
    let target = *frame.get(ARP_TARGET..)?.first_chunk()?;
    if !is_strange(target) {
        return None;
    }
    let mut answer = vec![0; MIN];
    answer[KIND..BODY].copy_from_slice(&ARP);
    // Ethernet and IPv4, an answer; to the machine, as it is.
    answer[BODY..ARP_SENDER].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    answer[ARP_SENDER + 10..][..6].copy_from_slice(&CARD);
    introduce(&mut answer, target);
    Some(answer)
}

/// A reset for who answers to a connection that a frame seemed to want.
fn refuse(frame: &[u8]) -> Option<Vec<u8>> {
    const ACCEPTS: u8 = 0x12;
    const RESET: u8 = 4;
    let goal = *frame.get(GOAL..)?.first_chunk()?;
    let (header, end) = packet(frame)?;
    let segment = frame.get(BODY + header..end)?;
    if !is_strange(goal)
        || frame[BODY + 9] != TCP
        || segment.len() < 20
        || segment[13] & 0x3f != ACCEPTS
    {
        return None;
    }
    let mut answer = vec![0; MIN];
    answer[KIND..BODY].copy_from_slice(&IPV4);
    answer[BODY] = 0x45;
    answer[BODY + 3] = 40;
    (answer[BODY + 8], answer[BODY + 9]) = (64, TCP);
    let start = BODY + 20;
    answer[start..start + 2].copy_from_slice(&segment[2..4]);
    answer[start + 2..start + 4].copy_from_slice(&segment[..2]);
    // It goes on where the machine says that it is.
    answer[start + 4..start + 8].copy_from_slice(&segment[8..12]);
    (answer[start + 12], answer[start + 13]) = (0x50, RESET);
    introduce(&mut answer, goal);
    mend(&mut answer);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of the machine to a stranger, with these flags.
    fn segment(flags: u8) -> Vec<u8> {
        let mut frame = vec![0; MIN];
        introduce(&mut frame, stranger(3));
        frame[KIND..BODY].copy_from_slice(&IPV4);
        frame[6..12].copy_from_slice(&CARD);
        (frame[BODY], frame[BODY + 3], frame[BODY + 9]) = (0x45, 40, TCP);
        frame[SOURCE..GOAL].copy_from_slice(&MACHINE);
        frame[GOAL..GOAL + 4].copy_from_slice(&stranger(3));
        frame[BODY + 20..BODY + 32].copy_from_slice(&[0, 7, 1, 2, 0, 0, 0, 1, 0, 0, 0, 9]);
        frame[BODY + 33] = flags;
        mend(&mut frame);
        frame
    }

    /// Are its checksums right?
    fn is_right(frame: &[u8]) -> bool {
        let (header, end) = packet(frame).expect("a packet");
        let len = u32::try_from(end - BODY - header).expect("a frame");
        let ends = sum(&frame[SOURCE..GOAL + 4]) + u32::from(TCP) + len;
        let segment = folded(ends + sum(&frame[BODY + header..end]));
        folded(sum(&frame[BODY..BODY + header])) == [0; 2] && segment == [0; 2]
    }

    #[test]
    fn checksums_are_those_of_the_internet() {
        let mut frame = segment(0x12);
        assert!(is_right(&frame));
        frame[BODY + 25] ^= 1;
        assert!(!is_right(&frame));
        mend(&mut frame);
        assert!(is_right(&frame));
        // The example of RFC 1071.
        assert_eq!(
            folded(sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7])),
            [0x22, 0x0d]
        );
    }

    #[test]
    fn nothing_is_sent_in_the_name_of_a_client() {
        let mut rng = Rng::new(&[7]);
        let mut client = segment(0x10);
        client[SOURCE..GOAL].copy_from_slice(&[10, 0, 2, 2]);
        let heard = [client, segment(0x12), vec![0xff; MAX]];
        let (mut right, mut kinds) = (0, std::collections::BTreeSet::new());
        for _ in 0..100_000 {
            let frame = next(&mut rng, &heard);
            assert!((MIN..=MAX).contains(&frame.len()));
            kinds.insert(<[u8; 2]>::try_from(&frame[KIND..BODY]).unwrap());
            let from = match frame[KIND..BODY] == ARP {
                true => &frame[ARP_SENDER + 6..ARP_SENDER + 10],
                false => &frame[SOURCE..GOAL],
            };
            assert!(from[3] != 2 && from[3] != 3, "{from:?}");
            right += u32::from(packet(&frame).is_some() && is_right(&frame));
        }
        assert!(right > 1_000, "{right} would get further");
        assert!(kinds.len() > 2);
    }

    #[test]
    fn strangers_say_where_they_are_and_refuse_connections() {
        let mut asks = vec![0; MIN];
        asks[6..12].copy_from_slice(&CARD);
        asks[KIND..BODY].copy_from_slice(&ARP);
        asks[ARP_TARGET..ARP_TARGET + 4].copy_from_slice(&[10, 0, 2, FIRST + 5]);
        let told = answer(&asks).expect("an answer");
        assert_eq!(told[..6], CARD);
        assert_eq!(told[BODY + 7], 2);
        assert_eq!(
            told[ARP_SENDER..ARP_SENDER + 10],
            [2, 0, 10, 0, 2, 205, 10, 0, 2, 205]
        );
        asks[ARP_TARGET + 3] = 2;
        assert_eq!(answer(&asks), None, "that is no stranger");
        let reset = answer(&segment(0x12)).expect("a reset");
        assert!(is_right(&reset));
        assert_eq!(reset[BODY + 20..BODY + 28], [1, 2, 0, 7, 0, 0, 0, 9]);
        for flags in [0x10, 0x04, 0x02] {
            assert_eq!(answer(&segment(flags)), None);
        }
        assert_eq!(answer(&[0; 10]), None);
    }
}
