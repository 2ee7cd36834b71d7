//! Receiving: looking at the rings, envelopes, data, and what came by RVS.

use super::{CREDIT, Driver, EAGER, ENVELOPE, FINISH, HEAD_MAX, Port, Receiver};
use crate::dimmnet2::card::Word;
use crate::dimmnet2::command::{Addressing, Command};
use crate::dimmnet2::ring::{self, WORD};

/// An eager message whose body is coming in.
pub(super) struct Coming {
    message: u8,
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

/// An envelope, as it was read.
struct Envelope {
    kind: u8,
    message: u8,
    place: u8,
    body: u32,
    head: [u8; HEAD_MAX],
    head_len: usize,
    /// Bytes that it takes in the ring.
    taken: u32,
}

impl<P: Port> Driver<P> {
    /// Sends what waits and takes what has come. Returns how much happened: nothing has come, and nothing has gone, if it is 0, and
    /// then there is nothing to do until the card has something. What makes no sense is passed over.
    pub fn poll(&mut self, receiver: &mut dyn Receiver) -> usize {
        let mut moved = 0;
        loop {
            if !std::mem::take(&mut self.looked) {
                let period = self.period();
                self.port.charge("reads of LLCM", period);
            }
            self.port.look();
            if !self.queued.is_empty() {
                moved += usize::from(self.push());
            }
            for from in 0..self.peers.len() as u32 {
                if from != self.me {
                    moved += self.drain(from, receiver);
                }
            }
            // While this went on more may have come.
            if !self.has_more() {
                return moved;
            }
        }
    }

    /// Is there something to do, as of the last look?
    fn has_more(&self) -> bool {
        let sends = !self.queued.is_empty() && self.under_way() < self.plan.slots;
        let waits = |(rank, peer): (u32, &super::Connection)| {
            rank != self.me && self.port.word(Word::Nwa(peer.sender)) != peer.nra
        };
        sends || (0..).zip(&self.peers).any(waits)
    }

    /// Takes what is in one peer's ring, as of the last look. Returns how many records that was.
    fn drain(&mut self, from: u32, receiver: &mut dyn Receiver) -> usize {
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
            // An envelope that cannot be read: all that is there goes with it.
            let taken = taken.unwrap_or(there);
            let peer = &mut self.peers[from as usize];
            peer.nra = (nra + taken) % self.plan.ring;
            let (sender, nra) = (peer.sender, peer.nra);
            self.port.charge("registers", self.host.register);
            self.port.consume(sender, nra);
        }
        records
    }

    /// Reads an envelope and does what it says. Returns the bytes taken from the ring.
    fn envelope(&mut self, from: u32, there: u32, receiver: &mut dyn Receiver) -> Option<u32> {
        let envelope = self.read_envelope(from, there)?;
        let head = &envelope.head[..envelope.head_len];
        match envelope.kind {
            EAGER => {
                let mut bytes = std::mem::take(&mut self.buffer);
                bytes.clear();
                bytes.extend_from_slice(head);
                let coming = Coming {
                    message: envelope.message,
                    whole: head.len() + envelope.body as usize,
                    bytes,
                };
                let more = there - envelope.taken;
                if envelope.body == 0 {
                    self.deliver(from, coming, receiver);
                } else if more == 0 {
                    self.peers[from as usize].coming = Some(coming);
                } else if self.holds(from, envelope.taken, envelope.body) && more >= envelope.body {
                    // A short message: the glance at the envelope has brought all of it.
                    return Some(
                        envelope.taken + self.short_body(from, envelope.taken, coming, receiver),
                    );
                } else {
                    self.peers[from as usize].coming = Some(coming);
                }
                Some(envelope.taken)
            }
            FINISH => {
                self.finish(from, &envelope, receiver)?;
                Some(envelope.taken)
            }
            CREDIT => {
                self.credited(from, envelope.place)?;
                Some(envelope.taken)
            }
            _ => None,
        }
    }

    /// Does the Prefetch Window hold so many bytes, `after` bytes behind the ring's next read address?
    fn holds(&self, from: u32, after: u32, bytes: u32) -> bool {
        let peer = &self.peers[from as usize];
        self.held.is_some_and(|h| {
            let skip = ring::filled(h.at, peer.nra, self.plan.ring);
            h.sender == peer.sender && skip + after + bytes <= h.bytes
        })
    }

    fn read_envelope(&mut self, from: u32, there: u32) -> Option<Envelope> {
        self.port.charge("driver", self.host.envelope);
        if there < ENVELOPE {
            return None;
        }
        let mut bytes = [0; ENVELOPE as usize];
        self.glance(from, ENVELOPE, there, &mut bytes);
        let head_len = usize::from(bytes[2]);
        let taken = (8 + head_len as u32).max(ENVELOPE).next_multiple_of(WORD);
        if head_len > HEAD_MAX || there < taken {
            return None;
        }
        let mut head = [0; HEAD_MAX];
        let first = head_len.min(bytes.len() - 8);
        head[..first].copy_from_slice(&bytes[8..8 + first]);
        if head_len > first {
            let mut all = [0; HEAD_MAX + 8];
            self.glance(from, taken, there, &mut all[..taken as usize]);
            head[first..head_len].copy_from_slice(&all[8 + first..8 + head_len]);
        }
        Some(Envelope {
            kind: bytes[0],
            message: bytes[1],
            place: bytes[3],
            body: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            head,
            head_len,
            taken,
        })
    }

    /// Brings the ring's next bytes into the Prefetch Window unless they are there, and reads them; what was read of them before
    /// costs nothing again.
    fn glance(&mut self, from: u32, bytes: u32, there: u32, into: &mut [u8]) {
        let (sender, nra) = {
            let peer = &self.peers[from as usize];
            (peer.sender, peer.nra)
        };
        if !self.holds(from, 0, bytes) {
            let size = self.plan.ring;
            let want = self.plan.glance.max(bytes).min(self.plan.slot);
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
        let known = if bytes > ENVELOPE { ENVELOPE } else { 0 };
        self.port
            .charge("reads of the window", self.host.loading(bytes - known));
        self.port.load(skip, into);
    }

    fn vector_load(&mut self, window: u32, memory: u32, bytes: u32) {
        self.issue(&Command::VectorLoad {
            window,
            memory,
            what: Addressing::Contiguous(bytes),
        });
    }

    /// A short body, all of which the Prefetch Window holds. Returns the bytes that it takes in the ring.
    fn short_body(
        &mut self,
        from: u32,
        after: u32,
        mut coming: Coming,
        receiver: &mut dyn Receiver,
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
        receiver: &mut dyn Receiver,
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

    fn deliver(&mut self, from: u32, coming: Coming, receiver: &mut dyn Receiver) {
        receiver.arrived(from, coming.message, &coming.bytes);
        self.buffer = coming.bytes;
    }

    /// FTS: rendezvous data lie in one of the peer's places.
    fn finish(
        &mut self,
        from: u32,
        envelope: &Envelope,
        receiver: &mut dyn Receiver,
    ) -> Option<()> {
        let head = &envelope.head[..envelope.head_len];
        let (message, bytes) = (envelope.message, envelope.body as usize);
        if bytes == 0 {
            receiver.part(from, message, head, &[]);
            return Some(());
        }
        if envelope.body > self.plan.place || u32::from(envelope.place) >= super::PLACES {
            return None;
        }
        let sender = self.peers[from as usize].sender;
        let at = self
            .plan
            .place_at(self.senders, sender, envelope.place.into());
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
        self.credit(from, envelope.place);
        Some(())
    }

    /// VL after VL: brings SO-DIMM from `memory` on through the Prefetch Window; while the processor reads one slot the card fills the other.
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
