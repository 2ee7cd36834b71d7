//! DATA: large messages by rendezvous, written straight from and to where they belong.

use super::physical_memory::Run;
use super::{Posted, RemoteWriteDriver};
use crate::driver::{Expected, Malformed, Upcall, deliver_stream};
use crate::kernel::{Client, Rank};
use std::collections::VecDeque;

/// A large message that is being received.
pub(super) struct Incoming {
    /// Number of its buffer in physical memory.
    pub number: u64,
    /// The device's message number, and the head of the body.
    pub message: u8,
    pub head: Vec<u8>,
    /// Bytes of the body.
    pub len: usize,
    received: usize,
    /// Where it goes in physical memory.
    pub runs: Vec<Run>,
    /// Runs at the end of `runs` that the sender does not know.
    pub unsent_runs: usize,
    /// Its bytes are copied to where they belong: they do not belong into one run.
    pub copied: bool,
}

impl Incoming {
    pub fn new(number: u64, what: &Expected<'_>) -> Incoming {
        Incoming {
            number,
            message: what.message,
            head: what.head.to_vec(),
            len: what.len,
            received: 0,
            runs: Vec::new(),
            unsent_runs: 0,
            copied: what.address.is_none(),
        }
    }
}

/// A large message that is being sent.
pub(super) struct Outgoing {
    stream: u64,
    /// The device's message number, and the head of the body.
    pub message: u8,
    pub head: Vec<u8>,
    /// The receiver's memory, from the next byte to be posted on.
    remote_runs: VecDeque<Run>,
    /// This side's memory: all of it, and from the next byte to be posted on. `None` until the
    /// first bytes are posted.
    local_runs: Option<(Vec<Run>, VecDeque<Run>)>,
    /// Bytes posted to the card.
    posted: usize,
    /// Bytes that the card has sent.
    done: usize,
    /// Of `done`, the bytes that the device knows of.
    reported: usize,
}

impl RemoteWriteDriver {
    /// Charges what it takes to find the physical addresses of `len` bytes.
    pub(super) fn charge_locking(&self, c: &mut Client, len: usize) {
        if let Some(lock) = &self.f.lock {
            let cost = lock.value * self.physical.pages(len);
            c.charge("locking and translating", cost);
        }
    }

    /// The receiver has answered an announcement: its memory is known.
    pub(super) fn start_sending(
        &mut self,
        to: Rank,
        stream: u64,
        message: u8,
        head: &[u8],
        runs: Vec<Run>,
    ) {
        self.peer(to).outgoing.push(Outgoing {
            stream,
            message,
            head: head.to_vec(),
            remote_runs: runs.into(),
            local_runs: None,
            posted: 0,
            done: 0,
            reported: 0,
        });
    }

    /// Further runs of the receiver's memory. If there is no such message, it has gone by copies.
    pub(super) fn add_remote_runs(&mut self, to: Rank, message: u8, head: &[u8], runs: Vec<Run>) {
        let outgoing = &mut self.peer(to).outgoing;
        let is = |s: &&mut Outgoing| s.message == message && s.head == head;
        if let Some(outgoing) = outgoing.iter_mut().rfind(is) {
            outgoing.remote_runs.extend(runs);
        }
    }

    /// Posts as much of a body as there are entries and known runs. Returns how many more of its
    /// bytes are sent.
    pub(super) fn send_data(
        &mut self,
        c: &mut Client,
        to: Rank,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> usize {
        let is = |s: &Outgoing| s.message == message && s.head == head;
        let Some(at) = self.peer(to).outgoing.iter().position(is) else {
            return 0;
        };
        let mut s = self.peer(to).outgoing.remove(at);
        let len = s.reported + body.len();
        if s.local_runs.is_none() {
            c.charge("library, sending", self.cpu.send.value);
            if self.shared_memory(to).is_none() {
                self.charge_locking(c, len);
            }
            let number = self.new_number();
            let runs = self.physical.map(number, len);
            s.local_runs = Some((runs.clone(), runs.into()));
        }
        let shared = self.shared_memory(to).is_some();
        while s.posted < len && self.has_entry() {
            let Some((address, piece)) = s.take_piece(self.f.entry.value.0 as usize) else {
                break;
            };
            let from = s.posted - s.reported;
            let bytes = &body[from..from + piece];
            s.posted += piece;
            if shared {
                c.charge("copying", self.copy_rate(to).time_of(piece as u64));
            }
            let posted = Posted::Data {
                to,
                stream: s.stream,
                len: piece,
            };
            self.put_entry(c, to, s.posted == len, address, &[bytes], posted);
        }
        let sent = s.done - s.reported;
        s.reported = s.done;
        if s.done < len {
            self.peer(to).outgoing.insert(at, s);
        } else if let Some((runs, _)) = &s.local_runs {
            self.physical.unmap(runs);
        }
        sent
    }

    /// The card has sent bytes of a large message.
    pub(super) fn on_data_sent(&mut self, to: Rank, stream: u64, len: usize) {
        let peer = self.peer(to);
        if let Some(s) = peer.outgoing.iter_mut().find(|s| s.stream == stream) {
            s.done += len;
        }
    }

    /// DATA has been written to `address`.
    pub(super) fn on_data(
        &mut self,
        c: &mut Client,
        from: Rank,
        address: u64,
        bytes: &[u8],
        up: &mut dyn Upcall,
    ) -> Result<(), Malformed> {
        let buffer = self.physical.find(address, bytes.len());
        let rate = self.copy_rate(from);
        let shared = self.shared_memory(from).is_some();
        let peer = self.peer(from);
        let at = buffer.and_then(|(number, offset)| {
            peer.incoming
                .iter()
                .position(|r| r.number == number && r.received == offset)
        });
        let Some(at) = at else {
            let what = "data to an address that was not given to it";
            return Err(Malformed(from, what));
        };
        let incoming = &mut peer.incoming[at];
        incoming.received += bytes.len();
        let is_whole = incoming.received >= incoming.len;
        if incoming.copied || shared {
            c.charge("copying", rate.time_of(bytes.len() as u64));
        }
        deliver_stream(up, from, incoming.message, &incoming.head, bytes);
        if is_whole {
            let incoming = peer.incoming.remove(at);
            self.physical.unmap(&incoming.runs);
            c.charge("library, receiving", self.cpu.receive.value);
        }
        Ok(())
    }
}

impl Outgoing {
    /// The next piece that lies in one run on both sides, at most `piece_max` bytes: the receiver's
    /// address and the length. `None`: no more runs are known.
    fn take_piece(&mut self, piece_max: usize) -> Option<(u64, usize)> {
        let (_, local) = self.local_runs.as_mut()?;
        let (there, here) = (self.remote_runs.front_mut()?, local.front_mut()?);
        let piece = there.len.min(here.len).min(piece_max);
        let address = there.address;
        for run in [there, here] {
            run.address += piece as u64;
            run.len -= piece;
        }
        for runs in [&mut self.remote_runs, local] {
            if runs.front().is_some_and(|r| r.len == 0) {
                runs.pop_front();
            }
        }
        Some((address, piece))
    }
}
