//! The MPI device's driver: connections over rings, eager messages, and large ones by RVS.
//!
//! Each message begins with an *envelope*, which goes by BOTF as an IVS packet into the ring that
//! the receiver keeps for this sender.
//!
//! - Eager: the data follow at once, in IVS packets. In the ring they lie behind the envelope,
//!   which the receiver already reads.
//! - Rendezvous: request to send (RTS) and clear to send (CTS) are envelopes of the device above.
//!   The data go by RVS into a place in the receiver's SO-DIMM that belongs to this connection, and
//!   an envelope, finish to send (FTS), says that they are there.
//!
//! A process's buffers lie in ordinary memory, so data pass through its Write Window and the
//! receiver's Prefetch Window (the paper's authors had planned that). What finds no room is kept in
//! the connection's send queue.

mod envelope;
mod fetch;
mod host;
mod onesided;
mod receive;
mod send;

pub use envelope::{ENVELOPE, HEAD_MAX};
pub use fetch::{Fetched, Into};
pub use host::{Host, PrefetchMode, WriteMode};
pub use onesided::Remote;

use super::card::Word;
use super::command::Command;
use super::packet::Process;
use crate::Time;
use std::collections::VecDeque;

/// What the processor has of the card: mapped windows, registers and LLCM. Nothing here takes time
/// by itself but for [`Port::wait`]; the driver charges what its accesses cost.
pub trait Port {
    /// The processor works for so long on `cause`.
    fn charge(&mut self, cause: &'static str, cost: Time);
    /// Stores bytes in the Write Window.
    fn store(&mut self, window: u32, bytes: &[u8]);
    /// Writes a command's words into the User Registers.
    fn command(&mut self, words: &[u32]);
    /// Writes Next Read Addr of a sender's ring into LLCM.
    fn consume(&mut self, sender: u32, nra: u32);
    /// Brings [`Port::word`] and [`Port::load`] up to the processor's clock.
    fn look(&mut self);
    /// Does the caller wait if a look shows nothing, so that it can be put off till then?
    fn can_put_off(&self) -> bool;
    /// It is.
    fn put_off(&mut self);
    /// [`Port::look`], and if nothing is there [`Port::wait`]. Blocks until something is.
    fn look_or_wait(&mut self, period: Time);
    /// A word of LLCM as of the last look.
    fn word(&self, word: Word) -> u32;
    /// Bytes of the Prefetch Window as of the last look.
    fn load(&self, window: u32, into: &mut [u8]);
    /// Looks again and again, every `period`, until something has changed that this process can
    /// read. Blocks until then.
    fn wait(&mut self, period: Time);
}

/// How the driver uses windows and SO-DIMM. The same in all processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Processes that a card serves.
    pub processes: u16,
    /// Bytes of a slot of the windows: the longest packet image, and the most that a VL brings.
    pub slot: u32,
    /// Slots of the Write Window for packet images; behind them as many lie for other uses.
    pub slots: u32,
    /// Bytes of a ring.
    pub ring: u32,
    /// Bytes of a place for rendezvous data; each connection has [`PLACES`].
    pub place: u32,
    /// Bytes that a VL of an envelope brings: with a little luck all of a short message.
    pub glance: u32,
}

/// Places for rendezvous data that a connection has: one is filled while the other is emptied.
pub const PLACES: u32 = 2;
impl Plan {
    /// Bytes of each window.
    pub fn window(&self) -> u32 {
        2 * self.slots * self.slot
    }

    /// Bytes of SO-DIMM that a process needs for a job of so many senders, before what it exposes.
    pub fn memory(&self, senders: u32) -> u64 {
        u64::from(senders) * (u64::from(self.ring) + u64::from(PLACES * self.place))
    }

    /// Bytes of data in an image of one slot.
    fn data(&self) -> u32 {
        self.slot - super::packet::HEADER
    }

    /// Where a sender's ring begins.
    fn ring_at(&self, sender: u32) -> u32 {
        sender * self.ring
    }

    /// Where a sender's place for rendezvous data begins, in a job of so many.
    fn place_at(&self, senders: u32, sender: u32, place: u32) -> u32 {
        senders * self.ring + (sender * PLACES + place) * self.place
    }

    /// A process's number among senders.
    pub fn sender(&self, process: Process) -> u32 {
        u32::from(process.node) * u32::from(self.processes) + u32::from(process.port)
    }
}

/// One peer: the ring that it fills, and what waits to go to it.
struct Connection {
    process: Process,
    sender: u32,
    /// Next Read Addr of its ring here.
    nra: u32,
    /// An eager message whose body is still coming in.
    coming: Option<receive::Coming>,
    /// Envelopes and data that found no slot: the paper's send queue.
    queue: VecDeque<send::Queued>,
    /// Its places for rendezvous data over there that are free.
    free: [bool; PLACES as usize],
}

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way, or in the send queue; its memory may be used again.
    Taken,
    /// Others wait already to go there: later.
    Full,
}

/// The driver of one process.
pub struct Driver<P> {
    port: P,
    /// Its rings are set up.
    started: bool,
    host: Host,
    plan: Plan,
    me: u32,
    senders: u32,
    peers: Vec<Connection>,
    /// Peers with something in their send queue.
    queued: Vec<u32>,
    /// Commands issued, to compare with LLCM's counters.
    vectors: u32,
    sends: u32,
    loads: u32,
    /// The rings have just been looked at, in [`Driver::wait`].
    looked: bool,
    /// What the Prefetch Window's first slots hold of a ring.
    held: Option<receive::Held>,
    buffer: Vec<u8>,
    errors: u32,
    fetches: fetch::Fetches,
}

impl<P> Driver<P> {
    /// As [`Driver::new`], but the rings are not set up yet.
    pub fn unstarted(port: P, host: Host, plan: Plan, me: u32, ranks: &[Process]) -> Driver<P> {
        let connection = |process: &Process| Connection {
            process: *process,
            sender: plan.sender(*process),
            nra: 0,
            coming: None,
            queue: VecDeque::new(),
            free: [true; PLACES as usize],
        };
        let peers: Vec<Connection> = ranks.iter().map(connection).collect();
        let senders = peers.iter().map(|c| c.sender + 1).max().unwrap_or(0);
        Driver {
            started: false,
            port,
            host,
            plan,
            me,
            senders,
            peers,
            queued: Vec::new(),
            vectors: 0,
            sends: 0,
            loads: 0,
            looked: false,
            held: None,
            buffer: Vec::new(),
            errors: 0,
            fetches: fetch::Fetches::default(),
        }
    }

    /// The same with another port, and the one it had.
    pub fn exchange<Q>(self, port: Q) -> (Driver<Q>, P) {
        let driver = Driver {
            port,
            started: self.started,
            host: self.host,
            plan: self.plan,
            me: self.me,
            senders: self.senders,
            peers: self.peers,
            queued: self.queued,
            vectors: self.vectors,
            sends: self.sends,
            loads: self.loads,
            looked: self.looked,
            held: self.held,
            buffer: self.buffer,
            errors: self.errors,
            fetches: self.fetches,
        };
        (driver, self.port)
    }

    /// A peer's number among senders.
    pub(super) fn sender_of(&self, rank: u32) -> u32 {
        self.peers[rank as usize].sender
    }

    /// How many commands that stay on the card have been issued.
    pub(super) fn vectors_issued(&self) -> u32 {
        self.vectors
    }

    /// How long it takes to look at all rings once, and whether what is being fetched has come.
    pub fn period(&self) -> Time {
        let rings = self.peers.len().max(2) as u64 - 1;
        self.host.read * (rings + u64::from(!self.fetches.is_empty()))
    }
}

impl<P: Port> Driver<P> {
    /// For rank `me` of a job whose ranks are these processes. Sets up its rings.
    pub fn new(port: P, host: Host, plan: Plan, me: u32, ranks: &[Process]) -> Driver<P> {
        let mut driver = Driver::unstarted(port, host, plan, me, ranks);
        driver.start();
        driver
    }

    /// Sets up the rings unless it has been done.
    pub fn start(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            self.issue(&Command::Rings {
                base: 0,
                size: self.plan.ring,
                senders: self.senders,
            });
        }
    }
    /// The processor's side of the card.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The processor's side of the card.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Will [`Driver::send`] take a message to `to`?
    pub fn has_room(&mut self, to: u32) -> bool {
        self.peers[to as usize].queue.is_empty() || self.push_queue(to)
    }

    /// Has everything left this process's windows and send queues?
    pub fn is_settled(&mut self) -> bool {
        self.queued.is_empty() && self.under_way() == 0 && self.fetches.is_empty()
    }

    /// Looks at all rings, again and again, until something has changed; [`Driver::poll`] takes
    /// what came. Blocks until then. To be called after a poll in which nothing happened, and
    /// nothing else since: what has been looked at does not end it.
    pub fn wait(&mut self) {
        let period = self.period();
        self.port.wait(period);
        self.looked = true;
    }

    /// Whoever waits otherwise than by [`Driver::wait`] has looked at all rings just now.
    pub fn has_looked(&mut self) {
        self.looked = true;
    }

    /// The card's last error, if there has been one since this was asked last.
    pub fn error(&mut self) -> Option<super::command::CardError> {
        let errors = self.port.word(Word::Errors);
        if errors == self.errors {
            return None;
        }
        self.errors = errors;
        super::command::CardError::from_number(self.port.word(Word::LastError))
    }

    /// Writes a command into the User Registers.
    fn issue(&mut self, command: &Command) {
        let words = command.words().unwrap_or_default();
        self.port
            .charge("registers", self.host.register * words.len() as u64);
        self.port.command(&words);
        match command {
            Command::RemoteLoad { .. } => {
                self.loads = self.loads.wrapping_add(1);
                self.sends = self.sends.wrapping_add(1);
            }
            c if c.is_remote() => self.sends = self.sends.wrapping_add(1),
            _ => self.vectors = self.vectors.wrapping_add(1),
        }
    }

    /// Commands to the network that have not left their window, as of the last look.
    fn under_way(&self) -> u32 {
        self.sends.wrapping_sub(self.port.word(Word::SendsDone))
    }

    /// Reads a counter of LLCM until it has come to `target`. Blocks until then.
    pub(super) fn until(&mut self, word: Word, target: u32) {
        self.port.charge("reads of LLCM", self.host.read);
        if self.has_come(word, target) {
            return self.port.look();
        }
        self.port.look_or_wait(self.host.read);
        while !self.has_come(word, target) {
            self.port.wait(self.host.read);
        }
    }

    /// Had a counter of LLCM come to `target` at the last look?
    fn has_come(&self, word: Word, target: u32) -> bool {
        self.port.word(word).wrapping_sub(target) as i32 >= 0
    }
}

#[cfg(test)]
mod tests;
