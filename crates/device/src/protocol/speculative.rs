//! Large messages that are sent without asking.
//!
//! One that is announced waits for its receiver's answer: two more packets between it and its end,
//! each of which costs both cores as much as 30 KiB of the message itself. So where a peer's
//! receives were there when its last large messages were announced, a message that has nothing
//! before it goes at once, as a stream whose head says what an eager message's does, straight into
//! the receive that it meets. On one node, where no wire carries streams, it goes in pieces, each
//! with that head; there the receiver could read it as well, and an announcement now and then lets
//! it choose anew.
//!
//! A receiver that has no receive for it keeps its bytes, and says so: then messages are announced
//! again until its receives have been there some more times. Before anything has come from it
//! since, no other one goes at once. So it keeps one message from each process, or as many as that
//! process had heard from it meanwhile; which is why they are shorter where there are many
//! processes.

use crate::base::buffer::Source;
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::request::{Asked, Fault, Operation, ReqId};
use crate::counters::COUNTERS;
use crate::device::{Device, SendMode};
use crate::matching::{Content, Unexpected};
use crate::protocol::engine::{Engine, Outgoing, Payload};
use crate::protocol::select::{CLASSES, class_of};
use crate::protocol::stream::LEND_MIN;
use crate::protocol::zero_copy::class;
use ferry_transport::{Features, ZeroCopy};
use std::collections::{HashMap, HashSet};

/// Bytes of the head.
const HEAD: usize = 24;
/// Bytes of a message that goes at once, at most: of longer ones the answer takes a small part of
/// the time.
const MOST: usize = 1024 * 1024;
/// Bytes that all processes together may send one at once, if each sends it one message.
const ALL: usize = 64 * 1024 * 1024;
/// Receives in a row that must have been there, at least, …
const MET_MIN: u32 = 2;
/// … and at most; twice as many after each that was not, …
const MET_MAX: u32 = 256;
/// … and half as many after so many messages that went at once.
const TRUSTED: u32 = 64;
/// Messages that go at once between two that are announced, where the receiver could as well read
/// them: so it hears how many there were, and may [try](crate::copying) whether that is faster.
const CHOICE: u32 = 32;

/// How well a peer's receives keep up with what is sent to it.
struct Pace {
    /// Receives in a row that were there when a message was announced.
    met: u32,
    /// As many must have been before the next message goes at once.
    wanted: u32,
    /// So many went at once since `wanted` changed, …
    went: u32,
    /// … and since one was announced.
    passed: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            met: 0,
            wanted: MET_MIN,
            went: 0,
            passed: 0,
        }
    }
}

/// The same for each class of lengths.
#[derive(Default)]
struct Paces {
    classes: [Pace; CLASSES],
    /// Of which the last message was that went at once.
    last: usize,
}

/// What is known of messages that go at once, in either direction.
#[derive(Default)]
pub(crate) struct Speculative {
    paces: HashMap<ProcId, Paces>,
    /// Peers to which one has gone, and from which nothing has come since.
    unheard: HashSet<ProcId>,
    /// Messages that are coming in, by sender.
    coming: HashMap<ProcId, Coming>,
    /// Messages, whole or in part, that have met no receive.
    kept: HashMap<u32, Kept>,
    /// The number of the next one.
    next: u32,
}

/// A message that is coming in.
struct Coming {
    to: Place,
    /// Bytes that are still to come.
    left: usize,
}

#[derive(Clone, Copy)]
enum Place {
    Receive(ReqId),
    Kept(u32),
}

/// The bytes of a message that has met no receive.
struct Kept {
    bytes: Box<[u8]>,
    /// Bytes of it that are here.
    got: usize,
}

impl Device {
    /// Does this message go without being announced?
    pub(crate) fn goes_at_once(
        &mut self,
        to: ProcId,
        source: &Source,
        mode: SendMode,
        features: Features,
    ) -> bool {
        let len = source.len();
        let most = MOST.min(ALL / self.size().max(1) as usize);
        let may = matches!(source, Source::Bytes { .. })
            && mode == SendMode::Standard
            && (features.batch || features.same_node)
            // Who exchanges messages does better to write and read by turns.
            && !(features.same_node && self.engine.requests.open() > 0)
            && len <= most
            // Otherwise it is the progress thread that sends it, while the program computes.
            && self.progress_thread.is_none()
            // Otherwise it must be possible to move what is left of it, or its ends go first.
            && self.engine.lends
            && !self.engine.sends_edges
            && self.engine.outbox_empty(to);
        if !may
            || !self
                .engine
                .speculative
                .may_send(to, len, features.same_node)
        {
            return false;
        }
        let lent = len >= LEND_MIN
            && match self.wires.zero_copy(to) {
                ZeroCopy::Never => false,
                ZeroCopy::Always => true,
                ZeroCopy::IfFaster => {
                    let choices = self.engine.zero_copy.get(&to);
                    choices.is_some_and(|c| c[class(len)].lends())
                }
            };
        !lent
    }

    /// Sends a message that [`goes_at_once`](Device::goes_at_once), as far as there is room; the
    /// rest follows when there is.
    pub(crate) fn send_at_once(&mut self, to: ProcId, key: Key, source: Source) -> ReqId {
        self.engine.speculative.went(to, source.len());
        let head = Header::new().key(&key).u64(source.len() as u64);
        let req = self.engine.requests.insert(Operation::SendLarge {
            to,
            source,
            asked: Asked::Needless,
        });
        let payload = Payload::Stream {
            req,
            offset: 0,
            settled: true,
        };
        self.engine.queue(
            to,
            Outgoing {
                message: header::SPECULATIVE,
                head,
                payload,
            },
        );
        self.flush();
        req
    }
}

impl Speculative {
    /// `chosen`: the receiver has another way to get the bytes, and chooses.
    fn may_send(&self, to: ProcId, len: usize, chosen: bool) -> bool {
        let paces = self.paces.get(&to);
        let pace = paces.map(|p| &p.classes[class_of(len as u64)]);
        pace.is_some_and(|p| p.met >= p.wanted && !(chosen && p.passed >= CHOICE))
            && !self.unheard.contains(&to)
    }

    /// A message of `len` bytes is announced to `peer`: how many like it went at once since the
    /// last one that was.
    pub fn announced(&mut self, peer: ProcId, len: u64) -> u32 {
        let paces = self.paces.get_mut(&peer);
        paces.map_or(0, |p| std::mem::take(&mut p.classes[class_of(len)].passed))
    }

    fn went(&mut self, to: ProcId, len: usize) {
        let paces = self.paces.entry(to).or_default();
        paces.last = class_of(len as u64);
        let pace = &mut paces.classes[paces.last];
        pace.went += 1;
        pace.passed += 1;
        if pace.went >= TRUSTED {
            (pace.went, pace.wanted) = (0, (pace.wanted / 2).max(MET_MIN));
        }
        self.unheard.insert(to);
    }

    /// Something has come from there.
    #[inline]
    pub fn hear(&mut self, from: ProcId) {
        if !self.unheard.is_empty() {
            self.hear_of(from);
        }
    }

    fn hear_of(&mut self, from: ProcId) {
        self.unheard.remove(&from);
    }

    /// A message that was announced to `peer` has met a receive: did that wait for it?
    pub fn note(&mut self, peer: ProcId, len: u64, waited: bool) {
        let pace = &mut self.paces.entry(peer).or_default().classes[class_of(len)];
        pace.met = if waited {
            pace.met.saturating_add(1)
        } else {
            0
        };
    }

    /// One that went at once has met none.
    pub fn note_late(&mut self, peer: ProcId) {
        let paces = self.paces.entry(peer).or_default();
        let pace = &mut paces.classes[paces.last];
        let wanted = (pace.wanted * 2).min(MET_MAX);
        (pace.met, pace.went, pace.wanted) = (0, 0, wanted);
    }

    /// Nothing more comes from there.
    pub fn forget(&mut self, peer: ProcId) {
        self.hear(peer);
        self.paces.remove(&peer);
        if let Some(Coming {
            to: Place::Kept(number),
            ..
        }) = self.coming.remove(&peer)
        {
            self.kept.remove(&number);
        }
    }
}

impl Engine {
    /// Bytes of a message that goes at once, with this head, are here: if they are its first, it is
    /// matched.
    fn begin_at_once(&mut self, from: ProcId, head: &[u8]) -> Option<()> {
        if self.speculative.coming.contains_key(&from) {
            return Some(());
        }
        let mut fields = Fields(head);
        let (key, len) = (fields.key()?, fields.u64()?);
        let left = usize::try_from(len)
            .ok()
            .filter(|l| (1..=MOST).contains(l))?;
        self.speculative.hear(from);
        COUNTERS.received[self.way(from)].add(len);
        let to = match self.matcher.match_message(&key) {
            Some(req) => {
                self.requests.set_envelope(req, key.envelope(len));
                self.begin_stream(req, from, 0, None);
                Place::Receive(req)
            }
            None => {
                let number = self.speculative.next;
                self.speculative.next = number.wrapping_add(1);
                let bytes = vec![0; left].into_boxed_slice();
                self.speculative.kept.insert(number, Kept { bytes, got: 0 });
                self.matcher.keep(Unexpected {
                    key,
                    from,
                    len,
                    content: Content::Speculative { number },
                });
                self.queue(from, Outgoing::head(header::UNEXPECTED, Header::new()));
                Place::Kept(number)
            }
        };
        self.speculative.coming.insert(from, Coming { to, left });
        Some(())
    }

    /// A piece of a message that goes at once, and its head. Kept out of the way of short messages.
    #[inline(never)]
    pub(crate) fn at_once_arrived(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let (head, data) = bytes.split_at_checked(HEAD)?;
        self.at_once_came(from, head, data.len(), Some(data))
    }

    /// Where the next bytes of a message that goes at once belong, at most `left`.
    pub(crate) fn at_once_room(
        &mut self,
        from: ProcId,
        head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        self.begin_at_once(from, head)?;
        let coming = self.speculative.coming.get(&from)?;
        let left = left.min(coming.left);
        match coming.to {
            Place::Receive(req) => self.stream_room(from, req, left),
            Place::Kept(number) => {
                let kept = self.speculative.kept.get_mut(&number)?;
                kept.bytes.get_mut(kept.got..kept.got + left)
            }
        }
    }

    /// So many bytes of such a message have been put where [`Engine::at_once_room`] said, or, with
    /// `data`, are to be put there. `None`: they make no sense.
    pub(crate) fn at_once_came(
        &mut self,
        from: ProcId,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<()> {
        self.begin_at_once(from, head)?;
        let coming = self.speculative.coming.get_mut(&from)?;
        let fits = bytes.min(coming.left);
        coming.left -= fits;
        let (to, whole) = (coming.to, coming.left == 0);
        if whole {
            self.speculative.coming.remove(&from);
        }
        let data = data.map(|d| &d[..fits]);
        match to {
            Place::Receive(req) => {
                self.stream_came(from, req, fits, data)?;
            }
            Place::Kept(number) => {
                let kept = self.speculative.kept.get_mut(&number)?;
                if let Some(data) = data {
                    kept.bytes[kept.got..kept.got + fits].copy_from_slice(data);
                }
                kept.got += fits;
                // As the sender has counted it: once.
                self.received += u64::from(whole);
            }
        }
        (fits == bytes).then_some(())
    }

    /// A receive has met a message that was kept: what there is of it.
    pub(crate) fn take_kept(&mut self, req: ReqId, from: ProcId, number: u32) {
        let Some(kept) = self.speculative.kept.remove(&number) else {
            // The rest will not come any more.
            return self.requests.fail(req, Fault::Transport);
        };
        if kept.got == kept.bytes.len() {
            let envelope = self.requests.envelope(req);
            return self.deliver(req, envelope, &kept.bytes);
        }
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
            // dropped.
            unsafe { sink.write(0, &kept.bytes[..kept.got]) };
        }
        self.begin_stream(req, from, kept.got as u64, None);
        if let Some(coming) = self.speculative.coming.get_mut(&from) {
            coming.to = Place::Receive(req);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Sink;
    use crate::base::key::{ContextId, Pattern, Tags};
    use ferry_transport::Inbox;

    const PEER: ProcId = 3;
    const LEN: usize = 100_000;

    fn key() -> Key {
        Key {
            context: ContextId::WORLD,
            source: PEER,
            tag: 9,
        }
    }

    fn head() -> Header {
        Header::new().key(&key()).u64(LEN as u64)
    }

    fn receive(engine: &mut Engine, room: &mut [u8]) -> ReqId {
        let pattern = Pattern {
            context: ContextId::WORLD,
            source: None,
            tag: Tags::ANY,
        };
        let waiting = engine.matcher.match_receive(&pattern);
        let req = engine.requests.insert(Operation::Receive {
            context: pattern.context,
            sink: Sink::Bytes {
                ptr: room.as_mut_ptr(),
                cap: room.len(),
            },
            stream: None,
        });
        match waiting {
            None => engine.matcher.post(pattern, req),
            Some(message) => engine.accept(req, message),
        }
        req
    }

    /// As a wire's reader does it: where the engine says if it does, in pieces.
    fn come(engine: &mut Engine, data: &[u8], place: bool) {
        let head = head();
        for piece in data.chunks(30_001) {
            let mut at = 0;
            while at < piece.len() {
                let rest = &piece[at..];
                let room =
                    engine.stream_buffer(PEER, header::SPECULATIVE, head.bytes(), rest.len());
                match room.filter(|r| place && !r.is_empty()) {
                    Some(room) => {
                        let n = room.len();
                        room.copy_from_slice(&rest[..n]);
                        engine.stream_placed(PEER, header::SPECULATIVE, head.bytes(), n);
                        at += n;
                    }
                    None => {
                        engine.stream_part(PEER, header::SPECULATIVE, head.bytes(), rest);
                        at = piece.len();
                    }
                }
            }
        }
    }

    /// As it comes where no wire carries streams: in pieces, each with the head.
    fn come_in_pieces(engine: &mut Engine, data: &[u8]) {
        for piece in data.chunks(30_001) {
            engine.on_message(PEER, header::SPECULATIVE, &[head().bytes(), piece].concat());
        }
    }

    fn said(engine: &Engine) -> Vec<u8> {
        let queue = engine.outbox.get(&PEER);
        queue.map_or(Vec::new(), |q| q.iter().map(|o| o.message).collect())
    }

    #[test]
    fn it_comes_to_its_receive_before_in_between_and_after() {
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        for (place, room) in [(true, LEN), (false, LEN), (true, LEN - 1000), (false, 10)] {
            for posted_at in [0, 1, 50_000, LEN - 1, LEN] {
                let (mut engine, mut memory) = (Engine::new(0), vec![0; room]);
                come(&mut engine, &data[..posted_at], place);
                let req = receive(&mut engine, &mut memory);
                come(&mut engine, &data[posted_at..], place);
                let done = engine.requests.peek(req).unwrap();
                assert_eq!(
                    (done.received, done.envelope.len),
                    (room as u64, LEN as u64)
                );
                assert_eq!(done.fault.is_some(), room < LEN);
                let late = if posted_at == 0 {
                    vec![]
                } else {
                    vec![header::UNEXPECTED]
                };
                assert_eq!((said(&engine), engine.received), (late, 1));
                let left = &engine.speculative;
                assert!(left.coming.is_empty() && left.kept.is_empty() && engine.malformed == 0);
                drop(engine);
                assert!(memory == data[..room]);
            }
        }
    }

    #[test]
    fn pieces_come_to_their_receive_as_a_stream_does() {
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        let pieces = LEN.div_ceil(30_001) as u64;
        for (posted_at, came) in [(0, pieces), (30_001, pieces), (LEN, pieces)] {
            let (mut engine, mut memory) = (Engine::new(0), vec![0; LEN]);
            come_in_pieces(&mut engine, &data[..posted_at]);
            let req = receive(&mut engine, &mut memory);
            come_in_pieces(&mut engine, &data[posted_at..]);
            let done = engine.requests.peek(req).unwrap();
            assert_eq!((done.received, done.fault), (LEN as u64, None));
            // Each piece counts, and the whole, as it does for the sender.
            assert_eq!((engine.received, engine.malformed), (came + 1, 0));
            drop(engine);
            assert!(memory == data);
        }
        let mut engine = Engine::new(0);
        engine.on_message(PEER, header::SPECULATIVE, &head().bytes()[..HEAD - 1]);
        assert_eq!(engine.malformed, 1, "less than a head");
    }

    #[test]
    fn of_a_lost_peer_what_is_whole_is_received_and_what_is_not_is_a_fault() {
        for part in [LEN, LEN - 1] {
            let (mut engine, mut memory) = (Engine::new(0), vec![0; LEN]);
            come(&mut engine, &vec![7; part], true);
            engine.speculative.forget(PEER);
            let req = receive(&mut engine, &mut memory);
            let done = engine.requests.peek(req).unwrap();
            assert_eq!(done.fault.is_some(), part < LEN);
        }
    }

    #[test]
    fn what_makes_no_sense_is_dropped() {
        let mut engine = Engine::new(0);
        for len in [0, MOST as u64 + 1, u64::MAX] {
            let head = Header::new().key(&key()).u64(len);
            engine.stream_part(PEER, header::SPECULATIVE, head.bytes(), &[1; 10]);
        }
        engine.stream_part(PEER, header::SPECULATIVE, &head().bytes()[..20], &[1; 10]);
        assert_eq!(engine.malformed, 4);
        come(&mut engine, &vec![7; LEN - 1], true);
        engine.stream_part(PEER, header::SPECULATIVE, head().bytes(), &[1; 2]);
        assert_eq!(
            (engine.malformed, engine.received),
            (5, 1),
            "too many bytes"
        );
    }

    #[test]
    fn only_those_go_at_once_whose_like_were_awaited_and_one_by_one() {
        let mut at_once = Speculative::default();
        assert!(!at_once.may_send(1, LEN, true));
        at_once.note(1, LEN as u64, true);
        assert!(!at_once.may_send(1, LEN, true));
        at_once.note(1, LEN as u64, true);
        assert!(at_once.may_send(1, LEN, true) && !at_once.may_send(2, LEN, true));
        at_once.went(1, LEN);
        assert!(!at_once.may_send(1, LEN, true));
        at_once.hear(2);
        assert!(!at_once.may_send(1, LEN, true), "that was another one");
        at_once.hear(1);
        assert!(at_once.may_send(1, LEN, true));
        at_once.note_late(1);
        for met in 0..2 * MET_MIN {
            assert!(!at_once.may_send(1, LEN, true), "after {met}");
            at_once.note(1, LEN as u64, true);
        }
        assert!(at_once.may_send(1, LEN, true));
        at_once.note(1, LEN as u64, false);
        assert!(!at_once.may_send(1, LEN, true));
        assert!(at_once.unheard.is_empty());
    }

    #[test]
    fn whose_receiver_may_choose_are_announced_now_and_then_and_each_class_for_itself() {
        let (mut at_once, more) = (Speculative::default(), 4 * LEN);
        for _ in 0..MET_MIN {
            at_once.note(1, LEN as u64, true);
        }
        assert!(!at_once.may_send(1, more, true), "another class");
        for _ in 0..3 {
            for _ in 0..CHOICE {
                assert!(at_once.may_send(1, LEN, true));
                at_once.went(1, LEN);
                at_once.hear(1);
            }
            assert!(!at_once.may_send(1, LEN, true) && at_once.may_send(1, LEN, false));
            assert_eq!(at_once.announced(1, more as u64), 0);
            assert_eq!(at_once.announced(1, LEN as u64), CHOICE);
        }
        // What was late is held against its own class.
        at_once.note(1, more as u64, true);
        at_once.note(1, more as u64, true);
        at_once.went(1, LEN);
        at_once.note_late(1);
        assert!(!at_once.may_send(1, LEN, true));
        at_once.hear(1);
        assert!(!at_once.may_send(1, LEN, true) && at_once.may_send(1, more, true));
    }
}
