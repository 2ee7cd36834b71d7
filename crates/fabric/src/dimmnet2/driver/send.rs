//! Sending: envelopes and data as packet images, and the send queue.

use super::{CREDIT, Connection, Driver, EAGER, ENVELOPE, FINISH, HEAD_MAX, PLACES, Port, Sent};
use crate::dimmnet2::card::Word;
use crate::dimmnet2::command::Command;
use crate::dimmnet2::packet::{Request, image};
use crate::dimmnet2::pattern::Pattern;

/// An envelope or data that wait for a slot.
pub(super) struct Queued {
    bytes: Box<[u8]>,
    /// Bytes that have gone.
    gone: usize,
}

/// An envelope: kind, message, length of the head, place, length of the body, head; 32 bytes, or more if the head is long.
pub(super) fn envelope(kind: u8, message: u8, place: u8, head: &[u8], body: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENVELOPE as usize);
    out.extend([kind, message, head.len() as u8, place]);
    out.extend(body.to_le_bytes());
    out.extend(head);
    let len = out.len().max(ENVELOPE as usize).next_multiple_of(8);
    out.resize(len, 0);
    out
}

impl<P: Port> Driver<P> {
    /// Sends an eager message: envelope, then data. Panics if the head is longer than [`HEAD_MAX`] or `to` is no rank.
    pub fn send(&mut self, to: u32, message: u8, head: &[u8], body: &[u8]) -> Sent {
        assert!(head.len() <= HEAD_MAX, "a head of {} bytes", head.len());
        if !self.peers[to as usize].queue.is_empty() && !self.push_queue(to) {
            return Sent::Full;
        }
        let Ok(bytes) = u32::try_from(body.len()) else {
            return Sent::Full;
        };
        let envelope = envelope(EAGER, message, 0, head, bytes);
        self.post(to, &envelope);
        self.append(to, body);
        Sent::Taken
    }

    /// Sends from the front of a rendezvous body as much as one place over there takes: data by RVS, then FTS. Returns how many
    /// bytes that was; `None`: not now.
    pub fn stream(&mut self, to: u32, message: u8, head: &[u8], body: &[u8]) -> Option<usize> {
        assert!(head.len() <= HEAD_MAX, "a head of {} bytes", head.len());
        if !self.peers[to as usize].queue.is_empty() && !self.push_queue(to) {
            return None;
        }
        if body.is_empty() {
            let finish = envelope(FINISH, message, 0, head, 0);
            self.post(to, &finish);
            return Some(0);
        }
        let peer = &self.peers[to as usize];
        let place = peer.free.iter().position(|free| *free)?;
        let base = self.place_here_of(peer, place as u32);
        let piece = self.plan.data() as usize;
        let mut taken = 0;
        while taken < body.len().min(self.plan.place as usize) {
            if !self.has_slot() {
                break;
            }
            let end = (taken + piece)
                .min(body.len())
                .min(self.plan.place as usize);
            let data = &body[taken..end];
            let request = Request::Store {
                memory: u64::from(base) + taken as u64,
                pattern: Pattern::Contiguous {
                    bytes: data.len() as u32,
                },
                data: data.to_vec(),
            };
            self.fly(to, &request);
            taken = end;
        }
        if taken == 0 {
            return None;
        }
        self.peers[to as usize].free[place] = false;
        let finish = envelope(FINISH, message, place as u8, head, taken as u32);
        self.post(to, &finish);
        Some(taken)
    }

    /// The address of this process's place for rendezvous data in a peer's SO-DIMM.
    fn place_here_of(&self, _peer: &Connection, place: u32) -> u32 {
        let me = self.peers[self.me as usize].sender;
        self.plan.place_at(self.senders, me, place)
    }

    /// A place that `from` had filled is empty again: tells it.
    pub(super) fn credit(&mut self, from: u32, place: u8) {
        let credit = envelope(CREDIT, 0, place, &[], 0);
        self.post(from, &credit);
    }

    /// The peer says that one of its places is empty again.
    pub(super) fn credited(&mut self, from: u32, place: u8) -> Option<()> {
        let free = self.peers[from as usize].free.get_mut(usize::from(place))?;
        debug_assert!(u32::from(place) < PLACES);
        *free = true;
        Some(())
    }

    /// Sends an envelope as soon as may be.
    fn post(&mut self, to: u32, envelope: &[u8]) {
        self.port.charge("driver", self.host.envelope);
        self.append(to, envelope);
    }

    /// Appends bytes to the peer's ring, in as many packets as it takes; what finds no slot is copied into the send queue.
    fn append(&mut self, to: u32, bytes: &[u8]) {
        let mut gone = 0;
        if self.peers[to as usize].queue.is_empty() {
            gone = self.append_some(to, bytes);
        }
        if gone < bytes.len() {
            let rest = &bytes[gone..];
            self.port.charge("copies", self.host.copying(rest.len()));
            let peer = &mut self.peers[to as usize];
            if peer.queue.is_empty() {
                self.queued.push(to);
            }
            peer.queue.push_back(Queued {
                bytes: rest.into(),
                gone: 0,
            });
        }
    }

    /// As many packets as there are slots. Returns how many bytes that was.
    fn append_some(&mut self, to: u32, bytes: &[u8]) -> usize {
        let piece = self.plan.data() as usize;
        let mut gone = 0;
        while gone < bytes.len() && self.has_slot() {
            let end = (gone + piece).min(bytes.len());
            let data = bytes[gone..end].to_vec();
            self.fly(to, &Request::Append { data });
            gone = end;
        }
        gone
    }

    /// Is a slot for a packet image free? Looks at LLCM if it does not know of one.
    pub(super) fn has_slot(&mut self) -> bool {
        if self.under_way() < self.plan.slots {
            return true;
        }
        self.port.charge("reads of LLCM", self.host.read);
        self.port.look();
        self.under_way() < self.plan.slots
    }

    /// BOTF: writes a packet image into the next slot and lets it go. There must be a slot.
    pub(super) fn fly(&mut self, to: u32, request: &Request) {
        let process = self.peers[to as usize].process;
        let image = image(process, request).unwrap_or_default();
        let window = self.sends % self.plan.slots * self.plan.slot;
        let bytes = image.len() as u32;
        self.port
            .charge("writes to the window", self.host.storing(bytes));
        self.port.store(window, &image);
        self.issue(&Command::BlockOnTheFly { window, bytes });
    }

    /// Sends what waits. Returns whether anything went.
    pub(super) fn push(&mut self) -> bool {
        let mut moved = false;
        let mut queued = std::mem::take(&mut self.queued);
        queued.retain(|&to| {
            let before = self.waiting(to);
            let empty = self.push_queue(to);
            moved |= self.waiting(to) != before;
            !empty
        });
        queued.append(&mut self.queued);
        self.queued = queued;
        moved
    }

    /// Bytes that wait to go to a peer.
    fn waiting(&self, to: u32) -> usize {
        let queue = &self.peers[to as usize].queue;
        queue.iter().map(|q| q.bytes.len() - q.gone).sum()
    }

    /// Sends what waits for a peer. Returns whether all of it has gone.
    fn push_queue(&mut self, to: u32) -> bool {
        while let Some(mut first) = self.peers[to as usize].queue.pop_front() {
            first.gone += self.append_some(to, &first.bytes[first.gone..]);
            if first.gone < first.bytes.len() {
                self.peers[to as usize].queue.push_front(first);
                return false;
            }
        }
        self.queued.retain(|&p| p != to);
        true
    }

    /// Waits until all that this process has issued to the network has left its window. Blocks until then, and takes nothing that comes.
    pub fn flush(&mut self) {
        while !self.queued.is_empty() {
            if !self.push() {
                let period = self.period();
                self.port.wait(period);
            }
        }
        self.until(Word::SendsDone, self.sends);
    }
}
