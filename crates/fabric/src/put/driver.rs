//! The driver: CTRL messages with credits, DATA by rendezvous.
//!
//! CTRL messages are written into buffers that the receiver has set aside for this sender. A sender
//! has as many credits as there are buffers; each message costs one, and the receiver gives it back
//! when it has emptied the buffer: with its next CTRL message, or, when half of them have gathered,
//! by a CRDT. A CRDT itself costs none: it has a buffer of its own. SHORT carries a message of the
//! device, REQ one that announces a large message, RSP the answer to it with the physical runs of
//! the receiver's memory. DATA is then written straight into these, page by page if that is how the
//! memory lies.

use super::space::{Run, Space};
use super::{DONE, Figures, LOCAL, NOTIFY, PUT, WAKE, WRITTEN, copying, head, parse};
use crate::driver::{Body, Driver, Expected, Garbled, Limits, Upcall, hand_up};
use crate::machine::{Cpu, Machine, Memory, Nic};
use crate::{Client, Rank, Rate, Time};
use std::collections::{HashMap, VecDeque};

/// The kinds of CTRL messages (paper 4).
const SHORT: u8 = 1;
const REQ: u8 = 2;
const RSP: u8 = 3;
const CRDT: u8 = 4;

/// Bytes before a CTRL message's own: kind, the device's number, credits given back, runs of an
/// RSP.
const CTRL_HEAD: usize = 8;
/// Bytes of a run in an RSP.
const RUN: usize = 12;
/// Most runs in one RSP.
const RUNS_MAX: usize = 2048;

/// What the LME's oldest entries are about.
enum Posted {
    Control,
    /// Bytes of a body that this peer streams under this number.
    Data {
        to: Rank,
        stream: u64,
        len: usize,
    },
}

/// A large message that is being received.
struct Receiving {
    number: u64,
    message: u8,
    head: Vec<u8>,
    len: usize,
    got: usize,
    runs: Vec<Run>,
    /// Runs that the sender has not been told yet.
    untold: usize,
    /// Its bytes are copied to where they belong.
    bounced: bool,
}

/// A large message that is being sent.
struct Sending {
    stream: u64,
    message: u8,
    head: Vec<u8>,
    /// The receiver's memory, from the next byte to be posted on.
    runs: VecDeque<Run>,
    /// Of this side: likewise; none until the first bytes go.
    own: Option<(Vec<Run>, VecDeque<Run>)>,
    posted: usize,
    done: usize,
    /// Of `done`, bytes that the device knows of.
    told: usize,
}

#[derive(Default)]
struct Peer {
    credits: u32,
    owed: u32,
    /// The next CTRL message answers an announced one.
    expects: Option<Receiving>,
    /// It announces one.
    announces: bool,
    receiving: Vec<Receiving>,
    /// As they were asked for. The receiver may have all of one and have asked for the next by the
    /// same head before the device here has heard that the first is done: of two with one head
    /// what is sent belongs to the first, what is asked to the last.
    sending: Vec<Sending>,
    known: bool,
}

/// The driver of a card with remote write.
pub struct PutDriver {
    f: Figures,
    cpu: Cpu,
    memory: Option<Memory>,
    processes: u32,
    me: Rank,
    peers: HashMap<Rank, Peer>,
    space: Space,
    posted: VecDeque<Posted>,
    /// Peers that are owed an RSP's rest or a CRDT for which there was no room.
    behind: Vec<Rank>,
    next: u64,
    /// Entries posted so far.
    count: u64,
}

impl PutDriver {
    /// For rank `me` of `machine`; `None` if its card is another.
    pub fn new(machine: &Machine, me: Rank) -> Option<PutDriver> {
        #[allow(irrefutable_let_patterns)]
        let Nic::Put(f) = &machine.nic else {
            return None;
        };
        Some(PutDriver {
            space: Space::new(f.page.value.0, f.lock.is_none()),
            f: f.clone(),
            cpu: machine.cpu.clone(),
            memory: machine.memory.clone(),
            processes: machine.processes(),
            me,
            peers: HashMap::new(),
            posted: VecDeque::new(),
            behind: Vec::new(),
            next: 1,
            count: 0,
        })
    }

    fn credits_max(&self) -> u32 {
        self.f.credits.value.0
    }

    fn peer(&mut self, rank: Rank) -> &mut Peer {
        let credits = self.credits_max();
        let peer = self.peers.entry(rank).or_default();
        if !peer.known {
            (peer.known, peer.credits) = (true, credits);
        }
        peer
    }

    /// Credits to send to a peer, and those owed to it: for tests.
    pub fn credits(&self, rank: Rank) -> (u32, u32) {
        match self.peers.get(&rank) {
            Some(p) if p.known => (p.credits, p.owed),
            _ => (self.credits_max(), 0),
        }
    }

    /// Is the peer a process of this node, with whom memory is shared?
    fn shared(&self, peer: Rank) -> Option<&Memory> {
        let near = peer / self.processes == self.me / self.processes;
        self.memory.as_ref().filter(|_| near)
    }

    fn copy_rate(&self, peer: Rank) -> Rate {
        self.shared(peer)
            .map_or(self.cpu.copy.value, |m| m.copy.value)
    }

    fn has_entry(&self) -> bool {
        self.posted.len() < self.f.entries.value.0 as usize
    }

    /// PUT: writes an entry into the LME and tells the card.
    fn put(
        &mut self,
        c: &mut Client,
        to: Rank,
        notify: bool,
        address: u64,
        parts: &[&[u8]],
        what: Posted,
    ) {
        // Of the ends of entries the rank is told when it needs it: to free a buffer, where that is
        // an interrupt's work; at the end of a body; and often enough to keep the list
        // filled.
        self.count += 1;
        let often = self
            .count
            .is_multiple_of(u64::from(self.f.entries.value.0) / 4);
        let control = matches!(what, Posted::Control);
        let wake = often
            || if control {
                self.f.interrupt.is_some()
            } else {
                notify
            };
        let flags = if notify { NOTIFY } else { 0 } | if wake { WAKE } else { 0 };
        let shared = self.shared(to).map(|m| m.message.value);
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

    /// Writes a CTRL message into the peer's buffer. There is a credit (but for a CRDT) and an
    /// entry.
    fn control(
        &mut self,
        c: &mut Client,
        to: Rank,
        kind: u8,
        message: u8,
        runs: &[Run],
        bytes: &[u8],
    ) {
        let peer = self.peer(to);
        let credits = std::mem::take(&mut peer.owed);
        if kind != CRDT {
            debug_assert!(peer.credits > 0, "a message without a credit");
            peer.credits -= 1;
        }
        let mut ctrl = Vec::with_capacity(CTRL_HEAD + runs.len() * RUN);
        ctrl.extend([kind, message]);
        ctrl.extend((credits as u16).to_le_bytes());
        ctrl.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            ctrl.extend(run.address.to_le_bytes());
            ctrl.extend((run.len as u32).to_le_bytes());
        }
        c.charge(
            "copying",
            copying(self.copy_rate(to), ctrl.len() + bytes.len()),
        );
        self.put(c, to, true, 0, &[&ctrl, bytes], Posted::Control);
    }

    /// Runs that fit into one RSP beside `bytes` others.
    fn runs_max(&self, bytes: usize) -> usize {
        let room = (self.f.control.value.0 as usize).saturating_sub(CTRL_HEAD + bytes);
        (room / RUN).clamp(1, RUNS_MAX)
    }

    /// Gives the peers what they are owed, as far as there is room. True: nobody is left.
    fn catch_up(&mut self, c: &mut Client) -> bool {
        let most = self.runs_max(0);
        let half = (self.credits_max() / 2).max(1);
        let mut behind = std::mem::take(&mut self.behind);
        behind.retain(|&to| {
            loop {
                let has_entry = self.has_entry();
                let peer = self.peer(to);
                let owes = peer.owed >= half;
                let untold = peer.receiving.iter_mut().find(|r| r.untold > 0);
                if untold.is_none() && !owes {
                    return false;
                }
                if !has_entry {
                    return true;
                }
                match untold {
                    Some(_) if peer.credits == 0 && !owes => return true,
                    Some(r) if peer.credits > 0 => {
                        let from = r.runs.len() - r.untold;
                        let runs: Vec<Run> = r.runs[from..].iter().take(most).copied().collect();
                        r.untold -= runs.len();
                        let (message, head) = (r.message, r.head.clone());
                        // Further runs come with the head of the body instead of an answer.
                        self.control(c, to, RSP, message | 0x80, &runs, &head);
                    }
                    _ => self.control(c, to, CRDT, 0, &[], &[]),
                }
            }
        });
        behind.append(&mut self.behind);
        self.behind = behind;
        self.behind.is_empty()
    }

    fn falls_behind(&mut self, peer: Rank) {
        if !self.behind.contains(&peer) {
            self.behind.push(peer);
        }
    }

    /// What has been written into this rank's memory.
    fn written(
        &mut self,
        c: &mut Client,
        bytes: &[u8],
        up: &mut dyn Upcall,
    ) -> Result<bool, Garbled> {
        let Some((from, flags, address, bytes)) = parse(bytes) else {
            return Err(Garbled(self.me, "what its own card cannot write"));
        };
        if flags & NOTIFY != 0 {
            c.charge("arrivals", Figures::or_zero(&self.f.notice));
        }
        if address != 0 {
            return self.data(c, from, address, bytes, up).map(|()| true);
        }
        let garbled = |what| Err(Garbled(from, what));
        let Some((head, rest)) = bytes.split_first_chunk::<CTRL_HEAD>() else {
            return garbled("a control message that is too short");
        };
        let [kind, message, low, high, counts @ ..] = *head;
        let credits = u32::from(u16::from_le_bytes([low, high]));
        let runs = u32::from_le_bytes(counts) as usize;
        let most = self.credits_max();
        let peer = self.peer(from);
        if peer.credits + credits > most {
            return garbled("more credits than there are");
        }
        peer.credits += credits;
        if kind == CRDT {
            return Ok(false);
        }
        peer.owed += 1;
        if peer.owed > most {
            return garbled("a control message without a credit");
        }
        if peer.owed >= (most / 2).max(1) {
            self.falls_behind(from);
        }
        let Some((listed, own)) = runs.checked_mul(RUN).and_then(|n| rest.split_at_checked(n))
        else {
            return garbled("an answer that is too short");
        };
        match kind {
            SHORT | REQ => {}
            RSP if own.len() >= 2 || message & 0x80 != 0 => {
                let Some(own) = self.respond(from, message, listed, own) else {
                    return garbled("an answer that makes no sense");
                };
                if message & 0x80 != 0 {
                    return Ok(false);
                }
                c.charge("library, receiving", self.cpu.receive.value);
                up.arrived(from, message, own);
                return Ok(true);
            }
            _ => return garbled("a control message of no kind that there is"),
        }
        let rate = self.copy_rate(from);
        c.charge("library, receiving", self.cpu.receive.value);
        c.charge("copying", copying(rate, own.len()));
        self.came_by_copy(from, message, own);
        up.arrived(from, message, own);
        Ok(true)
    }

    /// A message that an answer was given to comes by copies, in the end: its memory is free.
    fn came_by_copy(&mut self, from: Rank, message: u8, bytes: &[u8]) {
        let peer = self.peer(from);
        let is = |r: &Receiving| r.message == message && bytes.starts_with(&r.head);
        if let Some(at) = peer.receiving.iter().position(is) {
            let r = peer.receiving.remove(at);
            self.space.release(&r.runs);
        }
    }

    /// Takes the receiver's memory out of an RSP; returns the device's message in it.
    fn respond<'b>(
        &mut self,
        from: Rank,
        message: u8,
        listed: &[u8],
        own: &'b [u8],
    ) -> Option<&'b [u8]> {
        let runs: VecDeque<Run> = listed
            .chunks_exact(RUN)
            .map(|r| Run {
                address: u64::from_le_bytes(r[..8].try_into().unwrap_or_default()),
                len: u32::from_le_bytes(r[8..].try_into().unwrap_or_default()) as usize,
            })
            .collect();
        if runs.iter().any(|r| r.address == 0 || r.len == 0) {
            return None;
        }
        let stream = self.next;
        self.next += 1;
        let peer = self.peer(from);
        if message & 0x80 != 0 {
            let sending = peer
                .sending
                .iter_mut()
                .rfind(|s| s.message == message & 0x7f && s.head == own);
            // Without one the message has gone by copies.
            if let Some(sending) = sending {
                sending.runs.extend(runs);
            }
            return Some(&[]);
        }
        // In front: the number and the head of the body to come.
        let (&[body, len], rest) = own.split_first_chunk::<2>()?;
        let (head, own) = rest.split_at_checked(len.into())?;
        peer.sending.push(Sending {
            stream,
            message: body,
            head: head.to_vec(),
            runs,
            own: None,
            posted: 0,
            done: 0,
            told: 0,
        });
        Some(own)
    }

    /// DATA has been written to `address`.
    fn data(
        &mut self,
        c: &mut Client,
        from: Rank,
        address: u64,
        bytes: &[u8],
        up: &mut dyn Upcall,
    ) -> Result<(), Garbled> {
        let place = self.space.find(address, bytes.len());
        let rate = self.copy_rate(from);
        let shared = self.shared(from).is_some();
        let peer = self.peer(from);
        let at = place.and_then(|(number, offset)| {
            peer.receiving
                .iter()
                .position(|r| r.number == number && r.got == offset)
        });
        let Some(at) = at else {
            return Err(Garbled(from, "data to an address that was not given to it"));
        };
        let r = &mut peer.receiving[at];
        r.got += bytes.len();
        let whole = r.got >= r.len;
        if r.bounced || shared {
            c.charge("copying", copying(rate, bytes.len()));
        }
        hand_up(up, from, r.message, &r.head, bytes);
        if whole {
            let r = peer.receiving.remove(at);
            self.space.release(&r.runs);
            c.charge("library, receiving", self.cpu.receive.value);
        }
        Ok(())
    }

    /// What finding the physical addresses of so many bytes takes.
    fn lock(&self, c: &mut Client, len: usize) {
        if let Some(lock) = &self.f.lock {
            c.charge(
                "locking and translating",
                lock.value * self.space.pages(len),
            );
        }
    }
}

impl Driver for PutDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        // The head of a body goes with the answer that asks for it, and so does one run at least.
        let room = self.f.control.value.0 as usize - CTRL_HEAD;
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
        let (announces, expects) = (std::mem::take(&mut peer.announces), peer.expects.take());
        // What was to go straight goes by copies: the answer's memory is not used.
        let is = |s: &Sending| s.message == message && s.head == head;
        if let Some(at) = peer.sending.iter().rposition(is) {
            peer.sending.remove(at);
        }
        let Some(mut r) = expects else {
            bytes.extend_from_slice(head);
            body.append_to(&mut bytes);
            let kind = if announces { REQ } else { SHORT };
            self.control(c, to, kind, message, &[], &bytes);
            return true;
        };
        bytes.extend([r.message, r.head.len() as u8]);
        bytes.extend_from_slice(&r.head);
        bytes.extend_from_slice(head);
        body.append_to(&mut bytes);
        if !r.bounced && self.shared(to).is_none() {
            self.lock(c, r.len);
        }
        r.runs = self.space.place(r.number, r.len);
        let runs: Vec<Run> = r
            .runs
            .iter()
            .take(self.runs_max(bytes.len()))
            .copied()
            .collect();
        r.untold = r.runs.len() - runs.len();
        let behind = r.untold > 0;
        self.peer(to).receiving.push(r);
        self.control(c, to, RSP, message, &runs, &bytes);
        if behind {
            self.falls_behind(to);
            self.catch_up(c);
        }
        true
    }

    fn announces(&mut self, _c: &mut Client, to: Rank, _len: usize) {
        self.peer(to).announces = true;
    }

    fn expects(&mut self, _c: &mut Client, from: Rank, what: &Expected<'_>) {
        let number = self.next;
        self.next += 1;
        self.peer(from).expects = Some(Receiving {
            number,
            message: what.message,
            head: what.head.to_vec(),
            len: what.len,
            got: 0,
            runs: Vec::new(),
            untold: 0,
            bounced: what.address.is_none(),
        });
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        let is = |s: &Sending| s.message == message && s.head == head;
        let Some(at) = self.peer(to).sending.iter().position(is) else {
            return 0;
        };
        let mut s = self.peer(to).sending.remove(at);
        let len = s.told + body.len();
        if s.own.is_none() {
            c.charge("library, sending", self.cpu.send.value);
            if self.shared(to).is_none() {
                self.lock(c, len);
            }
            let number = self.next;
            self.next += 1;
            let runs = self.space.place(number, len);
            s.own = Some((runs.clone(), runs.into()));
        }
        let shared = self.shared(to).is_some();
        while s.posted < len && self.has_entry() {
            let Some((_, own)) = &mut s.own else { break };
            let (Some(there), Some(here)) = (s.runs.front_mut(), own.front_mut()) else {
                break;
            };
            let piece = there.len.min(here.len).min(self.f.entry.value.0 as usize);
            let address = there.address;
            for run in [there, here] {
                run.address += piece as u64;
                run.len -= piece;
            }
            if s.runs.front().is_some_and(|r| r.len == 0) {
                s.runs.pop_front();
            }
            if own.front().is_some_and(|r| r.len == 0) {
                own.pop_front();
            }
            let from = s.posted - s.told;
            let bytes = &body[from..from + piece];
            s.posted += piece;
            if shared {
                c.charge("copying", copying(self.copy_rate(to), piece));
            }
            let posted = Posted::Data {
                to,
                stream: s.stream,
                len: piece,
            };
            self.put(c, to, s.posted == len, address, &[bytes], posted);
        }
        let taken = s.done - s.told;
        s.told = s.done;
        if s.done < len {
            self.peer(to).sending.insert(at, s);
        } else if let Some((runs, _)) = &s.own {
            self.space.release(runs);
        }
        taken
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Garbled> {
        if c.begins_look() {
            c.charge("polling", self.f.poll.value);
            if self.behind.is_empty() && c.can_put_off() {
                c.put_off();
                return Ok(0);
            }
            c.sync();
        }
        let (mut moved, mut seen, mut woken) = (0, 0, false);
        while let Some(event) = c.event() {
            let arrival = event.kind == WRITTEN;
            let noted = match arrival {
                true => parse(&event.bytes).is_some_and(|(_, flags, ..)| flags & NOTIFY != 0),
                false => event.bytes == [WAKE],
            };
            if noted {
                seen += 1;
                if let Some(interrupt) = &self.f.interrupt {
                    c.charge("interrupts", interrupt.value);
                    if arrival && !woken {
                        woken = true;
                        c.charge("waking", Figures::or_zero(&self.f.wake));
                    }
                }
            }
            match event.kind {
                WRITTEN => moved += usize::from(self.written(c, &event.bytes, up)?),
                DONE => {
                    if let Some(Posted::Data { to, stream, len }) = self.posted.pop_front() {
                        let peer = self.peer(to);
                        if let Some(s) = peer.sending.iter_mut().find(|s| s.stream == stream) {
                            s.done += len;
                        }
                    }
                }
                _ => return Err(Garbled(self.me, "an event that its own card does not have")),
            }
        }
        if seen > 0 && self.f.interrupt.is_none() {
            // All that has ended is acknowledged at once.
            c.charge("acknowledging", Figures::or_zero(&self.f.acknowledge));
        }
        if !self.behind.is_empty() {
            self.catch_up(c);
        }
        Ok(moved)
    }

    fn settled(&mut self, c: &mut Client) -> bool {
        self.behind.is_empty() || self.catch_up(c)
    }

    fn period(&self) -> Time {
        match self.f.interrupt {
            Some(_) => Time::ZERO,
            None => self.f.poll.value,
        }
    }
}

#[cfg(test)]
mod tests;
