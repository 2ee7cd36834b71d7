//! Deferred receives: the CTS of a large message is sent only when the crates above release it.
//!
//! A deferred receive that matches an RTS sends no CTS until it is released. The edges of the
//! message are its first and last few bytes. EDGE_REQUEST requests them before the CTS, and the
//! message contains them again. A sender that knows that they are needed sends them before its RTS
//! (EDGES).

use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::message::MatchedRts;
use crate::base::request::{Cts, Operation, ReqId};
use crate::protocol::engine::Engine;
use crate::queue::outgoing::{Outgoing, Payload};
use std::collections::HashMap;

/// Maximum length of each edge of a message, bytes: one page.
pub const EDGE_MAX_BYTES: usize = 4096;

/// Minimum length of a message whose edges go before its RTS, bytes. The two edges are at most a
/// sixty-fourth of it.
pub(crate) const QUEUE_EDGES_MIN_BYTES: usize = 64 * 2 * EDGE_MAX_BYTES;
/// Maximum number of messages whose edges are kept until their RTS has matched. Further edges are
/// requested again. A choice.
const EARLY_EDGES_MAX: usize = 4096;

/// A deferred receive.
struct Deferred {
    /// Bytes needed of the message's first and last edge before the rest.
    edges: [usize; 2],
    /// EDGE_REQUEST for this edge is sent, and EDGE_DATA has not arrived.
    requested: [bool; 2],
    /// The RTS that has matched: its sender, and the sender's request.
    matched_rts: Option<(ProcId, u32)>,
    /// The receive is released: CTS may be sent.
    released: bool,
}

/// The deferred receives of a process.
#[derive(Default)]
pub(crate) struct DeferredReceives {
    receives: HashMap<ReqId, Deferred>,
    /// Edges that have arrived before their message's RTS has matched, by sender and its request.
    early_edges: HashMap<(ProcId, u32), Box<[u8]>>,
}

impl DeferredReceives {
    /// Is there any?
    #[inline]
    pub fn any(&self) -> bool {
        !self.receives.is_empty()
    }

    /// Makes a receive a deferred one, before it can match. `edges`: bytes that are needed of the
    /// message's first and last edge.
    pub fn insert(&mut self, req: ReqId, edges: [usize; 2]) {
        self.receives.insert(
            req,
            Deferred {
                edges: edges.map(|e| e.min(EDGE_MAX_BYTES)),
                requested: [false; 2],
                matched_rts: None,
                released: false,
            },
        );
    }

    /// Forgets a receive that has completed.
    pub fn remove(&mut self, req: ReqId) {
        self.receives.remove(&req);
    }

    /// Has an RTS matched this receive?
    pub fn has_matched_rts(&self, req: ReqId) -> bool {
        let deferred = self.receives.get(&req);
        deferred.is_some_and(|d| d.matched_rts.is_some())
    }

    /// Takes the edges that have arrived before the RTS with the sender's `request`.
    pub fn take_early_edges(&mut self, from: ProcId, request: u32) -> Option<Box<[u8]>> {
        match self.early_edges.is_empty() {
            true => None,
            false => self.early_edges.remove(&(from, request)),
        }
    }

    /// EDGES: the edges of a message whose RTS follows.
    pub fn on_edges(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let request = fields.u32()?;
        let edges = fields.0;
        if edges.is_empty() || edges.len() > 2 * EDGE_MAX_BYTES || !edges.len().is_multiple_of(2) {
            return None;
        }
        if self.early_edges.len() < EARLY_EDGES_MAX {
            self.early_edges.insert((from, request), edges.into());
        }
        Some(())
    }

    /// Drops the early edges of a lost `peer`. Returns the receives that have matched an RTS of it.
    pub fn forget(&mut self, peer: ProcId) -> Vec<ReqId> {
        self.early_edges.retain(|(from, _), _| *from != peer);
        let of_peer = |d: &Deferred| d.matched_rts.is_some_and(|(from, _)| from == peer);
        self.receives
            .iter()
            .filter(|(_, d)| of_peer(d))
            .map(|(req, _)| *req)
            .collect()
    }
}

impl Engine {
    /// Releases a deferred receive. Returns whether CTS is queued now.
    pub fn release_deferred(&mut self, req: ReqId) -> bool {
        let Some(deferred) = self.deferred.receives.get_mut(&req) else {
            return false;
        };
        if std::mem::replace(&mut deferred.released, true) {
            return false;
        }
        if let Some((from, request)) = deferred.matched_rts
            && !self.requests.is_complete(req)
        {
            self.queue_cts(req, from, request, None, false);
            return true;
        }
        false
    }

    /// Are the edges of a deferred receive, which is not complete, in its buffer?
    pub fn has_edges(&mut self, req: ReqId) -> bool {
        let total = self.requests.envelope(req).len;
        match self.deferred.receives.get(&req) {
            Some(deferred) if deferred.matched_rts.is_some() => {
                // A message of another length than expected is an error: its edges come with the
                // rest.
                let room = match self.requests.operation(req) {
                    Some(Operation::Receive { sink, .. }) => sink.capacity() as u64,
                    _ => return true,
                };
                deferred.requested == [false; 2] && total == room
            }
            Some(deferred) => deferred.edges == [0; 2],
            None => false,
        }
    }

    /// Queues the edges of a large send, before its RTS.
    pub fn queue_edges(&mut self, to: ProcId, req: ReqId) {
        let Some(Operation::SendLarge { source, .. }) = self.requests.operation(req) else {
            return;
        };
        let len = source.len();
        let each = EDGE_MAX_BYTES.min(len);
        let mut edges = vec![0; 2 * each];
        let (first, last) = edges.split_at_mut(each);
        // SAFETY: a large send's buffer is valid until its completion; both edges lie within it.
        unsafe {
            source.read(0, first);
            source.read(len - each, last);
        }
        self.outbox.push(
            to,
            Outgoing {
                message: header::EDGES,
                head: Header::new().u32(req.0),
                payload: Payload::Owned(edges.into_boxed_slice()),
            },
        );
    }

    /// A receive has matched an RTS. If it is deferred, its edges are stored from `early`, which
    /// arrived before the RTS, or requested. Returns false if the receive is not deferred.
    pub fn defer(&mut self, rts: &MatchedRts, early: Option<&[u8]>) -> bool {
        let (req, from, len, request) = (rts.req, rts.from, rts.len, rts.request);
        let Some(deferred) = self.deferred.receives.get_mut(&req) else {
            return false;
        };
        let sink = match self.requests.operation(req) {
            Some(Operation::Receive { sink, .. }) => Some(sink),
            _ => None,
        };
        deferred.matched_rts = Some((from, request));
        let mut missing = Vec::new();
        if let Some(sink) = sink
            && sink.capacity() as u64 == len
        {
            let offsets = [0, len.saturating_sub(deferred.edges[1] as u64)];
            for (edge, offset) in offsets.into_iter().enumerate() {
                let bytes = (deferred.edges[edge] as u64).min(len) as u32;
                let here = early.and_then(|early| {
                    let (first, last) = early.split_at(early.len() / 2);
                    match edge {
                        0 => first.get(..bytes as usize),
                        _ => last.get(last.len().checked_sub(bytes as usize)?..),
                    }
                });
                match here {
                    _ if bytes == 0 => {}
                    // SAFETY: the receive's buffer is valid until its completion; the bytes lie
                    // within it.
                    Some(here) => unsafe { sink.write(offset as usize, here) },
                    None => {
                        deferred.requested[edge] = true;
                        missing.push((offset, bytes));
                    }
                }
            }
        }
        let released = deferred.released;
        for (at, bytes) in missing {
            let head = Header::new().u32(request).u32(req.0).u64(at).u32(bytes);
            let message = Outgoing::header_only(header::EDGE_REQUEST, head);
            self.outbox.push(from, message);
        }
        if released {
            self.queue_cts(req, from, request, None, false);
        }
        true
    }

    /// EDGE_REQUEST: a receiver requests an edge of an announced message.
    pub fn on_edge_request(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let (mine, theirs) = (ReqId(fields.u32()?), fields.u32()?);
        let (at, len) = (usize::try_from(fields.u64()?).ok()?, fields.u32()? as usize);
        // After CTS the program may have reused the beginning of the buffer.
        let Some(Operation::SendLarge {
            to,
            source,
            cts: Cts::Awaited,
        }) = self.requests.operation(mine)
        else {
            return None;
        };
        let within = at.checked_add(len).is_some_and(|end| end <= source.len());
        if *to != from || len > EDGE_MAX_BYTES || !within {
            return None;
        }
        let mut edge = vec![0; len];
        // SAFETY: a large send's buffer is valid until its completion; the bytes lie within it.
        unsafe { source.read(at, &mut edge) };
        self.outbox.push(
            from,
            Outgoing {
                message: header::EDGE_DATA,
                head: Header::new().u32(theirs).u64(at as u64),
                payload: Payload::Owned(edge.into_boxed_slice()),
            },
        );
        Some(())
    }

    /// EDGE_DATA: an edge that was requested.
    pub fn on_edge_data(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let (req, at) = (ReqId(fields.u32()?), fields.u64()?);
        let data = fields.0;
        let deferred = self.deferred.receives.get_mut(&req)?;
        if deferred
            .matched_rts
            .is_none_or(|(sender, _)| sender != from)
        {
            return None;
        }
        let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) else {
            return None;
        };
        let room = sink.capacity() as u64;
        let edge = (0..2).find(|&edge| {
            let bytes = (deferred.edges[edge] as u64).min(room);
            let offset = if edge == 0 { 0 } else { room - bytes };
            deferred.requested[edge] && offset == at && bytes == data.len() as u64
        })?;
        deferred.requested[edge] = false;
        // SAFETY: the receive's buffer is valid until its completion; the bytes lie within it.
        unsafe { sink.write(at as usize, data) };
        self.notifications += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::{Sink, Source};
    use crate::base::key::{ContextId, Key, Pattern, Tags};
    use ferry_transport::Inbox;
    use proptest::prelude::*;

    const PEER: ProcId = 3;

    fn announce(len: u64, request: u32) -> Vec<u8> {
        let key = Key {
            context: ContextId::WORLD,
            source: 3,
            tag: 9,
        };
        let head = Header::new().key(&key).u64(len).u64(0).u32(request);
        head.bytes().to_vec()
    }

    /// A deferred receive that is not posted, and its pattern.
    fn deferred_receive(
        engine: &mut Engine,
        room: &mut [u8],
        edges: [usize; 2],
    ) -> (Pattern, ReqId) {
        let sink = Sink::Bytes {
            ptr: room.as_mut_ptr(),
            cap: room.len(),
        };
        let req = engine.requests.insert(Operation::Receive {
            context: ContextId::WORLD,
            sink,
            stream: None,
        });
        engine.deferred.insert(req, edges);
        let pattern = Pattern {
            context: ContextId::WORLD,
            source: Some(3),
            tag: Tags::one(9),
        };
        (pattern, req)
    }

    /// A send of `data` that has been announced.
    fn announced_send(engine: &mut Engine, data: &[u8]) -> ReqId {
        let source = Source::Bytes {
            ptr: data.as_ptr(),
            len: data.len(),
        };
        engine.requests.insert(Operation::SendLarge {
            to: PEER,
            source,
            cts: Cts::Awaited,
        })
    }

    /// A deferred receive of `room` that has matched the RTS of a message of `len` bytes.
    fn matched(room: &mut [u8], edges: [usize; 2], len: u64) -> (Engine, ReqId) {
        let mut engine = Engine::new(0);
        let (pattern, req) = deferred_receive(&mut engine, room, edges);
        engine.matcher.post(pattern, req);
        engine.on_message(PEER, header::RTS, &announce(len, 77));
        (engine, req)
    }

    /// The RTS of a message of 100 kB that has matched `req`, which was posted later.
    fn rts(req: ReqId, request: u32) -> MatchedRts {
        MatchedRts {
            slot: None,
            req,
            from: PEER,
            len: 100_000,
            address: 0,
            request,
            preposted: false,
        }
    }

    fn outgoing(engine: &mut Engine) -> Vec<(u8, Vec<u8>)> {
        let queue = engine.outbox.take_queue(PEER);
        queue
            .into_iter()
            .map(|o| (o.message, o.head.bytes().to_vec()))
            .collect()
    }

    #[test]
    fn only_the_edges_are_requested_and_they_are_stored() {
        let mut room = vec![0u8; 100_000];
        let (mut engine, req) = matched(&mut room, [10, 20], 100_000);
        let asked = outgoing(&mut engine);
        assert_eq!(asked.len(), 2);
        assert!(
            asked
                .iter()
                .all(|(message, _)| *message == header::EDGE_REQUEST)
        );
        let head = Header::new().u32(req.0).u64(99_980);
        let end = [head.bytes(), &[5; 20]].concat();
        engine.on_message(PEER + 1, header::EDGE_DATA, &end);
        assert_eq!(engine.malformed, 1, "from another peer");
        engine.on_message(PEER, header::EDGE_DATA, &end);
        engine.on_message(PEER, header::EDGE_DATA, &end);
        assert_eq!(engine.malformed, 2, "twice");
        assert_eq!(engine.deferred.receives[&req].requested, [true, false]);
        drop(engine);
        assert!(room[99_980..].iter().all(|&b| b == 5) && room[..99_980].iter().all(|&b| b == 0));
    }

    /// EDGES, with `each` times `byte` for each edge.
    fn edges_message(request: u32, each: usize, byte: u8) -> Vec<u8> {
        [Header::new().u32(request).bytes(), &vec![byte; 2 * each]].concat()
    }

    #[test]
    fn early_edges_are_not_requested() {
        for first in [true, false] {
            let mut room = vec![0u8; 100_000];
            let (mut engine, _) = matched(&mut room, [0, 0], 100_000);
            // A second message, from the same sender: its receive is there before it, or comes
            // after it.
            let mut other = vec![0u8; 100_000];
            let (pattern, next) = deferred_receive(&mut engine, &mut other, [10, 20]);
            if first {
                engine.matcher.post(pattern, next);
            }
            engine.on_message(PEER, header::EDGES, &edges_message(78, 4096, 7));
            engine.on_message(PEER, header::RTS, &announce(100_000, 78));
            if !first {
                assert_eq!(
                    engine.deferred.early_edges.len(),
                    1,
                    "kept with its announcement"
                );
                engine.matcher.match_receive(&pattern).unwrap();
                engine.on_matched_rts(rts(next, 78));
            }
            assert_eq!(
                (
                    outgoing(&mut engine).len(),
                    engine.deferred.early_edges.len()
                ),
                (0, 0)
            );
            assert_eq!(engine.deferred.receives[&next].requested, [false; 2]);
            assert_eq!(engine.malformed, 0);
            drop(engine);
            assert!(other[..10].iter().chain(&other[99_980..]).all(|&b| b == 7));
            assert!(other[10..99_980].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn malformed_or_short_edges_are_requested_again() {
        let mut room = vec![0u8; 100_000];
        let (mut engine, req) = matched(&mut room, [0, 0], 100_000);
        for bytes in [
            edges_message(78, EDGE_MAX_BYTES + 1, 1),
            edges_message(78, 0, 1),
            vec![1; 7],
        ] {
            engine.on_message(PEER, header::EDGES, &bytes);
        }
        assert_eq!(
            (engine.malformed, engine.deferred.early_edges.len()),
            (3, 0)
        );
        // Eight bytes where ten are wanted, of one end; they are asked for.
        engine.on_message(PEER, header::EDGES, &edges_message(77, 8, 1));
        engine.deferred.receives.get_mut(&req).unwrap().edges = [10, 4];
        engine.on_matched_rts(rts(req, 77));
        assert_eq!(outgoing(&mut engine).len(), 1);
        assert_eq!(engine.deferred.receives[&req].requested, [true, false]);
    }

    #[test]
    fn the_edges_of_a_large_message_precede_its_rts() {
        let data: Vec<u8> = (0..QUEUE_EDGES_MIN_BYTES as u32)
            .map(|i| (i % 251) as u8)
            .collect();
        let mut engine = Engine::new(0);
        let req = announced_send(&mut engine, &data);
        engine.queue_edges(PEER, req);
        let queued = engine.outbox.queue_mut(PEER).unwrap().pop_front().unwrap();
        let Payload::Owned(bytes) = queued.payload else {
            panic!("no bytes")
        };
        assert_eq!(queued.message, header::EDGES);
        assert_eq!(&bytes[..EDGE_MAX_BYTES], &data[..EDGE_MAX_BYTES]);
        assert_eq!(
            &bytes[EDGE_MAX_BYTES..],
            &data[data.len() - EDGE_MAX_BYTES..]
        );
    }

    #[test]
    fn a_sender_sends_edges_of_its_own_message_only() {
        let data: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let mut engine = Engine::new(0);
        let req = announced_send(&mut engine, &data);
        let ask = |at: u64, len: u32| {
            let head = Header::new().u32(req.0).u32(4).u64(at).u32(len);
            head.bytes().to_vec()
        };
        engine.on_message(PEER, header::EDGE_REQUEST, &ask(199_990, 10));
        let queued = engine.outbox.queue_mut(PEER).unwrap().pop_front().unwrap();
        let Payload::Owned(bytes) = queued.payload else {
            panic!("no bytes")
        };
        assert_eq!(&bytes[..], &data[199_990..]);
        for (at, len) in [
            (199_991, 10),
            (u64::MAX, 10),
            (0, EDGE_MAX_BYTES as u32 + 1),
        ] {
            engine.on_message(PEER, header::EDGE_REQUEST, &ask(at, len));
        }
        engine.on_message(PEER + 1, header::EDGE_REQUEST, &ask(0, 10));
        assert_eq!(engine.malformed, 4);
    }

    proptest! {
        #[test]
        fn fuzz_edges_of_any_bytes(
            messages in prop::collection::vec((0u8..13, prop::collection::vec(any::<u8>(), 0..60)),
                0..40),
        ) {
            let mut room = vec![0u8; 70_000];
            let (mut engine, req) = matched(&mut room, [16, 16], 70_000);
            for (message, mut bytes) in messages {
                if bytes.len() >= 4 && message % 2 == 0 {
                    bytes[..4].copy_from_slice(&req.0.to_le_bytes());
                }
                engine.on_message(PEER, message, &bytes);
            }
        }
    }
}
