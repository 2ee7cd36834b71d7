//! Sending: envelopes and data as packet images, and the send queue.

use super::envelope::{Envelope, Kind};
use super::{Driver, HEAD_MAX, Port, Sent};
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

impl<P: Port> Driver<P> {
    /// Sends an eager message: envelope, then data. `control`: it is a control message of the
    /// library's. Panics if the head is longer than [`HEAD_MAX`] or `to` is no rank.
    pub fn send(&mut self, to: u32, message: u8, control: bool, head: &[u8], body: &[u8]) -> Sent {
        let kind = if control {
            Kind::Control
        } else {
            Kind::Message
        };
        self.send_as(to, message, kind, head, body)
    }

    /// Sends an RTS whose message lies in this process's SO-DIMM, where `places` says. As
    /// [`Driver::send`].
    pub fn announce(&mut self, to: u32, message: u8, head: &[u8], places: &[u8]) -> Sent {
        self.send_as(to, message, Kind::Announced, head, places)
    }

    fn send_as(&mut self, to: u32, message: u8, kind: Kind, head: &[u8], body: &[u8]) -> Sent {
        assert!(head.len() <= HEAD_MAX, "a head of {} bytes", head.len());
        if !self.has_room(to) {
            return Sent::Full;
        }
        let Ok(bytes) = u32::try_from(body.len()) else {
            return Sent::Full;
        };
        let (cause, work) = match kind {
            Kind::Control => ("library, control messages", self.host.control),
            _ => ("library, sending", self.host.send),
        };
        self.port.charge(cause, work);
        self.post(to, &Envelope::new(kind, message, head, bytes));
        self.append(to, body);
        Sent::Taken
    }

    /// Sends from the front of a rendezvous body as much as one place over there takes: data by
    /// RVS, then FTS. Returns how many bytes that was; `None`: not now.
    pub fn stream(&mut self, to: u32, message: u8, head: &[u8], body: &[u8]) -> Option<usize> {
        assert!(head.len() <= HEAD_MAX, "a head of {} bytes", head.len());
        if body.is_empty() {
            self.finish(to, &Envelope::new(Kind::Finish(0), message, head, 0));
            return Some(0);
        }
        if !self.has_room(to) {
            return None;
        }
        let free = &self.peers[to as usize].free;
        let place = free.iter().position(|free| *free)?;
        let me = self.peers[self.me as usize].sender;
        let base = self.plan.place_at(self.senders, me, place as u32);
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
        let kind = Kind::Finish(place as u8);
        self.finish(to, &Envelope::new(kind, message, head, taken as u32));
        Some(taken)
    }

    /// FTS.
    fn finish(&mut self, to: u32, finish: &Envelope) {
        self.port
            .charge("library, control messages", self.host.control);
        self.post(to, finish);
    }

    /// A place that `from` had filled is empty again: tells it.
    pub(super) fn credit(&mut self, from: u32, place: u8) {
        self.post(from, &Envelope::new(Kind::Credit(place), 0, &[], 0));
    }

    /// The peer says that one of its places is empty again.
    pub(super) fn credited(&mut self, from: u32, place: u8) -> Option<()> {
        let free = self.peers[from as usize].free.get_mut(usize::from(place))?;
        *free = true;
        Some(())
    }

    /// Sends an envelope as soon as may be.
    fn post(&mut self, to: u32, envelope: &Envelope) {
        self.port.charge("driver", self.host.envelope);
        self.append(to, &envelope.encode());
    }

    /// Appends bytes to the peer's ring, in as many packets as it takes; what finds no slot is
    /// copied into the send queue.
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
    pub(in crate::dimmnet2) fn has_slot(&mut self) -> bool {
        if self.under_way() < self.plan.slots {
            return true;
        }
        self.port.charge("reads of LLCM", self.host.read);
        self.port.look();
        self.under_way() < self.plan.slots
    }

    /// BOTF: writes a packet image into the next slot and lets it go. There must be a slot.
    pub(in crate::dimmnet2) fn fly(&mut self, to: u32, request: &Request) {
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
    pub(super) fn push_queue(&mut self, to: u32) -> bool {
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

    /// Waits until all that this process has issued to the network has left its window. Blocks
    /// until then, and takes nothing that comes.
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
