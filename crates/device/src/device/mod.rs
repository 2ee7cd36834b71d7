//! What the layer above calls: sends, receives, probes, control messages, and completions.

mod active;
mod deferred;
mod foreign;
mod memory;
mod receive;
mod send;

pub use receive::Unreceived;

use crate::base::header::{self, Header};
use crate::base::key::{ContextId, Envelope, ProcId};
use crate::base::request::{Completion, Operation, ReqId};
use crate::progress::device::Device;
use crate::progress::wait::{Describe, WaitingFor, wait_until};
use crate::protocol::control::ControlMessage;
use crate::queue::outgoing::Outgoing;
use ferry_job::RankStatus;
use ferry_transport::RemoteMemory;
use std::sync::atomic::Ordering;

/// What the device can do for a peer. The layer above asks this, and never for a transport.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Maximum length of an eager message, bytes.
    pub eager_max: usize,
    /// The peer shares this process's memory system.
    pub same_node: bool,
    /// A large message is read from the sender's buffer in parts, and only by the sender. Its
    /// unsent bytes may be moved ([`Device::relocate`]).
    pub streams: bool,
}

impl Device {
    /// This process's number.
    pub fn me(&self) -> ProcId {
        self.worker.me
    }

    /// Processes in the job.
    pub fn size(&self) -> u32 {
        self.worker.size
    }

    /// What the device can do for `peer`.
    pub fn capabilities(&mut self, peer: ProcId) -> Capabilities {
        match self.worker.transports.features(peer) {
            Ok(f) => Capabilities {
                eager_max: f.eager_max,
                same_node: f.same_node,
                streams: f.stream && !f.remote_read,
            },
            Err(_) => Capabilities {
                eager_max: 0,
                same_node: false,
                streams: false,
            },
        }
    }

    /// The names of the transports in use.
    pub fn transports(&self) -> Vec<&'static str> {
        self.worker.transports.names()
    }

    /// Do ranks outnumber the cores of this node?
    pub fn is_oversubscribed(&self) -> bool {
        self.wait_policy.oversubscribed
    }

    /// Is this process lost, so that no message of it arrives any more?
    #[inline]
    pub fn is_lost(&self, peer: ProcId) -> bool {
        self.worker.engine.lost_peers.contains(peer)
    }

    /// How many processes have been lost until now. To be asked where a wait begins that
    /// [`Device::take_untold_loss`] may end.
    pub fn losses(&self) -> u64 {
        self.worker.engine.lost_peers.losses()
    }

    /// Is a member of this communicator lost, so that what may come from any of them must fail?
    /// Each communicator is told once of each loss; who has waited for longer (`since`, the number
    /// of losses at that time) is told in any case. `u64::MAX`: has not waited.
    pub fn take_untold_loss(
        &mut self,
        context: ContextId,
        since: u64,
        is_member: impl Fn(ProcId) -> bool,
    ) -> bool {
        let lost = &mut self.worker.engine.lost_peers;
        !lost.is_empty() && lost.report_losses(context, since, is_member)
    }

    /// Has the operation completed?
    #[inline]
    pub fn is_complete(&self, req: ReqId) -> bool {
        self.worker.engine.requests.is_complete(req)
    }

    /// The completion of a completed operation; frees the request. Panics if it is not complete.
    #[inline]
    pub fn take(&mut self, req: ReqId) -> Completion {
        self.worker.engine.requests.take(req)
    }

    /// As [`Device::take`], if the operation is complete, has neither failed nor been cancelled,
    /// and has filled its buffer, or `is_well` agrees. Returns the envelope and the bytes received.
    /// `None`: it stays.
    #[inline(always)]
    pub fn take_successful(
        &mut self,
        req: ReqId,
        is_well: impl FnOnce() -> bool,
    ) -> Option<(Envelope, u64)> {
        self.worker.engine.requests.take_successful(req, is_well)
    }

    /// How a completed operation ended. The request stays.
    pub fn peek(&self, req: ReqId) -> Option<Completion> {
        self.worker.engine.requests.peek(req)
    }

    /// Nothing refers to this request any more. It is freed when it completes.
    pub fn detach(&mut self, req: ReqId) {
        self.worker.engine.requests.detach(req);
    }

    /// Sends a control message. It may be dropped if that process never calls
    /// [`Device::next_control`].
    pub fn send_control(&mut self, to: ProcId, words: ControlMessage) {
        let head = words.into_iter().fold(Header::new(), Header::u64);
        let message = Outgoing::header_only(header::CONTROL, head);
        self.worker.engine.outbox.push(to, message);
        self.worker.offer_queued();
    }

    /// The oldest unread control message, with its sender.
    pub fn next_control(&mut self) -> Option<(ProcId, ControlMessage)> {
        self.worker.engine.control.next()
    }

    /// Memory for the program on this process's card, at a multiple of `alignment` (a power of
    /// two). `None`: there is no such memory, or none left.
    pub fn allocate_on_card(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8> {
        let memory = self.worker.transports.card_memory()?;
        memory.allocate(bytes, alignment)
    }

    /// Frees memory of the card. False: this is no such memory.
    pub fn release_on_card(&mut self, address: usize) -> bool {
        let memory = self.worker.transports.card_memory();
        memory.is_some_and(|m| m.release(address))
    }

    /// Addresses of the memory for programs on this process's card. Empty if there is none.
    pub fn card_range(&self) -> std::ops::Range<usize> {
        self.worker.engine.device_memory.range()
    }

    /// Charges the processor's reads, or writes, of these runs (address, bytes) of the card's
    /// memory. Blocks for their virtual time.
    pub fn charge_card_access(&mut self, runs: &[(usize, usize)], writes: bool) {
        match self.worker.transports.card_memory() {
            Some(memory) if writes => memory.charge_writes(runs),
            Some(memory) => memory.charge_reads(runs),
            None => {}
        }
    }

    /// Memory of other processes that the card reaches without their processors, on a modelled
    /// machine. `None`: windows are served by active messages.
    pub fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        self.worker.transports.remote_memory()
    }

    /// Is a send pending, even one without a waiter?
    pub fn sends_pending(&self) -> bool {
        let engine = &self.worker.engine;
        !engine.outbox.is_empty() || engine.requests.sends_pending()
    }
}

/// Tells who looks at a hang which process has to receive the first of the sends that are pending.
struct PendingSends;

impl Describe for PendingSends {
    fn describe(&self, device: &mut Device, status: &RankStatus) {
        let mut pending = device.worker.engine.requests.iter_pending();
        let to = pending.find_map(|(_, operation)| match operation {
            Operation::SendSync { to } | Operation::SendLarge { to, .. } => Some(*to),
            _ => None,
        });
        if let Some(to) = to {
            status.peer.store(to as i32, Ordering::Relaxed);
            status.operation.store(b"a send");
        }
    }
}

/// Completes every pending send, for the peers that still need it. Blocks until then.
pub fn finish() {
    let what = WaitingFor {
        details: Some(&PendingSends),
        ..WaitingFor::SEVERAL
    };
    wait_until(&what, |d| {
        !d.sends_pending() && d.worker.transports.settle()
    });
}

#[cfg(test)]
mod tests;
