//! Receives that do not take their message at once: the floor above says in which order large
//! messages are to come.
//!
//! A message that its sender keeps until it is asked for is announced, and asked for when
//! [`Device::release_deferred`] says so. A few bytes at its beginning and end can be had before that: they
//! come at once, and once more with the message. A sender that knows that they will be wanted gives
//! them unasked.

use crate::SendMode;
use crate::base::buffer::{Sink, Source};
use crate::base::header::{self, Fields, Header};
use crate::base::key::{Key, Pattern, ProcId};
use crate::base::request::{Asked, Completion, Operation, ReqId};
use crate::device::Device;
use crate::protocol::engine::{Engine, Outgoing, Payload};

/// Bytes of each end of a message that can be had before the rest.
pub const EDGE_MAX_BYTES: usize = 4096;

/// A message of fewer bytes does not give its ends unasked: they would be more than a sixty-fourth
/// of it.
const SENDS_EDGES_MIN_BYTES: usize = 64 * 2 * EDGE_MAX_BYTES;
/// Messages whose ends are kept until a receive is met, at most; the ends of further ones are asked
/// for.
const EARLY_EDGES_MAX: usize = 4096;

/// A receive that is held back.
pub(crate) struct Deferred {
    /// Bytes wanted of the message's beginning and end before the rest.
    ends: [usize; 2],
    /// Those that have been asked for and are still to come.
    awaited: [bool; 2],
    /// Its message has been announced: by whom, and the sender's request.
    announced: Option<(ProcId, u32)>,
    /// The rest may come.
    goes_on: bool,
}

impl Device {
    /// As [`Device::send`], of bytes to a peer with [`streams`](crate::Capabilities::streams) who
    /// will want the ends first: a large message's go before its announcement. Asked for they
    /// would stand behind the bytes of other messages, for as long as those take.
    ///
    /// # Safety
    /// As for [`Device::send`].
    pub unsafe fn send_with_edges(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
    ) -> Option<ReqId> {
        self.engine.sends_edges = source.len() >= SENDS_EDGES_MIN_BYTES;
        // SAFETY: the caller's promise.
        let req = unsafe { self.send(to, key, source, SendMode::Standard) };
        self.engine.sends_edges = false;
        req
    }

    /// As [`Device::receive_from`], but a message that is announced over the wire is not asked for
    /// before [`Device::release_deferred`]; only so many bytes (at most [`EDGE_MAX_BYTES`]) of its beginning and
    /// end come before that. To be ended by [`Device::take_deferred`].
    ///
    /// # Safety
    /// As for [`Device::receive_from`].
    pub unsafe fn receive_deferred(
        &mut self,
        from: ProcId,
        pattern: Pattern,
        sink: Sink,
        ends: [usize; 2],
    ) -> ReqId {
        // The receive may meet its message at once, so it is known as held before it is there.
        self.engine.next_deferred = Some(Deferred {
            ends: ends.map(|e| e.min(EDGE_MAX_BYTES)),
            awaited: [false; 2],
            announced: None,
            goes_on: false,
        });
        // SAFETY: the caller's promise.
        let req = unsafe { self.receive_from(from, pattern, sink) };
        if let Some(held) = self.engine.next_deferred.take() {
            self.engine.deferred.insert(req, held);
        }
        req
    }

    /// A held receive's message may come.
    pub fn release_deferred(&mut self, req: ReqId) {
        let Some(held) = self.engine.deferred.get_mut(&req) else {
            return;
        };
        if std::mem::replace(&mut held.goes_on, true) {
            return;
        }
        if let Some((from, request)) = held.announced
            && !self.is_complete(req)
        {
            self.engine.ask(req, from, request, None);
            self.flush();
        }
    }

    /// Has a held receive's message been announced, so that it comes when it is asked for?
    pub fn is_announced(&self, req: ReqId) -> bool {
        let held = self.engine.deferred.get(&req);
        held.is_some_and(|h| h.announced.is_some())
    }

    /// Are the ends there that a held receive wanted first?
    pub fn has_edges(&mut self, req: ReqId) -> bool {
        if self.is_complete(req) {
            return true;
        }
        let total = self.engine.requests.envelope(req).len;
        match self.engine.deferred.get(&req) {
            Some(held) if held.announced.is_some() => {
                // A message of another length than expected is an error: its ends come with the
                // rest.
                let room = match self.engine.requests.operation(req) {
                    Some(Operation::Receive { sink, .. }) => sink.capacity() as u64,
                    _ => return true,
                };
                held.awaited == [false; 2] && total == room
            }
            Some(held) => held.ends == [0; 2],
            None => false,
        }
    }

    /// Bytes of a receive's message that are in their place, from its beginning on.
    pub fn bytes_received(&mut self, req: ReqId) -> usize {
        if self.is_complete(req) {
            return usize::MAX;
        }
        match self.engine.requests.operation(req) {
            Some(Operation::Receive {
                stream: Some(stream),
                ..
            }) => stream.got as usize,
            _ => 0,
        }
    }

    /// As [`Device::take`], for a held receive.
    pub fn take_deferred(&mut self, req: ReqId) -> Completion {
        self.engine.deferred.remove(&req);
        self.take(req)
    }
}

impl Engine {
    /// Deferred receives whose message `peer` has announced and not yet been asked for.
    pub(crate) fn held_of(&self, peer: ProcId) -> Vec<ReqId> {
        let of = |h: &Deferred| h.announced.is_some_and(|(from, _)| from == peer);
        self.deferred
            .iter()
            .filter(|(_, h)| of(h))
            .map(|(req, _)| *req)
            .collect()
    }

    /// Queues an announced send's ends, before its announcement.
    pub(crate) fn send_edges(&mut self, to: ProcId, req: ReqId) {
        let Some(Operation::SendLarge { source, .. }) = self.requests.operation(req) else {
            return;
        };
        let len = source.len();
        let each = EDGE_MAX_BYTES.min(len);
        let mut ends = vec![0; 2 * each];
        let (first, last) = ends.split_at_mut(each);
        // SAFETY: an announced send's buffer is valid until its completion; both lie within it.
        unsafe {
            source.read(0, first);
            source.read(len - each, last);
        }
        self.queue(
            to,
            Outgoing {
                message: header::EDGES,
                head: Header::new().u32(req.0),
                payload: Payload::Owned(ends.into_boxed_slice()),
            },
        );
    }

    /// Ends of a message that will be announced next.
    pub(crate) fn on_edges(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let request = fields.u32()?;
        let ends = fields.0;
        if ends.is_empty() || ends.len() > 2 * EDGE_MAX_BYTES || !ends.len().is_multiple_of(2) {
            return None;
        }
        if self.early_edges.len() < EARLY_EDGES_MAX {
            self.early_edges.insert((from, request), ends.into());
        }
        Some(())
    }

    /// A receive has met a message that was announced over the wire, whose ends may have come
    /// before. True: it is held back, and there is nothing more to do now.
    pub(crate) fn hold(
        &mut self,
        req: ReqId,
        from: ProcId,
        len: u64,
        request: u32,
        given: Option<&[u8]>,
    ) -> bool {
        if let Some(held) = self.next_deferred.take() {
            self.deferred.insert(req, held);
        }
        let Some(held) = self.deferred.get_mut(&req) else {
            return false;
        };
        let sink = match self.requests.operation(req) {
            Some(Operation::Receive { sink, .. }) => Some(sink),
            _ => None,
        };
        held.announced = Some((from, request));
        let mut asked = Vec::new();
        if let Some(sink) = sink
            && sink.capacity() as u64 == len
        {
            let places = [0, len.saturating_sub(held.ends[1] as u64)];
            for (end, place) in places.into_iter().enumerate() {
                let bytes = (held.ends[end] as u64).min(len) as u32;
                let here = given.and_then(|given| {
                    let (first, last) = given.split_at(given.len() / 2);
                    match end {
                        0 => first.get(..bytes as usize),
                        _ => last.get(last.len().checked_sub(bytes as usize)?..),
                    }
                });
                match here {
                    _ if bytes == 0 => {}
                    // SAFETY: the receive's buffer is valid until its completion; the bytes lie
                    // within it.
                    Some(here) => unsafe { sink.write(place as usize, here) },
                    None => {
                        held.awaited[end] = true;
                        asked.push((place, bytes));
                    }
                }
            }
        }
        let goes_on = held.goes_on;
        for (at, bytes) in asked {
            let head = Header::new().u32(request).u32(req.0).u64(at).u32(bytes);
            self.queue(
                from,
                Outgoing {
                    message: header::EDGE_REQUEST,
                    head,
                    payload: Payload::None,
                },
            );
        }
        if goes_on {
            self.ask(req, from, request, None);
        }
        true
    }

    /// A receiver wants an end of an announced message before the rest.
    pub(crate) fn on_edge_request(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let (mine, theirs) = (ReqId(fields.u32()?), fields.u32()?);
        let (at, len) = (usize::try_from(fields.u64()?).ok()?, fields.u32()? as usize);
        // Once the whole is asked for, its beginning may be gone.
        let Some(Operation::SendLarge {
            to,
            source,
            asked: Asked::NotYet,
        }) = self.requests.operation(mine)
        else {
            return None;
        };
        let within = at.checked_add(len).is_some_and(|end| end <= source.len());
        if *to != from || len > EDGE_MAX_BYTES || !within {
            return None;
        }
        let mut end = vec![0; len];
        // SAFETY: an announced send's buffer is valid until its completion; the bytes lie within
        // it.
        unsafe { source.read(at, &mut end) };
        self.queue(
            from,
            Outgoing {
                message: header::EDGE_DATA,
                head: Header::new().u32(theirs).u64(at as u64),
                payload: Payload::Owned(end.into_boxed_slice()),
            },
        );
        Some(())
    }

    /// An end that was asked for.
    pub(crate) fn on_edge_data(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let (req, at) = (ReqId(fields.u32()?), fields.u64()?);
        let data = fields.0;
        let held = self.deferred.get_mut(&req)?;
        if held.announced.is_none_or(|(sender, _)| sender != from) {
            return None;
        }
        let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) else {
            return None;
        };
        let room = sink.capacity() as u64;
        let end = (0..2).find(|&end| {
            let bytes = (held.ends[end] as u64).min(room);
            let place = if end == 0 { 0 } else { room - bytes };
            held.awaited[end] && place == at && bytes == data.len() as u64
        })?;
        held.awaited[end] = false;
        // SAFETY: the receive's buffer is valid until its completion; the bytes lie within it.
        unsafe { sink.write(at as usize, data) };
        self.nudges += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Source;
    use crate::base::key::{ContextId, Key, Tags};
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

    /// A receive that is held back, with no message, and what it takes.
    fn held_back(engine: &mut Engine, room: &mut [u8], ends: [usize; 2]) -> (Pattern, ReqId) {
        let sink = Sink::Bytes {
            ptr: room.as_mut_ptr(),
            cap: room.len(),
        };
        let req = engine.requests.insert(Operation::Receive {
            context: ContextId::WORLD,
            sink,
            stream: None,
        });
        let held = Deferred {
            ends,
            awaited: [false; 2],
            announced: None,
            goes_on: false,
        };
        engine.deferred.insert(req, held);
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
            asked: Asked::NotYet,
        })
    }

    /// A held receive of `room`, met by an announcement of `len` bytes.
    fn met(room: &mut [u8], ends: [usize; 2], len: u64) -> (Engine, ReqId) {
        let mut engine = Engine::new(0);
        let (pattern, req) = held_back(&mut engine, room, ends);
        engine.matcher.post(pattern, req);
        engine.on_message(PEER, header::RTS, &announce(len, 77));
        (engine, req)
    }

    fn outgoing(engine: &mut Engine) -> Vec<(u8, Vec<u8>)> {
        let queue = engine.outbox.remove(&PEER).unwrap_or_default();
        queue
            .into_iter()
            .map(|o| (o.message, o.head.bytes().to_vec()))
            .collect()
    }

    #[test]
    fn only_the_ends_are_asked_for_and_they_come_to_their_places() {
        let mut room = vec![0u8; 100_000];
        let (mut engine, req) = met(&mut room, [10, 20], 100_000);
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
        assert_eq!(engine.malformed, 1, "from somebody else");
        engine.on_message(PEER, header::EDGE_DATA, &end);
        engine.on_message(PEER, header::EDGE_DATA, &end);
        assert_eq!(engine.malformed, 2, "twice");
        assert_eq!(engine.deferred[&req].awaited, [true, false]);
        drop(engine);
        assert!(room[99_980..].iter().all(|&b| b == 5) && room[..99_980].iter().all(|&b| b == 0));
    }

    /// Both ends of a message, as a sender gives them: each has so many bytes, and all of them are
    /// this.
    fn given(request: u32, each: usize, byte: u8) -> Vec<u8> {
        [Header::new().u32(request).bytes(), &vec![byte; 2 * each]].concat()
    }

    #[test]
    fn ends_that_came_before_are_not_asked_for() {
        for first in [true, false] {
            let mut room = vec![0u8; 100_000];
            let (mut engine, _) = met(&mut room, [0, 0], 100_000);
            // A second message, from the same sender: its receive is there before it, or comes
            // after it.
            let mut other = vec![0u8; 100_000];
            let (pattern, next) = held_back(&mut engine, &mut other, [10, 20]);
            if first {
                engine.matcher.post(pattern, next);
            }
            engine.on_message(PEER, header::EDGES, &given(78, 4096, 7));
            engine.on_message(PEER, header::RTS, &announce(100_000, 78));
            if !first {
                assert_eq!(engine.early_edges.len(), 1, "kept with its announcement");
                engine.matcher.match_receive(&pattern).unwrap();
                engine.take_announced(next, PEER, 100_000, 0, 78, false);
            }
            assert_eq!(
                (outgoing(&mut engine).len(), engine.early_edges.len()),
                (0, 0)
            );
            assert_eq!(engine.deferred[&next].awaited, [false; 2]);
            assert_eq!(engine.malformed, 0);
            drop(engine);
            assert!(other[..10].iter().chain(&other[99_980..]).all(|&b| b == 7));
            assert!(other[10..99_980].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn ends_that_make_no_sense_or_are_too_short_help_nobody() {
        let mut room = vec![0u8; 100_000];
        let (mut engine, req) = met(&mut room, [0, 0], 100_000);
        for bytes in [
            given(78, EDGE_MAX_BYTES + 1, 1),
            given(78, 0, 1),
            vec![1; 7],
        ] {
            engine.on_message(PEER, header::EDGES, &bytes);
        }
        assert_eq!((engine.malformed, engine.early_edges.len()), (3, 0));
        // Eight bytes where ten are wanted, of one end; they are asked for.
        engine.on_message(PEER, header::EDGES, &given(77, 8, 1));
        engine.deferred.get_mut(&req).unwrap().ends = [10, 4];
        engine.take_announced(req, PEER, 100_000, 0, 77, false);
        assert_eq!(outgoing(&mut engine).len(), 1);
        assert_eq!(engine.deferred[&req].awaited, [true, false]);
    }

    #[test]
    fn a_large_message_s_ends_go_before_it_is_announced() {
        let data: Vec<u8> = (0..SENDS_EDGES_MIN_BYTES as u32)
            .map(|i| (i % 251) as u8)
            .collect();
        let mut engine = Engine::new(0);
        let req = announced_send(&mut engine, &data);
        engine.send_edges(PEER, req);
        let queued = engine.outbox.get_mut(&PEER).unwrap().pop_front().unwrap();
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
    fn a_sender_gives_ends_of_its_message_only() {
        let data: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let mut engine = Engine::new(0);
        let req = announced_send(&mut engine, &data);
        let ask = |at: u64, len: u32| {
            let head = Header::new().u32(req.0).u32(4).u64(at).u32(len);
            head.bytes().to_vec()
        };
        engine.on_message(PEER, header::EDGE_REQUEST, &ask(199_990, 10));
        let queued = engine.outbox.get_mut(&PEER).unwrap().pop_front().unwrap();
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
        fn fuzz_ends_of_any_bytes(
            messages in prop::collection::vec((0u8..13, prop::collection::vec(any::<u8>(), 0..60)), 0..40),
        ) {
            let mut room = vec![0u8; 70_000];
            let (mut engine, req) = met(&mut room, [16, 16], 70_000);
            for (message, mut bytes) in messages {
                if bytes.len() >= 4 && message % 2 == 0 {
                    bytes[..4].copy_from_slice(&req.0.to_le_bytes());
                }
                engine.on_message(PEER, message, &bytes);
            }
        }
    }
}
