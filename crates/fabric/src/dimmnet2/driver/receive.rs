//! Receiving: polling the rings, envelopes, eager data, and rendezvous data.

use super::envelope::{ENVELOPE_BYTES, Envelope, Kind};
use super::layout::RENDEZVOUS_BUFFERS;
use super::regions;
use super::{CardDriver, CardPort};
use crate::dimmnet2::card::LlcmWord;
use crate::dimmnet2::card::command::{Addressing, Command};
use crate::dimmnet2::card::ring::{self, WORD_BYTES};
use crate::driver::{Malformed, Upcall};

/// An eager message whose body has not come to its end.
pub(super) struct PartialMessage {
    kind: Kind,
    message: u8,
    /// Bytes of the head.
    head: usize,
    /// The head, and what has come of the body.
    bytes: Vec<u8>,
    /// Bytes of the head and the whole body.
    whole: usize,
}

/// The part of a ring that lies at the beginning of the Prefetch Window.
#[derive(Clone, Copy)]
pub(super) struct PrefetchedRange {
    sender: u32,
    at: u32,
    bytes: u32,
}

impl<P: CardPort> CardDriver<P> {
    /// Sends from the send queues and takes what has come. Returns the number of things done. If
    /// that is zero, there is nothing to do until the card has something.
    ///
    /// Polls the rings until a poll finds nothing. The last poll is charged like the others.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid. What lay in its ring is skipped.
    pub fn poll(&mut self, up: &mut dyn Upcall) -> Result<usize, Malformed> {
        let mut moved = 0;
        loop {
            if std::mem::take(&mut self.has_polled) {
                self.reply_pending = true;
            } else {
                self.begin_read(self.poll_period());
            }
            let idle = self.queued_peers.is_empty() && !self.has_more();
            if moved == 0 && idle && self.port.can_defer_poll() {
                self.port.defer_poll();
                return Ok(0);
            }
            self.port.sync();
            if !self.queued_peers.is_empty() || self.has_more() {
                self.end_read();
            }
            let before = moved;
            if !self.queued_peers.is_empty() {
                moved += usize::from(self.send_queued());
            }
            for from in 0..self.peers.len() as u32 {
                if from != self.me {
                    moved += self.receive_from(from, up)?;
                }
            }
            moved += self.fetch_on(up);
            // What a sync has brought does not end a wait, so it must be taken before.
            if moved == before && !self.has_more() {
                return Ok(moved);
            }
        }
    }

    /// Returns whether a slot for a packet image was free at the last sync. The driver must read
    /// LLCM before it acts on that ([`CardDriver::has_slot`]).
    pub(super) fn has_free_slot(&self) -> bool {
        let done = self.port.word(LlcmWord::SendsDone);
        self.sends_issued.wrapping_sub(done) < self.layout.slots
    }

    /// Returns whether there was something to do at the last sync. A poll must follow, which is
    /// charged.
    fn has_more(&self) -> bool {
        let sends = !self.queued_peers.is_empty() && self.has_free_slot();
        let has_records = |(rank, peer): (u32, &super::Connection)| {
            rank != self.me && self.port.word(LlcmWord::Nwa(peer.sender)) != peer.nra
        };
        sends || self.fetch_can_go_on() || (0..).zip(&self.peers).any(has_records)
    }

    /// Takes what was in one peer's ring at the last sync. Returns the number of records.
    pub(in crate::dimmnet2) fn receive_from(
        &mut self,
        from: u32,
        up: &mut dyn Upcall,
    ) -> Result<usize, Malformed> {
        let peer = &self.peers[from as usize];
        let nwa = self.port.word(LlcmWord::Nwa(peer.sender));
        let mut records = 0;
        while self.peers[from as usize].nra != nwa {
            records += 1;
            let nra = self.peers[from as usize].nra;
            let there = ring::filled(nra, nwa, self.layout.ring);
            let taken = match self.peers[from as usize].partial.take() {
                Some(partial) => self.receive_body(from, partial, there, up),
                None => self.receive_envelope(from, there, up),
            };
            let peer = &mut self.peers[from as usize];
            // Nothing can be read behind an envelope that is not valid.
            peer.nra = (nra + taken.unwrap_or(there)) % self.layout.ring;
            let (sender, nra) = (peer.sender, peer.nra);
            self.port.charge("registers", self.costs.register);
            self.port.set_read_addr(sender, nra);
            if taken.is_none() {
                return Err(Malformed(from, "an envelope that makes no sense"));
            }
        }
        Ok(records)
    }

    /// Reads an envelope and does what it says. Returns the bytes taken from the ring.
    fn receive_envelope(&mut self, from: u32, there: u32, up: &mut dyn Upcall) -> Option<u32> {
        let (envelope, taken) = self.read_envelope(from, there)?;
        match envelope.kind {
            Kind::Message | Kind::Control | Kind::SodimmRts => {
                let mut bytes = std::mem::take(&mut self.buffer);
                bytes.clear();
                bytes.extend_from_slice(envelope.head());
                let partial = PartialMessage {
                    kind: envelope.kind,
                    message: envelope.message,
                    head: bytes.len(),
                    whole: bytes.len() + envelope.body as usize,
                    bytes,
                };
                if envelope.body == 0 {
                    self.deliver(from, partial, up);
                } else if there - taken >= envelope.body
                    && self.is_prefetched(from, taken, envelope.body)
                {
                    // A short message: the first VL of the envelope has brought all of it.
                    return Some(taken + self.receive_short_body(from, taken, partial, up));
                } else {
                    self.peers[from as usize].partial = Some(partial);
                }
            }
            Kind::Finish(buffer) => self.on_finish(from, &envelope, buffer, up)?,
            Kind::Credit(buffer) => self.on_credit(from, buffer)?,
        }
        Some(taken)
    }

    /// Returns whether the Prefetch Window holds `bytes` bytes that lie `after` bytes behind the
    /// ring's next read address.
    fn is_prefetched(&self, from: u32, after: u32, bytes: u32) -> bool {
        let peer = &self.peers[from as usize];
        self.prefetched.is_some_and(|range| {
            let skip = ring::filled(range.at, peer.nra, self.layout.ring);
            range.sender == peer.sender && skip + after + bytes <= range.bytes
        })
    }

    /// Reads the next envelope. Returns it and the bytes that it takes in the ring. `None`: it is
    /// not valid.
    fn read_envelope(&mut self, from: u32, there: u32) -> Option<(Envelope, u32)> {
        self.port.charge("driver", self.costs.envelope);
        if there < ENVELOPE_BYTES {
            return None;
        }
        let mut bytes = [0; ENVELOPE_BYTES as usize];
        self.read_ring(from, 0, there, &mut bytes);
        let (own, taken) = Envelope::len(&bytes)?;
        if own <= ENVELOPE_BYTES {
            return Envelope::decode(&bytes).map(|e| (e, taken));
        }
        if there < taken {
            return None;
        }
        let mut all = vec![0; own as usize];
        all[..bytes.len()].copy_from_slice(&bytes);
        self.read_ring(from, ENVELOPE_BYTES, there, &mut all[bytes.len()..]);
        Envelope::decode(&all).map(|e| (e, taken))
    }

    /// Reads bytes of the ring, from `after` bytes behind its next read address on. Brings them
    /// into the Prefetch Window if they are not there.
    fn read_ring(&mut self, from: u32, after: u32, there: u32, into: &mut [u8]) {
        let (sender, nra) = {
            let peer = &self.peers[from as usize];
            (peer.sender, peer.nra)
        };
        let bytes = into.len() as u32;
        if !self.is_prefetched(from, after, bytes) {
            let size = self.layout.ring;
            let want = self
                .layout
                .first_read
                .max(after + bytes)
                .min(self.layout.slot);
            let mut at = 0;
            for (memory, len) in ring::runs(self.layout.ring_at(sender).into(), size, nra, want) {
                if len > 0 {
                    self.vector_load(at, memory as u32, len);
                    at += len;
                }
            }
            self.await_counter(LlcmWord::VectorsDone, self.vectors_issued);
            self.prefetched = Some(PrefetchedRange {
                sender,
                at: nra,
                bytes: want.min(there),
            });
        }
        let skip = self
            .prefetched
            .map_or(0, |h| ring::filled(h.at, nra, self.layout.ring));
        self.port
            .charge("reads of the window", self.costs.load_time(bytes));
        self.port.load(skip + after, into);
    }

    /// Issues a VL of contiguous bytes.
    pub(in crate::dimmnet2) fn vector_load(&mut self, window: u32, memory: u32, bytes: u32) {
        self.issue(&Command::VectorLoad {
            window,
            memory,
            what: Addressing::Contiguous(bytes),
        });
    }

    /// Reads a short body that lies in the Prefetch Window. Returns the bytes that it takes in the
    /// ring.
    fn receive_short_body(
        &mut self,
        from: u32,
        after: u32,
        mut partial: PartialMessage,
        up: &mut dyn Upcall,
    ) -> u32 {
        let body = partial.whole - partial.bytes.len();
        let nra = self.peers[from as usize].nra;
        let skip = self
            .prefetched
            .map_or(0, |h| ring::filled(h.at, nra, self.layout.ring));
        let begin = partial.bytes.len();
        partial.bytes.resize(partial.whole, 0);
        self.port
            .charge("reads of the window", self.costs.load_time(body as u32));
        self.port.load(skip + after, &mut partial.bytes[begin..]);
        self.deliver(from, partial, up);
        (body as u32).next_multiple_of(WORD_BYTES)
    }

    /// Takes more of a body. Returns the bytes taken from the ring.
    fn receive_body(
        &mut self,
        from: u32,
        mut partial: PartialMessage,
        there: u32,
        up: &mut dyn Upcall,
    ) -> Option<u32> {
        let left = u32::try_from(partial.whole - partial.bytes.len()).ok()?;
        let take = left.min(there);
        let peer = &self.peers[from as usize];
        let (base, nra) = (self.layout.ring_at(peer.sender), peer.nra);
        let begin = partial.bytes.len();
        partial.bytes.resize(begin + take as usize, 0);
        let runs = ring::runs(base.into(), self.layout.ring, nra, take);
        let into = &mut partial.bytes[begin..];
        let (first, second) = into.split_at_mut(runs[0].1 as usize);
        self.load_memory(runs[0].0 as u32, first);
        self.load_memory(runs[1].0 as u32, second);
        if take == left {
            self.deliver(from, partial, up);
        } else {
            self.peers[from as usize].partial = Some(partial);
        }
        Some(take.next_multiple_of(WORD_BYTES))
    }

    /// Hands up a whole message.
    fn deliver(&mut self, from: u32, partial: PartialMessage, up: &mut dyn Upcall) {
        let (cause, work) = match partial.kind {
            Kind::Control => ("library, control messages", self.costs.control),
            _ => ("library, receiving", self.costs.receive),
        };
        self.port.charge(cause, work);
        let mut bytes = &partial.bytes[..];
        if partial.kind == Kind::SodimmRts {
            let (head, description) = bytes.split_at(partial.head);
            bytes = head;
            // A message whose regions are not valid goes through the windows.
            let request = head.last_chunk().map(|r| u32::from_le_bytes(*r));
            if let (Some(request), Some(regions)) = (request, regions::decode(description)) {
                self.fetches.announce(from, request, regions);
            }
        }
        up.on_message(from, partial.message, bytes);
        self.buffer = partial.bytes;
    }

    /// An FTS: data lie in one of the rendezvous buffers of this connection.
    fn on_finish(
        &mut self,
        from: u32,
        envelope: &Envelope,
        buffer: u8,
        up: &mut dyn Upcall,
    ) -> Option<()> {
        self.port
            .charge("library, control messages", self.costs.control);
        let head = envelope.head();
        let (message, bytes) = (envelope.message, envelope.body as usize);
        if bytes == 0 {
            up.stream_part(from, message, head, &[]);
            return Some(());
        }
        if envelope.body > self.layout.rendezvous_buffer || u32::from(buffer) >= RENDEZVOUS_BUFFERS
        {
            return None;
        }
        let sender = self.peers[from as usize].sender;
        let at = self
            .layout
            .rendezvous_buffer_at(self.senders, sender, buffer.into());
        let mut done = 0;
        while done < bytes {
            match up.stream_buffer(from, message, head, bytes - done) {
                Some(into) if !into.is_empty() => {
                    let len = into.len().min(bytes - done);
                    self.load_memory(at + done as u32, &mut into[..len]);
                    up.stream_placed(from, message, head, len);
                    done += len;
                }
                _ => {
                    let mut part = vec![0; bytes - done];
                    self.load_memory(at + done as u32, &mut part);
                    up.stream_part(from, message, head, &part);
                    done = bytes;
                }
            }
        }
        self.send_credit(from, buffer);
        Some(())
    }

    /// Reads the SO-DIMM from `memory` on through the Prefetch Window, one VL after the other. The
    /// card fills one slot while the processor reads the other.
    pub(super) fn load_memory(&mut self, memory: u32, into: &mut [u8]) {
        let slot = self.layout.slot as usize;
        let count = into.len().div_ceil(slot);
        if count == 0 {
            return;
        }
        self.prefetched = None;
        let first = self.vectors_issued;
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
            self.await_counter(LlcmWord::VectorsDone, first.wrapping_add(i as u32 + 1));
            self.port.charge(
                "reads of the window",
                self.costs.load_time(piece.len() as u32),
            );
            self.port.load((i % 2 * slot) as u32, piece);
        }
    }
}
