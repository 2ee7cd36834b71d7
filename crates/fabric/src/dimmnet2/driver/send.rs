//! Sending: envelopes and data as packet images, and the send queue.

use super::envelope::{Envelope, Kind};
use super::{CardDriver, CardPort, HEAD_MAX_BYTES, Sent};
use crate::dimmnet2::card::LlcmWord;
use crate::dimmnet2::card::command::Command;
use crate::dimmnet2::card::packet::{Request, image};
use crate::dimmnet2::card::pattern::Pattern;

/// An envelope or data that wait for a slot of the Write Window.
pub(super) struct Queued {
    bytes: Box<[u8]>,
    /// Bytes that have been sent.
    sent: usize,
}

impl<P: CardPort> CardDriver<P> {
    /// Sends an eager message: envelope, then data. `control`: it is a control message of the
    /// library. Panics if the head is longer than [`HEAD_MAX_BYTES`] or `to` is no rank.
    pub fn send(&mut self, to: u32, message: u8, control: bool, head: &[u8], body: &[u8]) -> Sent {
        let kind = if control {
            Kind::Control
        } else {
            Kind::Message
        };
        self.send_as(to, message, kind, head, body)
    }

    /// Sends the RTS of a message that lies in these encoded regions of this process's SO-DIMM.
    /// Panics like [`CardDriver::send`].
    pub fn send_rts_of_regions(
        &mut self,
        to: u32,
        message: u8,
        head: &[u8],
        regions: &[u8],
    ) -> Sent {
        self.send_as(to, message, Kind::SodimmRts, head, regions)
    }

    fn send_as(&mut self, to: u32, message: u8, kind: Kind, head: &[u8], body: &[u8]) -> Sent {
        assert!(
            head.len() <= HEAD_MAX_BYTES,
            "a head of {} bytes",
            head.len()
        );
        if !self.has_room(to) {
            return Sent::Full;
        }
        let Ok(bytes) = u32::try_from(body.len()) else {
            return Sent::Full;
        };
        self.end_read();
        let (cause, work) = match kind {
            Kind::Control => ("library, control messages", self.costs.control),
            _ => ("library, sending", self.costs.send),
        };
        self.port.charge(cause, work);
        self.send_envelope(to, &Envelope::new(kind, message, head, bytes));
        self.append_to_ring(to, body);
        Sent::Taken
    }

    /// Sends from the front of a rendezvous body as much as one rendezvous buffer takes: data by
    /// RVS, then FTS. Returns the number of bytes. `None`: there is no room now.
    pub fn stream(&mut self, to: u32, message: u8, head: &[u8], body: &[u8]) -> Option<usize> {
        assert!(
            head.len() <= HEAD_MAX_BYTES,
            "a head of {} bytes",
            head.len()
        );
        if body.is_empty() {
            self.send_finish(to, &Envelope::new(Kind::Finish(0), message, head, 0));
            return Some(0);
        }
        if !self.has_room(to) {
            return None;
        }
        let free = &self.peers[to as usize].free_buffers;
        let buffer = free.iter().position(|free| *free)?;
        let me = self.peers[self.me as usize].sender;
        let base = self
            .layout
            .rendezvous_buffer_at(self.senders, me, buffer as u32);
        let piece = self.layout.image_data() as usize;
        let mut taken = 0;
        while taken < body.len().min(self.layout.rendezvous_buffer as usize) {
            if !self.has_slot() {
                break;
            }
            let end = (taken + piece)
                .min(body.len())
                .min(self.layout.rendezvous_buffer as usize);
            let data = &body[taken..end];
            let request = Request::Store {
                memory: u64::from(base) + taken as u64,
                pattern: Pattern::Contiguous {
                    bytes: data.len() as u32,
                },
                data: data.to_vec(),
            };
            self.send_packet(to, &request);
            taken = end;
        }
        if taken == 0 {
            return None;
        }
        self.peers[to as usize].free_buffers[buffer] = false;
        let kind = Kind::Finish(buffer as u8);
        self.send_finish(to, &Envelope::new(kind, message, head, taken as u32));
        Some(taken)
    }

    /// Sends an FTS.
    fn send_finish(&mut self, to: u32, finish: &Envelope) {
        self.end_read();
        self.port
            .charge("library, control messages", self.costs.control);
        self.send_envelope(to, finish);
    }

    /// Tells `from` that a rendezvous buffer that it had filled is empty again.
    pub(super) fn send_credit(&mut self, from: u32, buffer: u8) {
        self.send_envelope(from, &Envelope::new(Kind::Credit(buffer), 0, &[], 0));
    }

    /// The peer says that one of its rendezvous buffers is empty again.
    pub(super) fn on_credit(&mut self, from: u32, buffer: u8) -> Option<()> {
        let free = self.peers[from as usize]
            .free_buffers
            .get_mut(usize::from(buffer))?;
        *free = true;
        Some(())
    }

    /// Sends an envelope, or appends it to the send queue.
    fn send_envelope(&mut self, to: u32, envelope: &Envelope) {
        self.port.charge("driver", self.costs.envelope);
        self.append_to_ring(to, &envelope.encode());
    }

    /// Appends bytes to the peer's ring, in as many packets as needed. What finds no slot is copied
    /// into the send queue.
    fn append_to_ring(&mut self, to: u32, bytes: &[u8]) {
        let mut sent = 0;
        if self.peers[to as usize].queue.is_empty() {
            sent = self.append_packets(to, bytes);
        }
        if sent < bytes.len() {
            let rest = &bytes[sent..];
            self.port.charge("copies", self.costs.copy_time(rest.len()));
            let peer = &mut self.peers[to as usize];
            if peer.queue.is_empty() {
                self.queued_peers.push(to);
            }
            peer.queue.push_back(Queued {
                bytes: rest.into(),
                sent: 0,
            });
        }
    }

    /// Appends as many packets as there are slots. Returns the number of bytes.
    fn append_packets(&mut self, to: u32, bytes: &[u8]) -> usize {
        let piece = self.layout.image_data() as usize;
        let mut sent = 0;
        while sent < bytes.len() && self.has_slot() {
            let end = (sent + piece).min(bytes.len());
            let data = bytes[sent..end].to_vec();
            self.send_packet(to, &Request::Append { data });
            sent = end;
        }
        sent
    }

    /// Sends a packet by BOTF: writes its image into the next slot. There must be a free one.
    pub(super) fn send_packet(&mut self, to: u32, request: &Request) {
        let command = self.store_image(to, request);
        self.issue(&command);
    }

    /// Writes a packet image into the next slot. Returns the command that sends it.
    pub(in crate::dimmnet2) fn store_image(&mut self, to: u32, request: &Request) -> Command {
        let process = self.peers[to as usize].process;
        let image = image(process, request).unwrap_or_default();
        let window = self.sends_issued % self.layout.slots * self.layout.slot;
        let bytes = image.len() as u32;
        self.port
            .charge("writes to the window", self.costs.store_time(bytes));
        self.port.store(window, &image);
        Command::BlockOnTheFly { window, bytes }
    }

    /// Sends from all send queues. Returns whether anything was sent.
    pub(super) fn send_queued(&mut self) -> bool {
        let mut moved = false;
        let mut queued_peers = std::mem::take(&mut self.queued_peers);
        queued_peers.retain(|&to| {
            let before = self.queued_bytes(to);
            let empty = self.send_queue_of(to);
            moved |= self.queued_bytes(to) != before;
            !empty
        });
        queued_peers.append(&mut self.queued_peers);
        self.queued_peers = queued_peers;
        moved
    }

    /// Bytes in the send queue of a peer.
    fn queued_bytes(&self, to: u32) -> usize {
        let queue = &self.peers[to as usize].queue;
        queue.iter().map(|q| q.bytes.len() - q.sent).sum()
    }

    /// Sends from the send queue of a peer. Returns whether it is empty.
    pub(super) fn send_queue_of(&mut self, to: u32) -> bool {
        while let Some(mut first) = self.peers[to as usize].queue.pop_front() {
            first.sent += self.append_packets(to, &first.bytes[first.sent..]);
            if first.sent < first.bytes.len() {
                self.peers[to as usize].queue.push_front(first);
                return false;
            }
        }
        self.queued_peers.retain(|&p| p != to);
        true
    }

    /// Waits until all that this process has issued to the network has left its window. Blocks
    /// until then, and receives nothing meanwhile.
    pub fn flush(&mut self) {
        while !self.queued_peers.is_empty() {
            if !self.send_queued() {
                let period = self.poll_period();
                self.port.wait(period);
            }
        }
        self.await_counter(LlcmWord::SendsDone, self.sends_issued);
    }
}
