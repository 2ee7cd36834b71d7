//! CTRL messages: their encoding, their credits, and what arrives.

use super::data::Incoming;
use super::physical_memory::Run;
use super::{Posted, RemoteWriteDriver};
use crate::driver::{Malformed, Upcall};
use crate::kernel::{Client, Rank};
use crate::remote_write::entry::{NOTICE_AT, NOTIFY, parse};
use crate::remote_write::figures::Figures;

/// A CTRL message with a message of the device inside (paper 4).
pub(super) const SHORT: u8 = 1;
/// A CTRL message that announces a large message.
pub(super) const REQ: u8 = 2;
/// A CTRL message that answers a REQ with runs of physical memory.
pub(super) const RSP: u8 = 3;
/// A CTRL message that returns credits.
const CRDT: u8 = 4;

/// Bytes before a CTRL message's own: kind, the device's message number, credits returned, number
/// of runs in an RSP.
pub(super) const CTRL_HEAD_BYTES: usize = 8;
/// Bytes of a run in an RSP: address and length.
const RUN_BYTES: usize = 12;
/// Most runs in one RSP.
const RUNS_MAX: usize = 2048;
/// Bit of the message number in an RSP: further runs of an answer that did not fit one RSP. It
/// carries the head of the body instead of a message of the device.
const FURTHER_RUNS: u8 = 0x80;

impl RemoteWriteDriver {
    /// Writes a CTRL message into the peer's buffer. There must be an entry, and a credit unless it
    /// is a CRDT.
    pub(super) fn send_control(
        &mut self,
        c: &mut Client,
        to: Rank,
        kind: u8,
        message: u8,
        runs: &[Run],
        bytes: &[u8],
    ) {
        let peer = self.peer(to);
        let credits = std::mem::take(&mut peer.credits_to_return);
        if kind != CRDT {
            debug_assert!(peer.credits > 0, "a message without a credit");
            peer.credits -= 1;
        }
        let mut ctrl = Vec::with_capacity(CTRL_HEAD_BYTES + runs.len() * RUN_BYTES);
        ctrl.extend([kind, message]);
        ctrl.extend((credits as u16).to_le_bytes());
        ctrl.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            ctrl.extend(run.address.to_le_bytes());
            ctrl.extend((run.len as u32).to_le_bytes());
        }
        let len = (ctrl.len() + bytes.len()) as u64;
        c.charge("copying", self.copy_rate(to).time_of(len));
        self.put_entry(c, to, true, 0, &[&ctrl, bytes], Posted::Control);
    }

    /// Most runs that fit into one RSP beside `bytes` other bytes.
    pub(super) fn runs_max(&self, bytes: usize) -> usize {
        let room = (self.f.control.value.0 as usize).saturating_sub(CTRL_HEAD_BYTES + bytes);
        (room / RUN_BYTES).clamp(1, RUNS_MAX)
    }

    pub(super) fn add_to_backlog(&mut self, peer: Rank) {
        if !self.backlog.contains(&peer) {
            self.backlog.push(peer);
        }
    }

    /// Sends further runs and credits, as far as there is room. Returns whether all have gone.
    pub(super) fn send_backlog(&mut self, c: &mut Client) -> bool {
        let runs_max = self.runs_max(0);
        let half = (self.credits_max() / 2).max(1);
        let mut backlog = std::mem::take(&mut self.backlog);
        backlog.retain(|&to| {
            loop {
                let has_entry = self.has_entry();
                let peer = self.peer(to);
                let owes_credits = peer.credits_to_return >= half;
                let unsent = peer.incoming.iter_mut().find(|r| r.unsent_runs > 0);
                if unsent.is_none() && !owes_credits {
                    return false;
                }
                if !has_entry {
                    return true;
                }
                match unsent {
                    Some(_) if peer.credits == 0 && !owes_credits => return true,
                    Some(incoming) if peer.credits > 0 => {
                        let from = incoming.runs.len() - incoming.unsent_runs;
                        let runs = &incoming.runs[from..];
                        let runs = runs[..runs.len().min(runs_max)].to_vec();
                        incoming.unsent_runs -= runs.len();
                        let (message, head) = (incoming.message, incoming.head.clone());
                        self.send_control(c, to, RSP, message | FURTHER_RUNS, &runs, &head);
                    }
                    _ => self.send_control(c, to, CRDT, 0, &[], &[]),
                }
            }
        });
        backlog.append(&mut self.backlog);
        self.backlog = backlog;
        self.backlog.is_empty()
    }

    /// Bytes have been written into this rank's memory. Returns whether the device got something.
    pub(super) fn on_written(
        &mut self,
        c: &mut Client,
        bytes: &[u8],
        up: &mut dyn Upcall,
    ) -> Result<bool, Malformed> {
        let Some((from, flags, address, bytes)) = parse(bytes) else {
            return Err(Malformed(self.me, "what its own card cannot write"));
        };
        if flags & NOTIFY != 0 {
            c.charge("arrivals", Figures::or_zero(&self.f.notice));
        }
        if address >= NOTICE_AT {
            let number = u8::try_from(address - NOTICE_AT);
            let number = number.map_err(|_| Malformed(from, "a notification that there is not"))?;
            self.window.notified(from, number);
            return Ok(true);
        }
        if address != 0 {
            return self.on_data(c, from, address, bytes, up).map(|()| true);
        }
        let malformed = |what| Err(Malformed(from, what));
        let Some((head, rest)) = bytes.split_first_chunk::<CTRL_HEAD_BYTES>() else {
            return malformed("a control message that is too short");
        };
        let [kind, message, low, high, counts @ ..] = *head;
        let credits = u32::from(u16::from_le_bytes([low, high]));
        let runs = u32::from_le_bytes(counts) as usize;
        let credits_max = self.credits_max();
        let peer = self.peer(from);
        if peer.credits + credits > credits_max {
            return malformed("more credits than there are");
        }
        peer.credits += credits;
        if kind == CRDT {
            return Ok(false);
        }
        peer.credits_to_return += 1;
        if peer.credits_to_return > credits_max {
            return malformed("a control message without a credit");
        }
        if peer.credits_to_return >= (credits_max / 2).max(1) {
            self.add_to_backlog(from);
        }
        let split = runs
            .checked_mul(RUN_BYTES)
            .and_then(|n| rest.split_at_checked(n));
        let Some((runs, own)) = split else {
            return malformed("an answer that is too short");
        };
        let further = message & FURTHER_RUNS != 0;
        match kind {
            SHORT | REQ => {}
            RSP if own.len() >= 2 || further => {
                let Some(own) = self.on_rsp(from, message, runs, own) else {
                    return malformed("an answer that makes no sense");
                };
                if further {
                    return Ok(false);
                }
                c.charge("library, receiving", self.cpu.receive.value);
                up.on_message(from, message, own);
                return Ok(true);
            }
            _ => return malformed("a control message of no kind that there is"),
        }
        let rate = self.copy_rate(from);
        c.charge("library, receiving", self.cpu.receive.value);
        c.charge("copying", rate.time_of(own.len() as u64));
        self.drop_incoming(from, message, own);
        up.on_message(from, message, own);
        Ok(true)
    }

    /// A message may come by copies after its receiver has sent an RSP. Its memory is then free.
    fn drop_incoming(&mut self, from: Rank, message: u8, bytes: &[u8]) {
        let peer = self.peer(from);
        let is = |r: &Incoming| r.message == message && bytes.starts_with(&r.head);
        if let Some(at) = peer.incoming.iter().position(is) {
            let incoming = peer.incoming.remove(at);
            self.physical.unmap(&incoming.runs);
        }
    }

    /// An RSP: the receiver's memory for a large message. Returns the device's message in it.
    /// `None`: it is not valid.
    fn on_rsp<'b>(
        &mut self,
        from: Rank,
        message: u8,
        runs: &[u8],
        own: &'b [u8],
    ) -> Option<&'b [u8]> {
        let runs: Vec<Run> = runs
            .chunks_exact(RUN_BYTES)
            .map(|r| Run {
                address: u64::from_le_bytes(r[..8].try_into().unwrap_or_default()),
                len: u32::from_le_bytes(r[8..].try_into().unwrap_or_default()) as usize,
            })
            .collect();
        if runs.iter().any(|r| r.address == 0 || r.len == 0) {
            return None;
        }
        if message & FURTHER_RUNS != 0 {
            // The number is used up even so: numbers are the same in every run.
            self.new_number();
            self.add_remote_runs(from, message & !FURTHER_RUNS, own, runs);
            return Some(&[]);
        }
        // In front: the message number and the head of the body to come.
        let number = self.new_number();
        let (&[body, len], rest) = own.split_first_chunk::<2>()?;
        let (head, own) = rest.split_at_checked(len.into())?;
        self.start_sending(from, number, body, head, runs);
        Some(own)
    }
}
