//! The driver: CTRL messages with credits, and DATA by rendezvous (paper 4, "MPI-MPC1 and 2").
//!
//! CTRL messages are written into buffers that the receiver has set aside for this sender. A sender
//! has one credit for each buffer. Each message costs one credit. The receiver returns it when it
//! has emptied the buffer: with its next CTRL message, or by a CRDT when half of the credits have
//! gathered. A CRDT costs no credit, because it has a buffer of its own.
//!
//! SHORT carries a message of the device. REQ announces a large message. RSP answers it with the
//! physical runs of the receiver's memory. DATA is then written straight into these runs, page by
//! page if the memory is not contiguous.

mod control;
mod data;
mod physical_memory;
mod window;

use super::entry::{DONE, LOCAL, NOTIFY, PUT, WAKE, WRITTEN, head, parse};
use super::figures::Figures;
use crate::driver::{Body, Driver, Expected, Limits, Malformed, Upcall};
use crate::kernel::{Client, Rank};
use crate::platform::{Cpu, Memory, Platform};
use crate::remote_memory::RemoteMemory;
use crate::time::{Rate, Time};
use control::{CTRL_HEAD_BYTES, REQ, RSP, SHORT};
use data::{Incoming, Outgoing};
use physical_memory::PhysicalMemory;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use window::Window;

/// What an entry of the LME is about.
enum Posted {
    /// A CTRL message.
    Control,
    /// Bytes of the large message that `to` receives as stream number `stream`.
    Data { to: Rank, stream: u64, len: usize },
    /// Bytes for a window, or a notification.
    Window,
}

/// What the driver keeps of another rank.
struct Peer {
    /// CTRL messages that may be sent to it.
    credits: u32,
    /// Credits that it has not been given back.
    credits_to_return: u32,
    /// The next CTRL message asks it for this large message.
    next_cts: Option<Incoming>,
    /// The next CTRL message announces a large one to it.
    next_is_rts: bool,
    /// Large messages from it.
    incoming: Vec<Incoming>,
    /// Large messages to it, in the order in which they were asked for.
    ///
    /// Two of them can have the same head: the receiver may have all of one, and ask for the next,
    /// before the device here has heard that the first is done. What is sent belongs to the first
    /// of them, what is asked to the last.
    outgoing: Vec<Outgoing>,
}

/// The driver of a card with remote write.
pub struct RemoteWriteDriver {
    f: Figures,
    cpu: Cpu,
    memory: Option<Memory>,
    /// Ranks of a node.
    processes: u32,
    me: Rank,
    peers: FxHashMap<Rank, Peer>,
    physical: PhysicalMemory,
    /// Entries of the LME that are not done, oldest first.
    posted: VecDeque<Posted>,
    /// Peers to whom runs of an RSP or a CRDT could not be sent for lack of room.
    backlog: Vec<Rank>,
    /// The next number of a buffer or a stream.
    next_number: u64,
    /// Entries posted so far.
    posted_count: u64,
    window: Window,
}

impl RemoteWriteDriver {
    /// The driver of rank `me`.
    pub fn new(platform: &Platform, f: &Figures, me: Rank) -> RemoteWriteDriver {
        RemoteWriteDriver {
            physical: PhysicalMemory::new(f.page.value.0, f.lock.is_none()),
            f: f.clone(),
            cpu: platform.cpu.clone(),
            memory: platform.memory.clone(),
            processes: platform.processes(),
            me,
            peers: FxHashMap::default(),
            posted: VecDeque::new(),
            backlog: Vec::new(),
            next_number: 1,
            posted_count: 0,
            window: Window::new(f),
        }
    }

    fn credits_max(&self) -> u32 {
        self.f.credits.value.0
    }

    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let credits = self.credits_max();
        self.peers.entry(rank).or_insert_with(|| Peer {
            credits,
            credits_to_return: 0,
            next_cts: None,
            next_is_rts: false,
            incoming: Vec::new(),
            outgoing: Vec::new(),
        })
    }

    /// Credits to send to a peer, and those that it is to get back.
    #[cfg(test)]
    fn credits(&self, rank: Rank) -> (u32, u32) {
        match self.peers.get(&rank) {
            Some(p) => (p.credits, p.credits_to_return),
            None => (self.credits_max(), 0),
        }
    }

    /// The memory shared with the peer, if it is a process of this node.
    fn shared_memory(&self, peer: Rank) -> Option<&Memory> {
        let same_node = peer / self.processes == self.me / self.processes;
        self.memory.as_ref().filter(|_| same_node)
    }

    fn copy_rate(&self, peer: Rank) -> Rate {
        self.shared_memory(peer)
            .map_or(self.cpu.copy.value, |m| m.copy.value)
    }

    fn has_entry(&self) -> bool {
        self.posted.len() < self.f.entries.value.0 as usize
    }

    fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// PUT: writes an entry into the LME and tells the card.
    fn put_entry(
        &mut self,
        c: &mut Client,
        to: Rank,
        notify: bool,
        address: u64,
        parts: &[&[u8]],
        what: Posted,
    ) {
        // The card wakes the rank at the end of an entry where the rank needs it: to free a buffer,
        // if that is an interrupt's work; at the end of a body; and often enough to keep the list
        // filled.
        self.posted_count += 1;
        let keeps_list_filled = self
            .posted_count
            .is_multiple_of(u64::from(self.f.entries.value.0) / 4);
        let is_control = matches!(what, Posted::Control);
        let wake = keeps_list_filled
            || if is_control {
                self.f.interrupt.is_some()
            } else {
                notify
            };
        let flags = if notify { NOTIFY } else { 0 } | if wake { WAKE } else { 0 };
        let shared = self.shared_memory(to).map(|m| m.message.value);
        match shared {
            Some(message) => c.charge("messages through shared memory", message),
            None => {
                if let Some(call) = &self.f.system_call {
                    c.charge("system calls", call.value);
                }
                c.charge("PUT", self.f.post.value);
            }
        }
        let head = head(to, flags, address);
        let mut all: Vec<&[u8]> = Vec::with_capacity(parts.len() + 1);
        all.push(&head);
        all.extend_from_slice(parts);
        c.command(if shared.is_some() { LOCAL } else { PUT }, &all);
        self.posted.push_back(what);
    }
}

impl Driver for RemoteWriteDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        // An RSP holds the head of a body and one run at least, beside the device's message.
        let room = self.f.control.value.0 as usize - CTRL_HEAD_BYTES;
        Limits {
            message_max: room,
            eager_max: room,
        }
    }

    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool {
        if self.peer(to).credits == 0 || !self.has_entry() {
            return false;
        }
        c.charge("library, sending", self.cpu.send.value);
        let mut bytes = Vec::with_capacity(64 + head.len() + body.len());
        let peer = self.peer(to);
        let (is_rts, cts) = (std::mem::take(&mut peer.next_is_rts), peer.next_cts.take());
        // A large message that goes by copies after all does not use the memory of the RSP.
        let is = |s: &Outgoing| s.message == message && s.head == head;
        if let Some(at) = peer.outgoing.iter().rposition(is) {
            peer.outgoing.remove(at);
        }
        let Some(mut incoming) = cts else {
            bytes.extend_from_slice(head);
            body.append_to(&mut bytes);
            let kind = if is_rts { REQ } else { SHORT };
            self.send_control(c, to, kind, message, &[], &bytes);
            return true;
        };
        bytes.extend([incoming.message, incoming.head.len() as u8]);
        bytes.extend_from_slice(&incoming.head);
        bytes.extend_from_slice(head);
        body.append_to(&mut bytes);
        if !incoming.copied && self.shared_memory(to).is_none() {
            self.charge_locking(c, incoming.len);
        }
        incoming.runs = self.physical.map(incoming.number, incoming.len);
        let runs = incoming.runs[..incoming.runs.len().min(self.runs_max(bytes.len()))].to_vec();
        incoming.unsent_runs = incoming.runs.len() - runs.len();
        let has_more = incoming.unsent_runs > 0;
        self.peer(to).incoming.push(incoming);
        self.send_control(c, to, RSP, message, &runs, &bytes);
        if has_more {
            self.add_to_backlog(to);
            self.send_backlog(c);
        }
        true
    }

    fn before_rts(&mut self, _c: &mut Client, to: Rank, _len: usize) {
        self.peer(to).next_is_rts = true;
    }

    fn before_cts(&mut self, _c: &mut Client, from: Rank, what: &Expected<'_>) {
        let number = self.new_number();
        self.peer(from).next_cts = Some(Incoming::new(number, what));
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        self.send_data(c, to, message, head, body)
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Malformed> {
        if c.begin_poll() {
            c.charge("polling", self.f.poll.value);
            if self.backlog.is_empty() && self.window.is_idle() && c.can_defer_poll() {
                c.defer_poll();
                return Ok(0);
            }
            c.sync();
        }
        let (mut moved, mut seen, mut woken) = (0, 0, false);
        while let Some(event) = self.window.next_event(c) {
            let is_arrival = event.kind == WRITTEN;
            let is_noted = match is_arrival {
                true => parse(&event.bytes).is_some_and(|(_, flags, ..)| flags & NOTIFY != 0),
                false => event.bytes == [WAKE],
            };
            if is_noted {
                seen += 1;
                if let Some(interrupt) = &self.f.interrupt {
                    c.charge("interrupts", interrupt.value);
                    if is_arrival && !woken {
                        woken = true;
                        c.charge("waking", Figures::or_zero(&self.f.wake));
                    }
                }
            }
            match event.kind {
                WRITTEN => moved += usize::from(self.on_written(c, &event.bytes, up)?),
                DONE => {
                    if let Some(Posted::Data { to, stream, len }) = self.posted.pop_front() {
                        self.on_data_sent(to, stream, len);
                    }
                }
                _ => {
                    let what = "an event that its own card does not have";
                    return Err(Malformed(self.me, what));
                }
            }
        }
        if seen > 0 && self.f.interrupt.is_none() {
            // All that has ended is acknowledged at once.
            c.charge("acknowledging", Figures::or_zero(&self.f.acknowledge));
        }
        if !self.backlog.is_empty() {
            self.send_backlog(c);
        }
        Ok(moved)
    }

    fn settle(&mut self, c: &mut Client) -> bool {
        self.backlog.is_empty() || self.send_backlog(c)
    }

    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        self.f.window.as_ref()?;
        Some(self)
    }

    fn poll_period(&self) -> Time {
        match self.f.interrupt {
            Some(_) => Time::ZERO,
            None => self.f.poll.value,
        }
    }
}

#[cfg(test)]
mod tests;
