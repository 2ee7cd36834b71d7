//! Speculative rendezvous: large messages without RTS and CTS.
//!
//! A rendezvous costs two more packets. Each of them costs both cores as much as 30 KiB of the
//! message. A large message is sent without RTS to a peer that has posted its last receives before
//! their messages. A transport with streams sends it as a stream. Within a node it is sent in
//! parts. The stream and each part have the header of an eager message with the length. Within a
//! node the receiver could choose single copy instead, so an RTS after [`RTS_PERIOD`] messages lets
//! it choose again.
//!
//! A receiver without a matching receive buffers the message and answers UNEXPECTED. The sender
//! then uses RTS again, until more of the peer's receives were preposted. After a speculative
//! message to a peer, the next one waits until a message of that peer has arrived. So a receiver
//! buffers at most one message of each process. The length limit is lower in larger jobs for the
//! same reason.

use crate::base::buffer::Source;
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::message::{Content, Unexpected};
use crate::base::request::{Cts, Fault, Operation, ReqId, SendMode};
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::prepost::{PEER_MAX_BYTES, PrepostHistory, peer_max_bytes};
use crate::protocol::select::{CLASSES, size_class};
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::Features;
use std::collections::{HashMap, HashSet};

/// Length of the header, bytes: match key and length.
const HEADER_BYTES: usize = 24;
/// Maximum length of a speculative message, bytes.
const SPECULATIVE_MAX_BYTES: usize = PEER_MAX_BYTES as usize;
/// Speculative messages between two RTS within a node. The RTS has their number, and the receiver
/// may choose single copy. A choice.
const RTS_PERIOD: u32 = 32;

/// The history of a peer's messages of a size class.
#[derive(Default)]
struct ClassHistory {
    prepost: PrepostHistory,
    /// Speculative messages since the last RTS.
    since_last_rts: u32,
}

/// The history of a peer, by size class.
#[derive(Default)]
struct PeerHistory {
    classes: [ClassHistory; CLASSES],
    /// The size class of the last speculative message.
    last_class: usize,
}

/// The state of speculative messages in both directions.
#[derive(Default)]
pub(crate) struct Speculative {
    history: HashMap<ProcId, PeerHistory>,
    /// Peers that were sent a speculative message and have sent nothing since.
    unanswered: HashSet<ProcId>,
    /// Messages that are arriving, by sender.
    incoming: HashMap<ProcId, Incoming>,
    /// Unexpected messages, whole or in part, by their number.
    buffered: HashMap<u32, Buffered>,
    /// The number of the next unexpected message.
    next_number: u32,
}

/// A message that is arriving.
struct Incoming {
    target: Target,
    /// Bytes that have not arrived yet.
    remaining: usize,
}

/// Where the bytes of a message are stored.
#[derive(Clone, Copy)]
enum Target {
    /// Into the buffer of this receive.
    Receive(ReqId),
    /// Into the buffer with this number.
    Buffer(u32),
}

/// An unexpected message.
struct Buffered {
    bytes: Box<[u8]>,
    /// Bytes that have arrived.
    received: usize,
}

impl Worker {
    /// May this message be speculative?
    pub fn may_speculate(
        &mut self,
        to: ProcId,
        source: &Source,
        mode: SendMode,
        features: Features,
    ) -> bool {
        let len = source.len();
        matches!(source, Source::Bytes { .. })
            && mode != SendMode::Synchronous
            && (features.batch || features.same_node)
            // Two ranks of a node that exchange messages are faster when they write and read by
            // turns.
            && !(features.same_node && self.engine.requests.pending() > 0)
            && len as u64 <= peer_max_bytes(self.size)
            // The progress thread sends large messages while the program computes.
            && !self.threads.progress
            // Zero copy is disabled where it must be possible to move what is left of a message.
            && self.engine.zero_copy.is_enabled()
            && self.engine.outbox.is_empty_for(to)
            && self
                .engine
                .speculative
                .allows(to, len, features.same_node)
            && !self.prefers_zero_copy(to, len)
    }

    /// Sends a speculative message, as far as there is room. The rest is queued.
    pub fn send_speculative(&mut self, to: ProcId, key: Key, source: Source) -> ReqId {
        self.engine.speculative.count_sent(to, source.len());
        let head = Header::new().key(&key).u64(source.len() as u64);
        let req = self.engine.requests.insert(Operation::SendLarge {
            to,
            source,
            cts: Cts::NotNeeded,
        });
        let payload = Payload::Stream {
            req,
            offset: 0,
            zero_copy_decided: true,
        };
        self.engine.outbox.push(
            to,
            Outgoing {
                message: header::SPECULATIVE,
                head,
                payload,
            },
        );
        self.offer_queued();
        req
    }
}

impl Speculative {
    /// Does the history of `to` allow a speculative message of `len` bytes? `same_node`: the
    /// receiver can choose single copy instead, if there is an RTS.
    fn allows(&self, to: ProcId, len: usize, same_node: bool) -> bool {
        let peer = self.history.get(&to);
        let history = peer.map(|p| &p.classes[size_class(len as u64)]);
        let trusted = history
            .is_some_and(|h| h.prepost.allows() && !(same_node && h.since_last_rts >= RTS_PERIOD));
        trusted && !self.unanswered.contains(&to)
    }

    /// An RTS goes to `peer`. Returns how many speculative messages of its size class have gone
    /// since the last one.
    pub fn take_since_last_rts(&mut self, peer: ProcId, len: u64) -> u32 {
        let peer = self.history.get_mut(&peer);
        peer.map_or(0, |p| {
            std::mem::take(&mut p.classes[size_class(len)].since_last_rts)
        })
    }

    /// Counts a speculative message that goes.
    fn count_sent(&mut self, to: ProcId, len: usize) {
        let peer = self.history.entry(to).or_default();
        peer.last_class = size_class(len as u64);
        let history = &mut peer.classes[peer.last_class];
        history.prepost.count_sent();
        history.since_last_rts += 1;
        self.unanswered.insert(to);
    }

    /// A message of `from` has arrived.
    #[inline]
    pub fn heard_from(&mut self, from: ProcId) {
        if !self.unanswered.is_empty() {
            self.set_answered(from);
        }
    }

    fn set_answered(&mut self, from: ProcId) {
        self.unanswered.remove(&from);
    }

    /// An announced message has matched at `peer`. `preposted`: its receive was posted before.
    pub fn record(&mut self, peer: ProcId, len: u64, preposted: bool) {
        let history = &mut self.history.entry(peer).or_default().classes[size_class(len)];
        history.prepost.record(preposted);
    }

    /// UNEXPECTED: the last speculative message to `peer` has found no receive.
    pub fn on_unexpected(&mut self, peer: ProcId) -> Option<()> {
        let peer = self.history.entry(peer).or_default();
        peer.classes[peer.last_class].prepost.miss();
        Some(())
    }

    /// Nothing more comes from `peer`.
    pub fn forget(&mut self, peer: ProcId) {
        self.heard_from(peer);
        self.history.remove(&peer);
        if let Some(Incoming {
            target: Target::Buffer(number),
            ..
        }) = self.incoming.remove(&peer)
        {
            self.buffered.remove(&number);
        }
    }
}

impl Engine {
    /// Bytes of a speculative message with this header are here. If they are its first, the message
    /// is matched.
    fn begin_speculative(&mut self, from: ProcId, head: &[u8]) -> Option<()> {
        if self.speculative.incoming.contains_key(&from) {
            return Some(());
        }
        let mut fields = Fields(head);
        let (key, len) = (fields.key()?, fields.u64()?);
        let remaining = usize::try_from(len)
            .ok()
            .filter(|l| (1..=SPECULATIVE_MAX_BYTES).contains(l))?;
        self.speculative.heard_from(from);
        self.count_received(from, len);
        let target = match self.matcher.match_message(&key) {
            Some(req) => {
                self.requests.set_envelope(req, key.envelope(len));
                self.begin_stream(req, from, 0, None);
                Target::Receive(req)
            }
            None => {
                let number = self.speculative.next_number;
                self.speculative.next_number = number.wrapping_add(1);
                let bytes = vec![0; remaining].into_boxed_slice();
                let message = Buffered { bytes, received: 0 };
                self.speculative.buffered.insert(number, message);
                self.matcher.queue_unexpected(Unexpected {
                    key,
                    from,
                    len,
                    content: Content::Speculative { number },
                });
                let answer = Outgoing::header_only(header::UNEXPECTED, Header::new());
                self.outbox.push(from, answer);
                Target::Buffer(number)
            }
        };
        let message = Incoming { target, remaining };
        self.speculative.incoming.insert(from, message);
        Some(())
    }

    /// SPECULATIVE where no transport carries streams: the header and a part of the message. Not
    /// inlined, so that short messages do not pass by its code.
    #[inline(never)]
    pub fn on_speculative(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let (head, data) = bytes.split_at_checked(HEADER_BYTES)?;
        self.advance_speculative(from, head, data.len(), Some(data))
    }

    /// The memory for the next bytes of a speculative message, at most `remaining`.
    pub fn speculative_buffer(
        &mut self,
        from: ProcId,
        head: &[u8],
        remaining: usize,
    ) -> Option<&mut [u8]> {
        self.begin_speculative(from, head)?;
        let incoming = self.speculative.incoming.get(&from)?;
        let remaining = remaining.min(incoming.remaining);
        match incoming.target {
            Target::Receive(req) => self.receive_buffer(from, req, remaining),
            Target::Buffer(number) => {
                let message = self.speculative.buffered.get_mut(&number)?;
                let at = message.received;
                message.bytes.get_mut(at..at + remaining)
            }
        }
    }

    /// `bytes` bytes of a speculative message have arrived. With `data`, this function stores them.
    /// Otherwise they are in the buffer from [`Engine::speculative_buffer`]. `None`: malformed.
    pub fn advance_speculative(
        &mut self,
        from: ProcId,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<()> {
        self.begin_speculative(from, head)?;
        let incoming = self.speculative.incoming.get_mut(&from)?;
        let fits = bytes.min(incoming.remaining);
        incoming.remaining -= fits;
        let (target, complete) = (incoming.target, incoming.remaining == 0);
        if complete {
            self.speculative.incoming.remove(&from);
        }
        let data = data.map(|d| &d[..fits]);
        match target {
            Target::Receive(req) => {
                self.advance_stream(from, req, fits, data)?;
            }
            Target::Buffer(number) => {
                let message = self.speculative.buffered.get_mut(&number)?;
                if let Some(data) = data {
                    let at = message.received;
                    message.bytes[at..at + fits].copy_from_slice(data);
                }
                message.received += fits;
                // The sender counts the whole once, too.
                self.received += u64::from(complete);
            }
        }
        (fits == bytes).then_some(())
    }

    /// A receive has matched the unexpected message with this number.
    pub fn on_matched_speculative(&mut self, req: ReqId, from: ProcId, number: u32) {
        let Some(message) = self.speculative.buffered.remove(&number) else {
            // The sender is lost: the rest will not arrive.
            return self.requests.fail(req, Fault::Transport);
        };
        if message.received == message.bytes.len() {
            let envelope = self.requests.envelope(req);
            return self.deliver(req, envelope, &message.bytes);
        }
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
            // dropped.
            unsafe { sink.write(0, &message.bytes[..message.received]) };
        }
        self.begin_stream(req, from, message.received as u64, None);
        if let Some(incoming) = self.speculative.incoming.get_mut(&from) {
            incoming.target = Target::Receive(req);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Sink;
    use crate::base::key::{ContextId, Pattern, Tags};
    use crate::protocol::prepost::RUN_MIN;
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
            Some(message) => engine.on_matched_unexpected(req, message),
        }
        req
    }

    /// Delivers a stream in parts, as a transport does. `direct`: into the engine's buffers.
    fn deliver(engine: &mut Engine, data: &[u8], direct: bool) {
        let head = head();
        for piece in data.chunks(30_001) {
            let mut at = 0;
            while at < piece.len() {
                let rest = &piece[at..];
                let room =
                    engine.stream_buffer(PEER, header::SPECULATIVE, head.bytes(), rest.len());
                match room.filter(|r| direct && !r.is_empty()) {
                    Some(room) => {
                        let n = room.len();
                        room.copy_from_slice(&rest[..n]);
                        engine.stream_written(PEER, header::SPECULATIVE, head.bytes(), n);
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

    /// Delivers parts with a header each, as a transport without streams does.
    fn deliver_in_parts(engine: &mut Engine, data: &[u8]) {
        for piece in data.chunks(30_001) {
            engine.on_message(PEER, header::SPECULATIVE, &[head().bytes(), piece].concat());
        }
    }

    fn sent(engine: &Engine) -> Vec<u8> {
        let queue = engine.outbox.queue(PEER);
        queue.map_or(Vec::new(), |q| q.iter().map(|o| o.message).collect())
    }

    #[test]
    fn a_stream_meets_a_receive_posted_before_during_and_after() {
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        for (direct, room) in [(true, LEN), (false, LEN), (true, LEN - 1000), (false, 10)] {
            for posted_at in [0, 1, 50_000, LEN - 1, LEN] {
                let (mut engine, mut memory) = (Engine::new(0), vec![0; room]);
                deliver(&mut engine, &data[..posted_at], direct);
                let req = receive(&mut engine, &mut memory);
                deliver(&mut engine, &data[posted_at..], direct);
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
                assert_eq!((sent(&engine), engine.received), (late, 1));
                let state = &engine.speculative;
                assert!(
                    state.incoming.is_empty() && state.buffered.is_empty() && engine.malformed == 0
                );
                drop(engine);
                assert!(memory == data[..room]);
            }
        }
    }

    #[test]
    fn parts_reach_their_receive_like_a_stream() {
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        let pieces = LEN.div_ceil(30_001) as u64;
        for (posted_at, came) in [(0, pieces), (30_001, pieces), (LEN, pieces)] {
            let (mut engine, mut memory) = (Engine::new(0), vec![0; LEN]);
            deliver_in_parts(&mut engine, &data[..posted_at]);
            let req = receive(&mut engine, &mut memory);
            deliver_in_parts(&mut engine, &data[posted_at..]);
            let done = engine.requests.peek(req).unwrap();
            assert_eq!((done.received, done.fault), (LEN as u64, None));
            // Each piece counts, and the whole, as it does for the sender.
            assert_eq!((engine.received, engine.malformed), (came + 1, 0));
            drop(engine);
            assert!(memory == data);
        }
        let mut engine = Engine::new(0);
        engine.on_message(
            PEER,
            header::SPECULATIVE,
            &head().bytes()[..HEADER_BYTES - 1],
        );
        assert_eq!(engine.malformed, 1, "less than a head");
    }

    #[test]
    fn complete_messages_of_a_lost_peer_are_received_partial_ones_fail() {
        for part in [LEN, LEN - 1] {
            let (mut engine, mut memory) = (Engine::new(0), vec![0; LEN]);
            deliver(&mut engine, &vec![7; part], true);
            engine.speculative.forget(PEER);
            let req = receive(&mut engine, &mut memory);
            let done = engine.requests.peek(req).unwrap();
            assert_eq!(done.fault.is_some(), part < LEN);
        }
    }

    #[test]
    fn malformed_messages_are_dropped() {
        let mut engine = Engine::new(0);
        for len in [0, SPECULATIVE_MAX_BYTES as u64 + 1, u64::MAX] {
            let head = Header::new().key(&key()).u64(len);
            engine.stream_part(PEER, header::SPECULATIVE, head.bytes(), &[1; 10]);
        }
        engine.stream_part(PEER, header::SPECULATIVE, &head().bytes()[..20], &[1; 10]);
        assert_eq!(engine.malformed, 4);
        deliver(&mut engine, &vec![7; LEN - 1], true);
        engine.stream_part(PEER, header::SPECULATIVE, head().bytes(), &[1; 2]);
        assert_eq!(
            (engine.malformed, engine.received),
            (5, 1),
            "too many bytes"
        );
    }

    #[test]
    fn speculation_needs_preposted_receives_and_one_message_at_a_time() {
        let mut speculative = Speculative::default();
        assert!(!speculative.allows(1, LEN, true));
        speculative.record(1, LEN as u64, true);
        assert!(!speculative.allows(1, LEN, true));
        speculative.record(1, LEN as u64, true);
        assert!(speculative.allows(1, LEN, true) && !speculative.allows(2, LEN, true));
        speculative.count_sent(1, LEN);
        assert!(!speculative.allows(1, LEN, true));
        speculative.heard_from(2);
        assert!(!speculative.allows(1, LEN, true), "that was another one");
        speculative.heard_from(1);
        assert!(speculative.allows(1, LEN, true));
        speculative.on_unexpected(1);
        for count in 0..2 * RUN_MIN {
            assert!(!speculative.allows(1, LEN, true), "after {count}");
            speculative.record(1, LEN as u64, true);
        }
        assert!(speculative.allows(1, LEN, true));
        speculative.record(1, LEN as u64, false);
        assert!(!speculative.allows(1, LEN, true));
        assert!(speculative.unanswered.is_empty());
    }

    #[test]
    fn within_a_node_each_size_class_sends_an_rts_now_and_then() {
        let (mut speculative, more) = (Speculative::default(), 4 * LEN);
        for _ in 0..RUN_MIN {
            speculative.record(1, LEN as u64, true);
        }
        assert!(!speculative.allows(1, more, true), "another class");
        for _ in 0..3 {
            for _ in 0..RTS_PERIOD {
                assert!(speculative.allows(1, LEN, true));
                speculative.count_sent(1, LEN);
                speculative.heard_from(1);
            }
            assert!(!speculative.allows(1, LEN, true) && speculative.allows(1, LEN, false));
            assert_eq!(speculative.take_since_last_rts(1, more as u64), 0);
            assert_eq!(speculative.take_since_last_rts(1, LEN as u64), RTS_PERIOD);
        }
        // An unexpected message counts against its own size class.
        speculative.record(1, more as u64, true);
        speculative.record(1, more as u64, true);
        speculative.count_sent(1, LEN);
        speculative.on_unexpected(1);
        assert!(!speculative.allows(1, LEN, true));
        speculative.heard_from(1);
        assert!(!speculative.allows(1, LEN, true) && speculative.allows(1, more, true));
    }
}
