//! Receiving: looking at the rings, envelopes, data, and what came by RVS.

use super::envelope::{ENVELOPE, Envelope, Kind};
use super::{Driver, Port};
use crate::dimmnet2::card::Word;
use crate::dimmnet2::command::{Addressing, Command};
use crate::dimmnet2::places;
use crate::dimmnet2::ring::{self, WORD};
use crate::driver::{Garbled, Upcall};

/// An eager message whose body is coming in.
pub(super) struct Coming {
    kind: Kind,
    message: u8,
    /// Bytes of the head.
    head: usize,
    /// Head, and of the body what has come.
    bytes: Vec<u8>,
    /// Bytes when it is whole.
    whole: usize,
}

/// Which part of a ring lies at the beginning of the Prefetch Window.
#[derive(Clone, Copy)]
pub(super) struct Held {
    sender: u32,
    at: u32,
    bytes: u32,
}

impl<P: Port> Driver<P> {
    /// Sends what waits and takes what has come. Returns how much happened: nothing has come, and
    /// nothing has gone, if it is 0, and then there is nothing to do until the card has
    /// something.
    ///
    /// Errors: a peer has sent what makes no sense. What lay in its ring is passed over.
    pub fn poll(&mut self, receiver: &mut dyn Upcall) -> Result<usize, Garbled> {
        let mut moved = 0;
        loop {
            if !std::mem::take(&mut self.looked) {
                let period = self.period();
                self.port.charge("reads of LLCM", period);
            }
            if self.queued.is_empty() && self.port.can_put_off() && !self.has_more() {
                self.port.put_off();
                return Ok(moved);
            }
            self.port.look();
            if !self.queued.is_empty() {
                moved += usize::from(self.push());
            }
            for from in 0..self.peers.len() as u32 {
                if from != self.me {
                    moved += self.drain(from, receiver)?;
                }
            }
            moved += self.fetch_on(receiver);
            // While this went on more may have come.
            if !self.has_more() {
                return Ok(moved);
            }
        }
    }

    /// Is there something to do, as of the last look?
    fn has_more(&self) -> bool {
        let sends = !self.queued.is_empty() && self.under_way() < self.plan.slots;
        let waits = |(rank, peer): (u32, &super::Connection)| {
            rank != self.me && self.port.word(Word::Nwa(peer.sender)) != peer.nra
        };
        sends || self.fetch_moves() || (0..).zip(&self.peers).any(waits)
    }

    /// Takes what is in one peer's ring, as of the last look. Returns how many records that was.
    fn drain(&mut self, from: u32, receiver: &mut dyn Upcall) -> Result<usize, Garbled> {
        let peer = &self.peers[from as usize];
        let nwa = self.port.word(Word::Nwa(peer.sender));
        let mut records = 0;
        while self.peers[from as usize].nra != nwa {
            records += 1;
            let nra = self.peers[from as usize].nra;
            let there = ring::filled(nra, nwa, self.plan.ring);
            let taken = match self.peers[from as usize].coming.take() {
                Some(coming) => self.body(from, coming, there, receiver),
                None => self.envelope(from, there, receiver),
            };
            let peer = &mut self.peers[from as usize];
            // Behind an envelope that cannot be read nothing can be.
            peer.nra = (nra + taken.unwrap_or(there)) % self.plan.ring;
            let (sender, nra) = (peer.sender, peer.nra);
            self.port.charge("registers", self.host.register);
            self.port.consume(sender, nra);
            if taken.is_none() {
                return Err(Garbled(from, "an envelope that makes no sense"));
            }
        }
        Ok(records)
    }

    /// Reads an envelope and does what it says. Returns the bytes taken from the ring.
    fn envelope(&mut self, from: u32, there: u32, receiver: &mut dyn Upcall) -> Option<u32> {
        let (envelope, taken) = self.read_envelope(from, there)?;
        match envelope.kind {
            Kind::Message | Kind::Control | Kind::Announced => {
                let mut bytes = std::mem::take(&mut self.buffer);
                bytes.clear();
                bytes.extend_from_slice(envelope.head());
                let coming = Coming {
                    kind: envelope.kind,
                    message: envelope.message,
                    head: bytes.len(),
                    whole: bytes.len() + envelope.body as usize,
                    bytes,
                };
                if envelope.body == 0 {
                    self.deliver(from, coming, receiver);
                } else if there - taken >= envelope.body && self.holds(from, taken, envelope.body) {
                    // A short message: the glance at the envelope has brought all of it.
                    return Some(taken + self.short_body(from, taken, coming, receiver));
                } else {
                    self.peers[from as usize].coming = Some(coming);
                }
            }
            Kind::Finish(place) => self.landed(from, &envelope, place, receiver)?,
            Kind::Credit(place) => self.credited(from, place)?,
        }
        Some(taken)
    }

    /// Does the Prefetch Window hold so many bytes, `after` bytes behind the ring's next read
    /// address?
    fn holds(&self, from: u32, after: u32, bytes: u32) -> bool {
        let peer = &self.peers[from as usize];
        self.held.is_some_and(|h| {
            let skip = ring::filled(h.at, peer.nra, self.plan.ring);
            h.sender == peer.sender && skip + after + bytes <= h.bytes
        })
    }

    /// The next envelope, and the bytes that it takes in the ring. `None`: there is none.
    fn read_envelope(&mut self, from: u32, there: u32) -> Option<(Envelope, u32)> {
        self.port.charge("driver", self.host.envelope);
        if there < ENVELOPE {
            return None;
        }
        let mut bytes = [0; ENVELOPE as usize];
        self.glance(from, 0, there, &mut bytes);
        let (own, taken) = Envelope::len(&bytes)?;
        if own <= ENVELOPE {
            return Envelope::decode(&bytes).map(|e| (e, taken));
        }
        if there < taken {
            return None;
        }
        let mut all = vec![0; own as usize];
        all[..bytes.len()].copy_from_slice(&bytes);
        self.glance(from, ENVELOPE, there, &mut all[bytes.len()..]);
        Envelope::decode(&all).map(|e| (e, taken))
    }

    /// Brings the ring's next bytes into the Prefetch Window unless they are there, and reads some
    /// of them, from `after` on.
    fn glance(&mut self, from: u32, after: u32, there: u32, into: &mut [u8]) {
        let (sender, nra) = {
            let peer = &self.peers[from as usize];
            (peer.sender, peer.nra)
        };
        let bytes = into.len() as u32;
        if !self.holds(from, after, bytes) {
            let size = self.plan.ring;
            let want = self.plan.glance.max(after + bytes).min(self.plan.slot);
            let mut at = 0;
            for (memory, len) in ring::runs(self.plan.ring_at(sender).into(), size, nra, want) {
                if len > 0 {
                    self.vector_load(at, memory as u32, len);
                    at += len;
                }
            }
            self.until(Word::VectorsDone, self.vectors);
            self.held = Some(Held {
                sender,
                at: nra,
                bytes: want.min(there),
            });
        }
        let skip = self
            .held
            .map_or(0, |h| ring::filled(h.at, nra, self.plan.ring));
        self.port
            .charge("reads of the window", self.host.loading(bytes));
        self.port.load(skip + after, into);
    }

    pub(in crate::dimmnet2) fn vector_load(&mut self, window: u32, memory: u32, bytes: u32) {
        self.issue(&Command::VectorLoad {
            window,
            memory,
            what: Addressing::Contiguous(bytes),
        });
    }

    /// A short body, all of which the Prefetch Window holds. Returns the bytes that it takes in the
    /// ring.
    fn short_body(
        &mut self,
        from: u32,
        after: u32,
        mut coming: Coming,
        receiver: &mut dyn Upcall,
    ) -> u32 {
        let body = coming.whole - coming.bytes.len();
        let nra = self.peers[from as usize].nra;
        let skip = self
            .held
            .map_or(0, |h| ring::filled(h.at, nra, self.plan.ring));
        let begin = coming.bytes.len();
        coming.bytes.resize(coming.whole, 0);
        self.port
            .charge("reads of the window", self.host.loading(body as u32));
        self.port.load(skip + after, &mut coming.bytes[begin..]);
        self.deliver(from, coming, receiver);
        (body as u32).next_multiple_of(WORD)
    }

    /// More of a body is there. Returns the bytes taken from the ring.
    fn body(
        &mut self,
        from: u32,
        mut coming: Coming,
        there: u32,
        receiver: &mut dyn Upcall,
    ) -> Option<u32> {
        let left = u32::try_from(coming.whole - coming.bytes.len()).ok()?;
        let take = left.min(there);
        let peer = &self.peers[from as usize];
        let (base, nra) = (self.plan.ring_at(peer.sender), peer.nra);
        let begin = coming.bytes.len();
        coming.bytes.resize(begin + take as usize, 0);
        let runs = ring::runs(base.into(), self.plan.ring, nra, take);
        let into = &mut coming.bytes[begin..];
        let (first, second) = into.split_at_mut(runs[0].1 as usize);
        self.pull(runs[0].0 as u32, first);
        self.pull(runs[1].0 as u32, second);
        if take == left {
            self.deliver(from, coming, receiver);
        } else {
            self.peers[from as usize].coming = Some(coming);
        }
        Some(take.next_multiple_of(WORD))
    }

    fn deliver(&mut self, from: u32, coming: Coming, receiver: &mut dyn Upcall) {
        let (cause, work) = match coming.kind {
            Kind::Control => ("library, control messages", self.host.control),
            _ => ("library, receiving", self.host.receive),
        };
        self.port.charge(cause, work);
        let mut bytes = &coming.bytes[..];
        if coming.kind == Kind::Announced {
            let (head, description) = bytes.split_at(coming.head);
            bytes = head;
            // What cannot be understood is asked for in the other way.
            let request = head.last_chunk().map(|r| u32::from_le_bytes(*r));
            if let (Some(request), Some(places)) = (request, places::decode(description)) {
                self.fetches.announce(from, request, places);
            }
        }
        receiver.arrived(from, coming.message, bytes);
        self.buffer = coming.bytes;
    }

    /// FTS: rendezvous data lie in one of the peer's places.
    fn landed(
        &mut self,
        from: u32,
        envelope: &Envelope,
        place: u8,
        receiver: &mut dyn Upcall,
    ) -> Option<()> {
        self.port
            .charge("library, control messages", self.host.control);
        let head = envelope.head();
        let (message, bytes) = (envelope.message, envelope.body as usize);
        if bytes == 0 {
            receiver.part(from, message, head, &[]);
            return Some(());
        }
        if envelope.body > self.plan.place || u32::from(place) >= super::PLACES {
            return None;
        }
        let sender = self.peers[from as usize].sender;
        let at = self.plan.place_at(self.senders, sender, place.into());
        let mut done = 0;
        while done < bytes {
            match receiver.room(from, message, head, bytes - done) {
                Some(room) if !room.is_empty() => {
                    let len = room.len().min(bytes - done);
                    self.pull(at + done as u32, &mut room[..len]);
                    receiver.placed(from, message, head, len);
                    done += len;
                }
                _ => {
                    let mut part = vec![0; bytes - done];
                    self.pull(at + done as u32, &mut part);
                    receiver.part(from, message, head, &part);
                    done = bytes;
                }
            }
        }
        self.credit(from, place);
        Some(())
    }

    /// VL after VL: brings SO-DIMM from `memory` on through the Prefetch Window; while the
    /// processor reads one slot the card fills the other.
    pub(super) fn pull(&mut self, memory: u32, into: &mut [u8]) {
        let slot = self.plan.slot as usize;
        let count = into.len().div_ceil(slot);
        if count == 0 {
            return;
        }
        self.held = None;
        let first = self.vectors;
        let load = |driver: &mut Self, i: usize, len: usize| {
            let bytes = (len - i * slot).min(slot) as u32;
            let window = (i % 2 * slot) as u32;
            driver.vector_load(window, memory + (i * slot) as u32, bytes);
        };
        let len = into.len();
        load(self, 0, len);
        for (i, piece) in into.chunks_mut(slot).enumerate() {
            if i + 1 < count {
                load(self, i + 1, len);
            }
            self.until(Word::VectorsDone, first.wrapping_add(i as u32 + 1));
            self.port
                .charge("reads of the window", self.host.loading(piece.len() as u32));
            self.port.load((i % 2 * slot) as u32, piece);
        }
    }
}
