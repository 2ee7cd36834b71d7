//! The MPI device's driver: connections over rings, eager messages, and large messages by RVS.
//!
//! Each message begins with an *envelope*. It goes by BOTF as an IVS packet into the ring that the
//! receiver keeps for this sender.
//!
//! - Eager: the data follow at once, in IVS packets. They lie in the ring behind the envelope,
//!   which the receiver reads already.
//! - Rendezvous: request to send (RTS) and clear to send (CTS) are envelopes of the device above.
//!   The data go by RVS into a rendezvous buffer in the receiver's SO-DIMM, which belongs to this
//!   connection. An envelope, finish to send (FTS), says that they are there.
//!
//! A process's buffers lie in ordinary memory. So data pass through its Write Window and the
//! receiver's Prefetch Window, as the paper's authors had planned. What finds no slot waits in the
//! connection's send queue.

mod adapter;
mod envelope;
mod fetch;
mod host_costs;
mod layout;
mod mapped;
mod onesided;
mod receive;
mod regions;
mod send;

pub use adapter::DimmnetDriver;
pub use envelope::{ENVELOPE_BYTES, HEAD_MAX_BYTES};
pub use fetch::{FetchTarget, Fetched};
pub use host_costs::{HostCosts, PrefetchMode, WriteMode};
pub use layout::{MemoryLayout, RENDEZVOUS_BUFFERS, program_memory};
pub use mapped::MappedCard;
pub use onesided::Remote;

use super::card::LlcmWord;
use super::card::command::Command;
use super::card::packet::Process;
use crate::time::Time;
use std::collections::VecDeque;

/// The processor's access to the card: mapped windows, registers and LLCM.
///
/// Only [`CardPort::wait`] takes time by itself. The driver charges what the other accesses cost.
pub trait CardPort {
    /// The processor works for `cost` on `cause`.
    fn charge(&mut self, cause: &'static str, cost: Time);
    /// Stores bytes in the Write Window.
    fn store(&mut self, window: u32, bytes: &[u8]);
    /// Writes a command's words into the User Registers.
    fn command(&mut self, words: &[u32]);
    /// Writes Next Read Addr of a sender's ring into LLCM.
    fn set_read_addr(&mut self, sender: u32, nra: u32);
    /// Brings [`CardPort::word`] and [`CardPort::load`] up to the processor's clock.
    fn sync(&mut self);
    /// Returns whether the current poll can be deferred: the caller waits if it finds nothing.
    fn can_defer_poll(&self) -> bool;
    /// Defers the current poll until the caller waits.
    fn defer_poll(&mut self);
    /// Does [`CardPort::sync`], and [`CardPort::wait`] if nothing is there. Blocks until something
    /// is.
    fn sync_or_wait(&mut self, poll_period: Time);
    /// A word of LLCM as of the last sync.
    fn word(&self, word: LlcmWord) -> u32;
    /// Bytes of the Prefetch Window as of the last sync.
    fn load(&self, window: u32, into: &mut [u8]);
    /// Polls every `poll_period` until something has changed that this process can read. Blocks
    /// until then.
    fn wait(&mut self, poll_period: Time);
}

/// The connection to one peer.
struct Connection {
    process: Process,
    /// The peer's number among senders.
    sender: u32,
    /// Next Read Addr of its ring here.
    nra: u32,
    /// An eager message from it whose body has not come to its end.
    partial: Option<receive::PartialMessage>,
    /// Envelopes and data that found no slot: the paper's send queue.
    queue: VecDeque<send::Queued>,
    /// Which of the rendezvous buffers at the peer are free.
    free_buffers: [bool; RENDEZVOUS_BUFFERS as usize],
}

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way, or in the send queue. Its memory may be used again.
    Taken,
    /// The send queue is not empty. Try again later.
    Full,
}

/// The driver of one process.
pub struct CardDriver<P> {
    port: P,
    /// Its rings are set up.
    started: bool,
    costs: HostCosts,
    layout: MemoryLayout,
    me: u32,
    /// Number of senders in the job.
    senders: u32,
    peers: Vec<Connection>,
    /// Peers with something in their send queue.
    queued_peers: Vec<u32>,
    /// Commands issued that stay on the card, to compare with [`LlcmWord::VectorsDone`].
    pub(super) vectors_issued: u32,
    /// Commands issued to the network, to compare with [`LlcmWord::SendsDone`].
    sends_issued: u32,
    /// RVL issued, to compare with [`LlcmWord::LoadsDone`].
    loads_issued: u32,
    /// [`LlcmWord::SendsDone`] as the driver has read it last.
    sends_done: u32,
    /// The rings have just been polled, while the driver waited.
    has_polled: bool,
    /// The card has given the words of the last poll. The processor does not have them yet.
    reply_pending: bool,
    /// The part of a ring that lies in the Prefetch Window's first slots.
    prefetched: Option<receive::PrefetchedRange>,
    /// Kept to reuse its memory.
    buffer: Vec<u8>,
    errors: u32,
    fetches: fetch::Fetches,
}

impl<P> CardDriver<P> {
    /// As [`CardDriver::new`], without setting up the rings.
    pub fn new_unstarted(
        port: P,
        costs: HostCosts,
        layout: MemoryLayout,
        me: u32,
        ranks: &[Process],
    ) -> CardDriver<P> {
        let connection = |process: &Process| Connection {
            process: *process,
            sender: layout.sender(*process),
            nra: 0,
            partial: None,
            queue: VecDeque::new(),
            free_buffers: [true; RENDEZVOUS_BUFFERS as usize],
        };
        let peers: Vec<Connection> = ranks.iter().map(connection).collect();
        let senders = peers.iter().map(|c| c.sender + 1).max().unwrap_or(0);
        CardDriver {
            started: false,
            port,
            costs,
            layout,
            me,
            senders,
            peers,
            queued_peers: Vec::new(),
            vectors_issued: 0,
            sends_issued: 0,
            loads_issued: 0,
            sends_done: 0,
            has_polled: false,
            reply_pending: false,
            prefetched: None,
            buffer: Vec::new(),
            errors: 0,
            fetches: fetch::Fetches::default(),
        }
    }

    /// Exchanges the port. Returns the old one, too.
    pub fn with_port<Q>(self, port: Q) -> (CardDriver<Q>, P) {
        let driver = CardDriver {
            port,
            started: self.started,
            costs: self.costs,
            layout: self.layout,
            me: self.me,
            senders: self.senders,
            peers: self.peers,
            queued_peers: self.queued_peers,
            vectors_issued: self.vectors_issued,
            sends_issued: self.sends_issued,
            loads_issued: self.loads_issued,
            sends_done: self.sends_done,
            has_polled: self.has_polled,
            reply_pending: self.reply_pending,
            prefetched: self.prefetched,
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

    /// How long it takes to poll all rings, and the counter of a fetch if one is under way.
    pub fn poll_period(&self) -> Time {
        let rings = self.peers.len().max(2) as u64 - 1;
        self.costs.read * (rings + u64::from(!self.fetches.is_empty()))
    }
}

impl<P: CardPort> CardDriver<P> {
    /// The driver of rank `me` of a job whose ranks are these processes. Sets up its rings.
    pub fn new(
        port: P,
        costs: HostCosts,
        layout: MemoryLayout,
        me: u32,
        ranks: &[Process],
    ) -> CardDriver<P> {
        let mut driver = CardDriver::new_unstarted(port, costs, layout, me, ranks);
        driver.start();
        driver
    }

    /// Sets up the rings, once.
    pub fn start(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            self.issue(&Command::Rings {
                base: 0,
                size: self.layout.ring,
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

    /// Returns whether [`CardDriver::send`] will take a message to `to`.
    pub fn has_room(&mut self, to: u32) -> bool {
        self.peers[to as usize].queue.is_empty() || self.send_queue_of(to)
    }

    /// Returns whether everything has left this process's windows and send queues.
    pub fn is_settled(&mut self) -> bool {
        let gone = self.port.word(LlcmWord::SendsDone) == self.sends_issued;
        self.queued_peers.is_empty() && gone && self.fetches.is_empty()
    }

    /// Polls all rings until something has changed. [`CardDriver::poll`] then takes what came.
    /// Blocks until then. Only to be called right after a poll in which nothing happened: what has
    /// been seen already does not end the wait.
    pub fn wait(&mut self) {
        let period = self.poll_period();
        self.port.wait(period);
        self.has_polled = true;
    }

    /// The caller has waited otherwise than by [`CardDriver::wait`], and polled all rings.
    pub fn set_polled(&mut self) {
        self.has_polled = true;
    }

    /// The card's last error, if there has been one since this was asked last.
    pub fn error(&mut self) -> Option<super::card::command::CardError> {
        let errors = self.port.word(LlcmWord::Errors);
        if errors == self.errors {
            return None;
        }
        self.errors = errors;
        super::card::command::CardError::from_number(self.port.word(LlcmWord::LastError))
    }

    /// Writes a command into the User Registers.
    pub(in crate::dimmnet2) fn issue(&mut self, command: &Command) {
        self.end_read();
        let words = command.words().unwrap_or_default();
        self.port
            .charge("registers", self.costs.register * words.len() as u64);
        self.port.command(&words);
        match command {
            Command::RemoteLoad { .. } => {
                self.loads_issued = self.loads_issued.wrapping_add(1);
                self.sends_issued = self.sends_issued.wrapping_add(1);
            }
            c if c.is_remote() => self.sends_issued = self.sends_issued.wrapping_add(1),
            _ => self.vectors_issued = self.vectors_issued.wrapping_add(1),
        }
    }

    /// Begins to read words of LLCM, which takes `period` in all.
    ///
    /// The clock then stands where the card gives the words. A later change is not seen.
    fn begin_read(&mut self, period: Time) {
        self.end_read();
        let until_given = period - self.costs.reply;
        self.port.charge("reads of LLCM", until_given);
        self.reply_pending = true;
    }

    /// Ends a read of LLCM: the words come to the processor.
    fn end_read(&mut self) {
        if std::mem::take(&mut self.reply_pending) {
            self.port.charge("reads of LLCM", self.costs.reply);
        }
    }

    /// Commands to the network that have not left their window, by what the driver has read.
    fn in_flight(&self) -> u32 {
        self.sends_issued.wrapping_sub(self.sends_done)
    }

    /// Returns whether a slot for a packet image is free. Reads LLCM if none is known to be.
    fn has_slot(&mut self) -> bool {
        if self.in_flight() >= self.layout.slots {
            self.begin_read(self.costs.read);
            self.port.sync();
            self.sends_done = self.port.word(LlcmWord::SendsDone);
            self.end_read();
        }
        self.in_flight() < self.layout.slots
    }

    /// Waits until a slot is free. Blocks until then.
    pub(in crate::dimmnet2) fn await_slot(&mut self) {
        if self.in_flight() >= self.layout.slots {
            let left = self.sends_issued.wrapping_sub(self.layout.slots - 1);
            self.await_counter(LlcmWord::SendsDone, left);
        }
    }

    /// Reads a counter of LLCM until it has reached `target`. Blocks until then.
    pub(super) fn await_counter(&mut self, word: LlcmWord, target: u32) {
        self.begin_read(self.costs.read);
        if self.has_reached(word, target) {
            self.port.sync();
        } else {
            self.port.sync_or_wait(self.costs.read);
            while !self.has_reached(word, target) {
                self.port.wait(self.costs.read);
            }
        }
        self.end_read();
        if word == LlcmWord::SendsDone {
            self.sends_done = self.port.word(word);
        }
    }

    /// Returns whether a counter of LLCM had reached `target` at the last sync.
    fn has_reached(&self, word: LlcmWord, target: u32) -> bool {
        self.port.word(word).wrapping_sub(target) as i32 >= 0
    }
}

#[cfg(test)]
mod tests;
