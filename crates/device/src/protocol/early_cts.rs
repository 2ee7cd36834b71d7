//! Early CTS: the bytes of announced messages are requested before their receives are posted.
//!
//! A program that receives messages one by one posts a receive when the message before it is
//! there. Each message would then wait for a CTS and its DATA while the connection is idle. So a
//! receive that matches an RTS requests the messages behind it, too: those with the same key that
//! have been announced. Mostly their receives are posted before their bytes are read, which then go
//! straight into the receives' buffers. What is read before is buffered.
//!
//! DATA in answer to an early CTS has a number with [`EARLY`] in place of the receive's request.

use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, ProcId};
use crate::base::message::{Content, MatchedRts, Unexpected};
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::prepost::{PrepostHistory, peer_max_bytes};
use crate::queue::outgoing::Outgoing;
use smallvec::SmallVec;
use std::collections::HashMap;

/// The bit of a number in DATA that no request has.
pub(super) const EARLY: u32 = 1 << 31;
/// Unexpected messages that are looked at for some to request. A choice.
const LOOK_MAX: usize = 64;

/// A message that was requested early.
struct Message {
    from: ProcId,
    /// The sender's request.
    request: u32,
    len: u64,
    /// What has arrived before the receive was posted, and room for the rest once it is read.
    bytes: Vec<u8>,
    /// Bytes that have arrived before the receive was posted.
    received: usize,
    /// The receive, once it is posted.
    receive: Option<ReqId>,
}

/// What is known of a peer.
struct Peer {
    history: PrepostHistory,
    /// Bytes of its messages that were requested early and whose receives are not posted.
    ahead: u64,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer {
            history: PrepostHistory::of_early_cts(),
            ahead: 0,
        }
    }
}

/// The messages that were requested early, until they are complete and received.
#[derive(Default)]
pub(crate) struct EarlyCts {
    messages: HashMap<u32, Message>,
    /// The numbers of those whose receives are not posted, by sender and its request.
    numbers: HashMap<(ProcId, u32), u32>,
    next_number: u32,
    peers: HashMap<ProcId, Peer>,
}

/// The number of an early CTS in the head of DATA.
#[inline]
pub(crate) fn early_number(message: u8, head: &[u8]) -> Option<u32> {
    if !matches!(message, header::DATA | header::ZCOPY_DATA) {
        return None;
    }
    Fields(head).u32().filter(|n| n & EARLY != 0)
}

impl EarlyCts {
    /// Is there any message that was requested early?
    #[inline]
    pub fn any(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Is the receive of the message with this number posted?
    pub fn has_receive(&self, number: u32) -> bool {
        let message = self.messages.get(&number);
        message.is_none_or(|m| m.receive.is_some())
    }

    /// May messages of `from` be requested early now? Returns how many bytes of them: `most`
    /// together with those that were requested before, if these are no more than half of it.
    fn allowance(&mut self, from: ProcId, most: u64) -> Option<u64> {
        let Peer { history, ahead } = self.peers.entry(from).or_default();
        if *ahead > most / 2 {
            return None;
        }
        let allowed = history.allows();
        history.record(true);
        allowed.then(|| most.saturating_sub(*ahead))
    }

    /// A message of `len` bytes is requested. Returns its number.
    fn insert(&mut self, from: ProcId, request: u32, len: u64) -> u32 {
        let number = self.next_number | EARLY;
        self.next_number = (self.next_number + 1) & !EARLY;
        self.numbers.insert((from, request), number);
        self.peers.entry(from).or_default().ahead += len;
        let message = Message {
            from,
            request,
            len,
            bytes: Vec::new(),
            received: 0,
            receive: None,
        };
        self.messages.insert(number, message);
        number
    }

    /// A receive has matched an RTS. Returns the number of the message, if it was requested early.
    fn adopt(&mut self, rts: &MatchedRts) -> Option<u32> {
        let sender = (rts.from, rts.request);
        let number = *self.numbers.get(&sender)?;
        let message = self.messages.get_mut(&number)?;
        // Another message, of a peer that uses a request twice.
        if message.len != rts.len {
            return None;
        }
        self.numbers.remove(&sender);
        message.receive = Some(rts.req);
        let peer = self.peers.entry(rts.from).or_default();
        peer.ahead = peer.ahead.saturating_sub(message.len);
        // Only the first bytes, which come with the message before, have no room for the rest.
        if message.bytes.len() as u64 == message.len {
            peer.history.miss();
        } else {
            peer.history.count_sent();
        }
        Some(number)
    }

    /// Nothing more comes from `peer`. Messages that are complete stay.
    pub fn forget(&mut self, peer: ProcId) {
        self.peers.remove(&peer);
        let numbers = &mut self.numbers;
        self.messages.retain(|_, m| {
            let stays = m.from != peer || m.receive.is_none() && m.received as u64 == m.len;
            if !stays {
                numbers.remove(&(m.from, m.request));
            }
            stays
        });
    }
}

impl Worker {
    /// Who has announced this unexpected message, if others of that process may be requested early.
    /// Not where a card is told the receive's memory before the CTS: there is none yet.
    #[inline]
    pub fn allows_early_cts(&mut self, message: &Unexpected) -> Option<ProcId> {
        let announced = matches!(message.content, Content::Rts { address: 0, .. });
        (announced
            && self.threads.single()
            && !self.engine.deferred.any()
            && self
                .transports
                .features(message.from)
                .is_ok_and(|f| f.stream)
            && !self.transports.offloads_rendezvous(message.from))
        .then_some(message.from)
    }
}

impl Engine {
    /// Requests the next announced messages of `from` with this key.
    pub fn request_early(&mut self, from: ProcId, key: &Key) {
        let most = peer_max_bytes(self.size);
        let Some(mut room) = self.early_cts.allowance(from, most) else {
            return;
        };
        let mut found = SmallVec::<[(u32, u64); 16]>::new();
        for next in self.matcher.unexpected(key.context).take(LOOK_MAX) {
            let Content::Rts {
                address: 0,
                request,
                slot: None,
                sync: false,
            } = next.content
            else {
                continue;
            };
            if next.key != *key || next.from != from {
                continue;
            }
            if self.early_cts.numbers.contains_key(&(from, request)) {
                continue;
            }
            if next.len > room {
                break;
            }
            room -= next.len;
            found.push((request, next.len));
        }
        for (request, len) in found {
            let number = self.early_cts.insert(from, request, len);
            let head = Header::new().u32(request).u32(number);
            self.outbox
                .push(from, Outgoing::header_only(header::CTS, head));
        }
    }

    /// A receive has matched an RTS. If its bytes were requested early, they go to the receive.
    /// Returns false if they were not.
    pub fn adopt_early(&mut self, rts: &MatchedRts) -> bool {
        let Some(number) = self.early_cts.adopt(rts) else {
            return false;
        };
        let Some(message) = self.early_cts.messages.get_mut(&number) else {
            return false;
        };
        let (bytes, received) = (std::mem::take(&mut message.bytes), message.received);
        if received as u64 == message.len {
            self.early_cts.messages.remove(&number);
            let envelope = self.requests.envelope(rts.req);
            self.deliver(rts.req, envelope, &bytes);
            return true;
        }
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(rts.req) {
            // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
            // dropped.
            unsafe { sink.write(0, &bytes[..received]) };
        }
        self.begin_stream(rts.req, rts.from, received as u64, None);
        true
    }

    /// The memory for the next bytes of a message that was requested early, at most `remaining`.
    pub fn early_buffer(
        &mut self,
        from: ProcId,
        number: u32,
        remaining: usize,
    ) -> Option<&mut [u8]> {
        let message = self.early_cts.messages.get(&number)?;
        if message.from != from {
            return None;
        }
        if let Some(req) = message.receive {
            return self.receive_buffer(from, req, remaining);
        }
        let message = self.early_cts.messages.get_mut(&number)?;
        let len = message.len as usize;
        if message.bytes.len() < len {
            message.bytes.resize(len, 0);
        }
        let at = message.received;
        message.bytes.get_mut(at..len.min(at + remaining))
    }

    /// `bytes` bytes of a message that was requested early have arrived, as for
    /// [`Engine::on_stream`]. Returns whether the message is complete.
    pub fn advance_early(
        &mut self,
        from: ProcId,
        number: u32,
        bytes: usize,
        data: Option<&[u8]>,
    ) -> Option<bool> {
        let message = self.early_cts.messages.get_mut(&number)?;
        if message.from != from {
            return None;
        }
        if let Some(req) = message.receive {
            let complete = self.advance_stream(from, req, bytes, data);
            if complete != Some(false) {
                self.early_cts.messages.remove(&number);
            }
            return complete;
        }
        let fits = bytes.min(message.len as usize - message.received);
        if let Some(data) = data {
            let at = message.received;
            if message.bytes.len() < at + fits {
                message.bytes.resize(at + fits, 0);
            }
            message.bytes[at..at + fits].copy_from_slice(&data[..fits]);
        }
        message.received += fits;
        let complete = message.received as u64 == message.len;
        // The sender counts a stream once, too.
        self.received += u64::from(complete);
        (fits == bytes).then_some(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Sink;
    use crate::base::key::{ContextId, Pattern, Tags};
    use crate::protocol::prepost::PEER_MAX_BYTES;
    use ferry_transport::Inbox;

    const PEER: ProcId = 3;
    const LEN: usize = 100_000;

    fn key(tag: u32) -> Key {
        Key {
            context: ContextId::WORLD,
            source: PEER,
            tag,
        }
    }

    fn new_engine() -> Engine {
        let mut engine = Engine::new(0);
        engine.size = 8;
        engine
    }

    /// The peer announces a message, with the number of its request.
    fn announce(engine: &mut Engine, message: u8, tag: u32, len: u64, request: u32) {
        let head = Header::new().key(&key(tag)).u64(len).u64(0).u32(request);
        engine.on_message(PEER, message, head.bytes());
    }

    fn receive(engine: &mut Engine, room: &mut [u8], tag: u32) -> ReqId {
        let pattern = Pattern {
            context: ContextId::WORLD,
            source: Some(PEER),
            tag: Tags::from(Some(tag)),
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
            Some(message) => {
                let key = message.key;
                engine.on_matched_unexpected(req, message);
                engine.request_early(PEER, &key);
            }
        }
        req
    }

    /// Takes the CTS that are queued: the peer's requests, and what DATA is to name.
    fn take_cts(engine: &mut Engine) -> Vec<(u32, u32)> {
        let _ = engine.outbox.take_peers();
        let queue = engine.outbox.take_queue(PEER);
        let fields = queue.iter().map(|cts| {
            assert_eq!(cts.message, header::CTS);
            let mut fields = Fields(cts.head.bytes());
            (fields.u32().unwrap(), fields.u32().unwrap())
        });
        fields.collect()
    }

    /// Delivers a stream in parts, as a transport does. `direct`: into the engine's buffers.
    fn deliver(engine: &mut Engine, number: u32, data: &[u8], direct: bool) {
        let head = Header::new().u32(number);
        for piece in data.chunks(30_001) {
            let mut at = 0;
            while at < piece.len() {
                let rest = &piece[at..];
                let room = engine.stream_buffer(PEER, header::DATA, head.bytes(), rest.len());
                match room.filter(|r| direct && !r.is_empty()) {
                    Some(room) => {
                        let n = room.len();
                        room.copy_from_slice(&rest[..n]);
                        engine.stream_written(PEER, header::DATA, head.bytes(), n);
                        at += n;
                    }
                    None => {
                        engine.stream_part(PEER, header::DATA, head.bytes(), rest);
                        at = piece.len();
                    }
                }
            }
        }
    }

    #[test]
    fn the_next_announced_messages_with_the_same_key_are_requested() {
        let (mut engine, mut room) = (new_engine(), [0; 1]);
        let len = LEN as u64;
        for (request, tag) in [(0, 5), (1, 5), (2, 6), (3, 5), (4, 5)] {
            let kind = match request {
                3 => header::RTS_SYNC,
                _ => header::RTS,
            };
            announce(&mut engine, kind, tag, len, request);
        }
        let req = receive(&mut engine, &mut room, 5);
        let asked = take_cts(&mut engine);
        let requests: Vec<u32> = asked.iter().map(|cts| cts.0).collect();
        assert_eq!(requests, [0, 1, 4], "no other tag, and no synchronous send");
        assert_eq!(asked[0].1, req.0);
        assert!(asked[1..].iter().all(|cts| cts.1 & EARLY != 0));
        receive(&mut engine, &mut room, 5);
        assert_eq!(
            take_cts(&mut engine),
            [],
            "the next one was requested before"
        );
        receive(&mut engine, &mut room, 5);
        let sync = take_cts(&mut engine);
        assert_eq!((sync.len(), sync[0].0), (1, 3));
        assert_eq!(sync[0].1 & EARLY, 0, "its receive was posted");
    }

    #[test]
    fn at_most_so_many_bytes_are_requested() {
        let (mut engine, mut room) = (new_engine(), [0; 1]);
        let announced = |engine: &mut Engine, len: u64, count: u32| {
            for request in 0..count {
                announce(engine, header::RTS, 5, len, request);
            }
        };
        announced(&mut engine, PEER_MAX_BYTES / 4 + 1, 9);
        receive(&mut engine, &mut room, 5);
        assert_eq!(take_cts(&mut engine).len(), 1 + 3);
        let (mut engine, mut room) = (new_engine(), [0; 1]);
        announced(&mut engine, PEER_MAX_BYTES, 3);
        receive(&mut engine, &mut room, 5);
        assert_eq!(take_cts(&mut engine).len(), 1 + 1);
        for (size, len) in [(8, PEER_MAX_BYTES + 1), (1 << 20, 65_000)] {
            let (mut engine, mut room) = (new_engine(), [0; 1]);
            engine.size = size;
            announced(&mut engine, len, 3);
            receive(&mut engine, &mut room, 5);
            assert_eq!(take_cts(&mut engine).len(), 1, "{len} of {size}");
        }
    }

    #[test]
    fn bytes_reach_a_receive_that_is_posted_before_meanwhile_and_after() {
        let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        for (direct, room) in [(true, LEN), (false, LEN), (true, LEN - 1000), (false, 10)] {
            for posted_at in [0, 1, 50_000, LEN - 1, LEN] {
                let mut engine = new_engine();
                let (mut first, mut memory) = ([0; 1], vec![0; room]);
                for request in 0..2 {
                    announce(&mut engine, header::RTS, 5, LEN as u64, request);
                }
                receive(&mut engine, &mut first, 5);
                let number = take_cts(&mut engine)[1].1;
                let before = engine.received;
                let head = Header::new().u32(number);
                assert!(engine.stream_is_unexpected(PEER, header::DATA, head.bytes()));
                deliver(&mut engine, number, &data[..posted_at], direct);
                let req = receive(&mut engine, &mut memory, 5);
                assert!(!engine.stream_is_unexpected(PEER, header::DATA, head.bytes()));
                deliver(&mut engine, number, &data[posted_at..], direct);
                let done = engine.requests.peek(req).unwrap();
                assert_eq!(
                    (done.received, done.envelope.len),
                    (room as u64, LEN as u64)
                );
                assert_eq!(done.fault.is_some(), room < LEN);
                assert_eq!((engine.received - before, engine.malformed), (1, 0));
                assert!(!engine.early_cts.any());
                drop(engine);
                assert!(memory == data[..room]);
            }
        }
    }

    #[test]
    fn after_a_late_receive_nothing_is_requested_for_a_while() {
        let (mut engine, mut room) = (new_engine(), [0; 1]);
        for request in 0..20 {
            announce(&mut engine, header::RTS, 5, LEN as u64, request);
        }
        receive(&mut engine, &mut room, 5);
        let asked = take_cts(&mut engine);
        assert_eq!(asked.len(), 11, "ten are ahead");
        for cts in &asked[1..] {
            deliver(&mut engine, cts.1, &[7; LEN], true);
        }
        for _ in 1..11 {
            receive(&mut engine, &mut room, 5);
            assert_eq!(take_cts(&mut engine), []);
        }
        let peer = &engine.early_cts.peers[&PEER];
        assert!(!peer.history.allows());
        assert_eq!(peer.ahead, 0);
        let asked: Vec<usize> = (11..20)
            .map(|_| {
                receive(&mut engine, &mut room, 5);
                take_cts(&mut engine).len()
            })
            .collect();
        assert_eq!(asked, [1; 9], "each when its receive is posted");
        assert!(!engine.early_cts.any() && engine.early_cts.numbers.is_empty());
    }

    #[test]
    fn complete_messages_of_a_lost_peer_are_received_and_what_is_malformed_is_dropped() {
        let (mut engine, mut memory) = (new_engine(), vec![0; LEN]);
        for request in 0..3 {
            announce(&mut engine, header::RTS, 5, LEN as u64, request);
        }
        receive(&mut engine, &mut [0; 1], 5);
        let asked = take_cts(&mut engine);
        deliver(&mut engine, asked[1].1, &[7; LEN], true);
        deliver(&mut engine, asked[2].1, &[8; LEN - 1], true);
        let head = Header::new().u32(asked[2].1);
        engine.stream_part(PEER, header::DATA, head.bytes(), &[8; 3]);
        engine.stream_part(PEER + 1, header::DATA, head.bytes(), &[8; 1]);
        let unknown = Header::new().u32(EARLY | 99);
        engine.stream_part(PEER, header::DATA, unknown.bytes(), &[8; 1]);
        assert_eq!(engine.malformed, 3);
        engine.early_cts.forget(PEER);
        let req = receive(&mut engine, &mut memory, 5);
        assert_eq!(engine.requests.peek(req).unwrap().received, LEN as u64);
        assert!(memory.iter().all(|&b| b == 7));
    }
}
