//! Fuzz test: a peer writes anything into the shared memory. Nothing is read or written outside of
//! the rings, and nothing loops.

use super::*;
use crate::shm::cells::CELL_BODY_MAX_BYTES;
use crate::shm::early::EarlyBody;
use crate::shm::memory::{
    CELL_BYTES, CELLS_AT, CELLS_PER_PAIR, FASTBOX_AT, FASTBOX_BYTES, LINE_BYTES, RECORDS_AT,
    RING_BYTES,
};
use crate::shm::reassembly::{Part, Reassembly, reassemble, reassemble_early};
use crate::shm::ring::{RECORD_MAX_BYTES, SPLIT_MAX_BYTES};
use crate::shm::test_ring::TestRing;
use crate::{Inbox, ProcId};
use ferry_fuzz::fuzz;

/// Counts the bytes of messages that come in parts. Takes them as streams, as fragments or whole.
#[derive(Default)]
struct Counting {
    streams: bool,
    fragments: bool,
    bytes: usize,
    buffer: Vec<u8>,
}

impl Inbox for Counting {
    fn on_message(&mut self, _: ProcId, _: u8, bytes: &[u8]) -> bool {
        assert!(bytes.len() <= SPLIT_MAX_BYTES.max(CELL_BYTES));
        self.bytes += bytes.len();
        false
    }
    fn on_message_start(&mut self, _: ProcId, _: u8, _: &[u8], _: usize) -> Option<usize> {
        self.streams.then_some(1)
    }
    fn stream_part(&mut self, _: ProcId, _: u8, head: &[u8], bytes: &[u8]) {
        assert_eq!(head.len(), 1);
        self.bytes += bytes.len();
    }
    fn takes_fragments(&self, _: u8) -> bool {
        self.fragments
    }
    fn stream_buffer(&mut self, _: ProcId, _: u8, _: &[u8], left: usize) -> Option<&mut [u8]> {
        self.buffer.resize(left.min(9000), 0);
        self.fragments.then_some(&mut self.buffer)
    }
    fn stream_written(&mut self, _: ProcId, _: u8, _: &[u8], bytes: usize) {
        self.bytes += bytes;
    }
    fn fragment_written(&mut self, _: ProcId, _: u8, _: &[u8], bytes: usize, _: bool) {
        self.bytes += bytes;
    }
    fn fragment_part(&mut self, _: ProcId, _: u8, _: &[u8], bytes: &[u8], _: bool) {
        self.bytes += bytes.len();
    }
}

/// Encodes a step of the harness's input: kind, offset, bytes.
fn step(kind: u8, at: u16, bytes: &[u8]) -> Vec<u8> {
    [&[kind, bytes.len() as u8], &at.to_le_bytes()[..], bytes].concat()
}

const POKE_DATA: u8 = 0;
const POKE_HEAD: u8 = 1;
const POKE_FASTBOX: u8 = 2;
const TAKE: u8 = 3;
const SEND: u8 = 4;
const SEND_SPLIT: u8 = 5;
const SEND_IN_CELL: u8 = 6;
const SEND_EARLY: u8 = 7;
/// Writes what is behind the first line of this process's and the peer's cells.
const POKE_WRITTEN: u8 = 8;

#[test]
fn fuzz_shared_memory() {
    let valid = |len: u64| (1 << 63 | 3 << 16 | len).to_le_bytes();
    let more = |len: u64| (5 << 61 | 1 << 56 | 3 << 16 | len).to_le_bytes();
    let long = |total: u64| [&more(16)[..], &total.to_le_bytes(), &[7; 8]].concat();
    let fastbox = |len: u64, offset: u64| (offset << 1 | len << 8 | 9 << 24).to_le_bytes();
    let cell_record = |marks: u64, cell: u64, len: u64| {
        let word = 3 << 62 | marks << 61 | 1 << 56 | 3 << 16 | 16;
        [word, cell | len << 32, 0].map(u64::to_le_bytes).concat()
    };
    // As the higher-numbered process would write: its own first cell, and cells that it does not
    // own.
    let half = CELLS_PER_PAIR as u64 / 2;
    let in_cell = |cell: u64, len: u64| {
        [
            step(POKE_DATA, 0, &cell_record(0, cell, len)),
            step(TAKE, 0, &[]),
        ]
        .concat()
    };
    let seeds = [
        in_cell(half, 40),
        in_cell(half, CELL_BODY_MAX_BYTES as u64),
        in_cell(half, CELL_BODY_MAX_BYTES as u64 + 1),
        in_cell(0, 40),
        in_cell(CELLS_PER_PAIR as u64, 40),
        [
            step(POKE_DATA, 0, &cell_record(0, half | 1 << 31, 40)),
            step(TAKE, 1, &[]),
            step(POKE_WRITTEN, 0, &17u64.to_le_bytes()),
            step(TAKE, 1, &[]),
            step(POKE_WRITTEN, 0, &u64::MAX.to_le_bytes()),
            step(TAKE, 0, &[]),
            step(SEND_EARLY, 40000, &[]).repeat(9),
        ]
        .concat(),
        [
            step(POKE_WRITTEN, 0, &(1u64 << 20).to_le_bytes()),
            in_cell(half | 1 << 31, CELL_BODY_MAX_BYTES as u64),
            in_cell((half + 1) | 1 << 31, 0),
        ]
        .concat(),
        [
            step(SEND_IN_CELL, 5000, &[]).repeat(9),
            in_cell(0, 40),
            step(POKE_HEAD, LINE_BYTES as u16 + 8, &[0xff; 8]),
            step(SEND_IN_CELL, 65535, &[]).repeat(9),
        ]
        .concat(),
        [
            step(POKE_DATA, 0, &cell_record(1, half, 40)),
            step(POKE_DATA, 64, &cell_record(0, half, 9)),
            step(TAKE, 0, &[]),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [step(POKE_DATA, 0, &valid(40)), step(TAKE, 0, &[])].concat(),
        [
            step(POKE_DATA, 0, &valid(RECORD_MAX_BYTES as u64)),
            step(TAKE, 0, &[]),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [
            step(POKE_DATA, 0, &(1u64 << 63 | 0xff << 16).to_le_bytes()),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [
            step(SEND, 20, &[]),
            step(POKE_FASTBOX, 0, &fastbox(FASTBOX_MAX_BYTES as u64, 8)),
            step(TAKE, 0, &[]),
            step(SEND, 20, &[]),
            step(POKE_FASTBOX, 0, &fastbox(0xffff, 15)),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [
            step(SEND, 20, &[]),
            step(SEND, 9000, &[]),
            step(POKE_HEAD, 0, &[0xff; 8]),
            step(SEND, 9000, &[]),
        ]
        .concat(),
        [
            step(POKE_DATA, 0, &long(16)),
            step(POKE_DATA, 64, &valid(8)),
            step(TAKE, 0, &[]),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [
            step(POKE_DATA, 0, &long(1 << 40)),
            step(POKE_DATA, 64, &long(24)),
            step(TAKE, 1, &[]),
            step(TAKE, 0, &[]),
        ]
        .concat(),
        [
            step(SEND_SPLIT, 50000, &[]).repeat(9),
            step(POKE_HEAD, 0, &(64 * 1024u64).to_le_bytes()),
            step(SEND_SPLIT, 65535, &[]),
        ]
        .concat(),
        [
            step(SEND, 3000, &[]).repeat(30),
            step(POKE_HEAD, 0, &(64 * 1024u64).to_le_bytes()),
            step(SEND, 3000, &[]).repeat(9),
        ]
        .concat(),
    ];
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    fuzz("shared memory", &seeds, |input| {
        there.clear();
        back.clear();
        let (out, into) = (there.base(), back.base());
        // SAFETY: both mappings outlive the pair; this is the lower-numbered process.
        let mut pair = unsafe {
            Pair::new(
                Writer::new(out),
                Reader::new(into),
                Fastbox::new(out.add(FASTBOX_AT), true),
                Cells::new(out, into, true, CELLS_PER_PAIR),
            )
        };
        let mut outcome = Vec::new();
        let (mut long, mut inbox) = (None::<Reassembly>, Counting::default());
        let mut rest = input;
        while let [kind, len, low, high, tail @ ..] = rest {
            let (bytes, tail) = tail.split_at(usize::from(*len).min(tail.len()));
            rest = tail;
            let at = usize::from(u16::from_le_bytes([*low, *high]));
            // SAFETY: this test's own memory, within its bounds; nobody else uses it now.
            let poke = |base: *mut u8, at: usize, end: usize| unsafe {
                let n = bytes.len().min(end.saturating_sub(at));
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(at), n);
            };
            match kind % 9 {
                POKE_DATA => poke(into, RECORDS_AT + at / LINE_BYTES * LINE_BYTES, RING_BYTES),
                POKE_HEAD => poke(out, at % FASTBOX_AT, FASTBOX_AT),
                POKE_FASTBOX => poke(
                    out,
                    FASTBOX_AT + at % FASTBOX_BYTES,
                    FASTBOX_AT + FASTBOX_BYTES,
                ),
                TAKE => {
                    let (ring, other, line) = (
                        into as usize..into as usize + RING_BYTES,
                        out as usize + RECORDS_AT..out as usize + RING_BYTES,
                        out as usize + FASTBOX_AT..out as usize + FASTBOX_AT + FASTBOX_BYTES,
                    );
                    let inside = |bytes: &[u8], memory: &std::ops::Range<usize>| {
                        let from = bytes.as_ptr() as usize;
                        from >= memory.start && from + bytes.len() <= memory.end
                    };
                    let next = pair.next();
                    let in_cell = matches!(next, Next::InCell(..) | Next::Early(..));
                    let release = match next {
                        Next::Nothing => false,
                        Next::Malformed => {
                            outcome.push(1 << 20);
                            break;
                        }
                        Next::Fastbox(_, bytes) => {
                            assert!(inside(bytes, &line));
                            outcome.push(bytes.len());
                            false
                        }
                        Next::Record(message, bytes, more)
                        | Next::InCell(message, bytes, more, _) => {
                            // Cells are behind both rings.
                            assert!(inside(bytes, &ring) || in_cell && inside(bytes, &other));
                            assert!(
                                bytes.len()
                                    <= if in_cell {
                                        CELL_BYTES
                                    } else {
                                        RECORD_MAX_BYTES
                                    }
                            );
                            inbox.streams = at % 2 == 1;
                            if (more || long.is_some())
                                && reassemble(
                                    1,
                                    &mut long,
                                    &Part {
                                        message,
                                        bytes,
                                        more,
                                    },
                                    &mut inbox,
                                )
                                .is_err()
                            {
                                outcome.push(1 << 23 | inbox.bytes);
                                break;
                            }
                            outcome.push(1 << 16 | bytes.len());
                            true
                        }
                        Next::Early(message, record) => {
                            inbox.streams = at % 2 == 1;
                            inbox.fragments = at % 3 == 1;
                            let bytes = pair.early_bytes(at);
                            assert!(inside(bytes, &ring) || inside(bytes, &other));
                            let body = EarlyBody::new(&pair, record.body_len);
                            let head = record.head();
                            match reassemble_early(1, &mut long, message, head, &body, &mut inbox) {
                                Ok(whole) => whole,
                                Err(_) => {
                                    outcome.push(1 << 26 | inbox.bytes);
                                    break;
                                }
                            }
                        }
                    };
                    let wakes = match (release, in_cell) {
                        (false, _) => false,
                        (true, false) => pair.release(),
                        (true, true) => pair.release_cell(),
                    };
                    if wakes {
                        outcome.push(1 << 21);
                    }
                }
                SEND_SPLIT => {
                    let sent = pair.send_split(
                        3,
                        &[1; 16],
                        &vec![0xcd; at.max(RECORD_MAX_BYTES)],
                        len % 2 == 0,
                    );
                    outcome.push(1 << 24 | usize::from(sent));
                }
                SEND_EARLY => {
                    let len = at.max(1);
                    let mut filled = 0;
                    let mut fill = |out: &mut [u8]| {
                        filled += out.len();
                        out.fill(0xee);
                    };
                    let sent = pair.send_early(*kind, &[1; 16], len, &mut fill);
                    assert_eq!(filled, if sent { len } else { 0 });
                    outcome.push(1 << 27 | usize::from(sent));
                }
                POKE_WRITTEN => poke(into, CELLS_AT, RING_BYTES),
                SEND_IN_CELL => {
                    let fill = |out: &mut [u8]| {
                        assert_eq!(out.len(), at);
                        out.fill(0xef);
                    };
                    let sent = pair.send_in_cell(*kind, &[1; 16], at, fill);
                    outcome.push(1 << 25 | usize::from(sent));
                }
                _ => {
                    let len = at % (RECORD_MAX_BYTES + 1);
                    let sent = pair.send(*kind, len.min(usize::from(*kind)), len, |out| {
                        assert_eq!(out.len(), len);
                        out.fill(0xab);
                    });
                    if !sent {
                        pair.request_wakeup();
                        outcome.push(1 << 22 | usize::from(pair.has_room()));
                    }
                }
            }
        }
        outcome
    });
}

/// Both sides of a pair over two rings' memory.
fn sides(there: &mut TestRing, back: &mut TestRing) -> (Pair, Pair) {
    let (out, into) = (there.base(), back.base());
    // SAFETY: the caller's mappings outlive the pairs; each is one side.
    unsafe {
        let fastbox = out.add(FASTBOX_AT);
        (
            Pair::new(
                Writer::new(out),
                Reader::new(into),
                Fastbox::new(fastbox, true),
                Cells::new(out, into, true, CELLS_PER_PAIR),
            ),
            Pair::new(
                Writer::new(into),
                Reader::new(out),
                Fastbox::new(fastbox, false),
                Cells::new(into, out, false, CELLS_PER_PAIR),
            ),
        )
    }
}

/// Reads the next message and frees it. Returns its number, and whether it was in a cell.
fn read(pair: &mut Pair) -> Option<(u8, bool)> {
    match pair.next() {
        Next::Fastbox(message, _) => Some((message, false)),
        Next::Record(message, ..) => {
            pair.release();
            Some((message, false))
        }
        Next::InCell(message, ..) | Next::Early(message, _) => {
            pair.release_cell();
            Some((message, true))
        }
        _ => None,
    }
}

/// While both sides send long messages, theirs go in cells, and wait where there is none.
#[test]
fn long_messages_of_both_sides_wait_for_cells() {
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    let (mut lower, mut upper) = sides(&mut there, &mut back);
    let short = |out: &mut [u8]| out.fill(1);
    // The first goes in the fastbox, the second in the ring.
    for _ in 0..2 {
        assert!(lower.send(1, 0, EXCHANGE_MIN_BYTES + 1, |out| out.fill(7)));
        assert_eq!(read(&mut upper), Some((1, false)));
    }
    assert!(!upper.exchanges(), "the peer has read everything");
    assert!(upper.send(2, 0, 8, short));
    assert!(upper.send(2, 0, 8, short));
    assert!(upper.exchanges());
    assert!(!lower.exchanges(), "nothing long has come from the peer");
    // As many as this side has cells, then none until the peer has read some.
    let body = vec![3; SPLIT_MAX_BYTES - LINE_BYTES];
    for sent in 0..CELLS_PER_PAIR / 2 {
        assert!(upper.send_split(4, b"head", &body, true), "message {sent}");
    }
    assert!(!upper.send_split(4, b"head", &body, true));
    assert_eq!(read(&mut lower), Some((2, false)));
    assert_eq!(read(&mut lower), Some((2, false)));
    for _ in 0..CELLS_PER_PAIR / 2 {
        assert_eq!(read(&mut lower), Some((4, true)));
    }
    assert_eq!(read(&mut lower), None);
    // The peer has given some back.
    assert!(upper.send_split(4, b"head", &body, true));
}

/// After as many messages as a program may have in flight it counts as one that sends one way.
#[test]
fn one_way_goes_by_the_ring_again() {
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    let (mut lower, mut upper) = sides(&mut there, &mut back);
    let short = |out: &mut [u8]| out.fill(1);
    assert!(upper.send_in_cell(1, b"head", EXCHANGE_MIN_BYTES, short));
    assert_eq!(read(&mut lower), Some((1, true)));
    for n in 0..LONG_MESSAGES_MAX {
        // Something is always to be read.
        assert!(lower.send(2, 0, 8, short) && lower.send(2, 0, 8, short));
        assert!(lower.exchanges(), "after {n} messages");
        assert!(lower.send_in_cell(3, b"head", 9, short));
        let all = std::iter::from_fn(|| read(&mut upper));
        assert_eq!(all.collect::<Vec<_>>(), [(2, false), (2, false), (3, true)]);
    }
    assert!(lower.send(2, 0, 8, short) && lower.send(2, 0, 8, short));
    assert!(!lower.exchanges());
}

/// Messages of both sides that were sent before either was read cross, whichever way they go. Those
/// in turns do not, and few of them end an exchange.
#[test]
fn messages_that_were_sent_before_either_was_read_cross() {
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    let (mut lower, mut upper) = sides(&mut there, &mut back);
    let len = CROSSED_MIN_BYTES + 1;
    let full = |out: &mut [u8]| out.fill(7);
    // In turns, by the fastbox.
    for _ in 0..3 {
        assert!(lower.send(1, 0, len, full));
        assert_eq!(read(&mut upper), Some((1, false)));
        assert!(upper.send(2, 0, len, full));
        assert_eq!(read(&mut lower), Some((2, false)));
        assert!(!lower.crosses() && !upper.crosses());
    }
    // Short ones count for nothing.
    assert!(lower.send(1, 0, 8, full) && upper.send(2, 0, 8, full));
    assert!(read(&mut upper).is_some() && read(&mut lower).is_some());
    assert!(!lower.crosses() && !upper.crosses());
    // One in the fastbox, the other in the ring.
    assert!(upper.send(2, 0, len, full));
    assert!(lower.send(1, 0, len, full));
    assert_eq!(read(&mut upper), Some((1, false)));
    assert_eq!(read(&mut lower), Some((2, false)));
    assert!(lower.crosses() && upper.crosses());
    // Both in cells.
    let body = vec![5; len];
    for _ in 0..2 * UNCROSSED_MESSAGES_MAX {
        assert!(lower.send_early_or_in_cell(1, b"head", &body));
        assert!(upper.send_early_or_in_cell(2, b"head", &body));
        assert_eq!(read(&mut upper), Some((1, true)));
        assert_eq!(read(&mut lower), Some((2, true)));
        assert!(lower.crosses() && upper.crosses());
    }
    // One in turns is one, however often its early record is looked at. It is short for a cell that
    // others would wait for.
    assert!(upper.send(2, 0, 8, full));
    assert_eq!(read(&mut lower), Some((2, false)));
    assert!(upper.send_early_or_in_cell(2, b"head", &body));
    for _ in 0..2 * UNCROSSED_MESSAGES_MAX {
        assert!(matches!(
            lower.next(),
            Next::Early(2, _) | Next::InCell(2, ..)
        ));
    }
    assert_eq!(read(&mut lower), Some((2, true)));
    assert!(lower.crosses() && !lower.exchanges() && !upper.exchanges());
    // In turns again.
    for _ in 0..=UNCROSSED_MESSAGES_MAX {
        assert!(lower.send(1, 0, len, full));
        assert!(read(&mut upper).is_some());
        assert!(upper.send(2, 0, len, full));
        assert!(read(&mut lower).is_some());
    }
    assert!(!lower.crosses() && !upper.crosses());
}

/// Where much waits to be read it is a stream, which goes by the ring.
#[test]
fn a_stream_of_both_sides_goes_by_the_ring() {
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    let (mut lower, mut upper) = sides(&mut there, &mut back);
    let body = vec![5; CROSSED_MIN_BYTES + 1];
    assert!(lower.send_in_cell(1, b"head", body.len(), |out| out.fill(7)));
    assert!(upper.send_in_cell(2, b"head", body.len(), |out| out.fill(7)));
    assert_eq!(read(&mut upper), Some((1, true)));
    let mut in_cells = 0;
    while upper.crosses() {
        assert!(upper.send_early_or_in_cell(2, b"head", &body));
        in_cells += 1;
    }
    let most = CROSSED_UNREAD_MAX_BYTES as usize / LINE_BYTES;
    assert!((1..=most).contains(&in_cells), "{in_cells}");
    assert!(upper.send(3, 0, body.len(), |out| out.fill(7)));
    for _ in 0..=in_cells {
        assert_eq!(read(&mut lower), Some((2, true)));
    }
    assert_eq!(read(&mut lower), Some((3, false)));
}

/// A writer that pauses in a body: what is there is read, and the rest by a later poll.
#[test]
fn an_early_record_is_read_as_far_as_it_is_written() {
    let (mut there, mut back) = (TestRing::new(), TestRing::new());
    let (mut lower, mut upper) = sides(&mut there, &mut back);
    let len = 3 * EARLY_RUN_BYTES + 5;
    let (mut inbox, mut partial) = (Counting::default(), None);
    inbox.fragments = true;
    let mut filled = 0;
    let mut fill = |run: &mut [u8]| {
        filled += run.len();
        // The record is there, and the runs before this one.
        let Next::Early(5, record) = upper.next() else {
            panic!("no early record")
        };
        assert_eq!((record.head(), record.body_len), (&b"head"[..], len));
        let body = EarlyBody::new(&upper, record.body_len);
        let whole = reassemble_early(1, &mut partial, 5, record.head(), &body, &mut inbox);
        assert!(matches!(whole, Ok(false)));
        assert_eq!(inbox.bytes, filled - run.len());
        run.fill(9);
    };
    assert!(lower.send_early(5, b"head", len, &mut fill));
    assert_eq!(filled, len);
    let Next::Early(5, record) = upper.next() else {
        panic!("no early record")
    };
    let body = EarlyBody::new(&upper, record.body_len);
    let whole = reassemble_early(1, &mut partial, 5, record.head(), &body, &mut inbox);
    assert!(matches!(whole, Ok(true)));
    assert_eq!((inbox.bytes, partial.is_none()), (len, true));
    upper.release_cell();
    assert!(matches!(upper.next(), Next::Nothing));
    // The reply goes into the same cell.
    assert!(upper.send_early(6, b"head", 9, &mut |out| out.fill(1)));
    assert!(matches!(lower.next(), Next::Early(6, _)));
    assert_eq!(lower.early_bytes(0), [1; 9]);
}
