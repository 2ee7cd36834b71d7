//! Memory of other nodes, by NREAD, NWRITE and doorbells.
//!
//! Segments lie in the node's window, the memory that its card maps. A put is as many NWRITE as it
//! needs, of 8 bytes each on the paper's card. The processor issues them one by one; nothing
//! answers them. A get is NREAD after NREAD, and the processor waits for each. A flush is an NREAD
//! of what was put last: it does not overtake the NWRITE before it. A notification is a doorbell.

use super::control::{ControlEvent, ControlLevel, User};
use super::lower::LowerLevel;
use crate::driver::Malformed;
use crate::kernel::{Client, Rank};
use crate::mapped_window::MappedWindow;
use crate::platform::Platform;
use crate::rapidio::command::{Physical, WINDOW_AT};
use crate::rapidio::figures::Figures;
use crate::remote_memory::{Offer, SegmentKey};
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A node's use of other nodes' windows, and of its own.
pub struct Remote {
    user: User,
    offer: Offer,
    /// Most bytes of an NREAD or NWRITE.
    io_max: usize,
    /// This node's window.
    pub(crate) window: MappedWindow,
    /// By peer: where the last put that was not flushed began.
    unflushed: FxHashMap<Rank, u64>,
    notifications: VecDeque<(Rank, u8)>,
}

impl Remote {
    /// The remote memory of a node, as a user of its control level.
    pub fn new(platform: &Platform, f: &Figures, user: User) -> Remote {
        Remote {
            user,
            offer: offer(platform, f),
            io_max: f.io.value.0 as usize,
            window: MappedWindow::new(f.window.value.0),
            unflushed: FxHashMap::default(),
            notifications: VecDeque::new(),
        }
    }

    /// What the card offers.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Opens a segment. `None`: it is not in the window.
    pub fn register(
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        address: usize,
        bytes: usize,
    ) -> Option<SegmentKey> {
        let (offset, bytes) = (MappedWindow::offset(c, address, bytes)?, bytes as u64);
        control.segment(c, offset, bytes, true);
        Some(SegmentKey {
            at: WINDOW_AT.0 + offset,
            bytes,
        })
    }

    /// Closes a segment.
    pub fn deregister(c: &mut Client, control: &mut ControlLevel<LowerLevel>, key: SegmentKey) {
        let offset = key.at.saturating_sub(WINDOW_AT.0);
        control.segment(c, offset, key.bytes, false);
    }

    /// Puts bytes to a physical address of a peer.
    pub fn put(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        to: Rank,
        at: u64,
        bytes: &[u8],
    ) {
        if !bytes.is_empty() {
            control.write(c, to, Physical(at), bytes);
            self.unflushed.insert(to, at);
        }
    }

    /// Gets bytes from a physical address of a peer. Blocks until they are here.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn get(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        from: Rank,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), Malformed> {
        control.charge_call(c);
        let io_max = self.io_max;
        for (number, part) in into.chunks_mut(io_max).enumerate() {
            let at = Physical(at + (number * io_max) as u64);
            let bytes = self.read(c, control, from, at, part.len() as u16)?;
            if bytes.len() != part.len() {
                return Err(Malformed(from, "another number of bytes than were read"));
            }
            part.copy_from_slice(&bytes);
        }
        // What was read has pushed the puts before it to their places.
        if !into.is_empty() {
            self.unflushed.remove(&from);
        }
        Ok(())
    }

    /// One NREAD. Blocks until its bytes are here.
    fn read(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        from: Rank,
        at: Physical,
        bytes: u16,
    ) -> Result<Vec<u8>, Malformed> {
        let read = control.read(c, self.user, from, at, bytes);
        loop {
            c.wait(Time::ZERO);
            // The processor has waited in a load: no interrupt has woken it.
            c.take_waited();
            control.progress(c)?;
            while let Some(event) = control.event(self.user) {
                match event {
                    ControlEvent::Read { id, bytes } if id == read => return Ok(bytes),
                    event => self.keep(event),
                }
            }
        }
    }

    /// Blocks until what was put to a peer is in its memory.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    pub fn flush(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        peer: Rank,
    ) -> Result<(), Malformed> {
        if let Some(at) = self.unflushed.remove(&peer) {
            control.charge_call(c);
            self.read(c, control, peer, Physical(at), 1)?;
        }
        Ok(())
    }

    /// Rings a peer's doorbell.
    pub fn notify(
        &mut self,
        c: &mut Client,
        control: &mut ControlLevel<LowerLevel>,
        peer: Rank,
        number: u8,
    ) {
        control.doorbell(c, self.user, peer, number);
    }

    /// A node is lost.
    pub fn forget(&mut self, peer: Rank) {
        self.unflushed.remove(&peer);
        self.notifications.retain(|(from, _)| *from != peer);
    }

    fn keep(&mut self, event: ControlEvent) {
        if let ControlEvent::Doorbell { from, number } = event {
            self.notifications.push_back((from, number));
        }
    }

    /// Takes the notifications that the control level has. Returns how many.
    pub fn take_notifications(&mut self, control: &mut ControlLevel<LowerLevel>) -> usize {
        let before = self.notifications.len();
        while let Some(event) = control.event(self.user) {
            self.keep(event);
        }
        self.notifications.len() - before
    }

    /// The oldest notification.
    pub fn notification(&mut self) -> Option<(Rank, u8)> {
        self.notifications.pop_front()
    }
}

/// What a card with these figures offers. The sizes at which a put takes as long as a message, and
/// a get as long as a message there and one back, are estimates from the figures.
fn offer(platform: &Platform, f: &Figures) -> Offer {
    let (call, io) = (&f.instructions_control, &f.instructions_io);
    let levels = (f.instructions(call) + f.instructions(&f.instructions_mx)) * 3;
    let lower = f.instructions(&f.instructions_send)
        + f.instructions(&f.instructions_unexpected)
        + f.instructions(&f.instructions_completion);
    let cpu = &platform.cpu;
    let message = levels + lower + cpu.send.value + cpu.receive.value + f.report.value;
    let hops = platform.network.latency.value * 4;
    let most = |both: Time, transaction: Time| {
        // Bytes of a message are copied on both sides.
        let copies = cpu.copy.value.time_of(f.io.value.0) * 2;
        let gained = both.since(f.instructions(call)).as_ps();
        match transaction.since(copies).as_ps() {
            0 => usize::MAX,
            more => (gained / more * f.io.value.0) as usize,
        }
    };
    let io = f.instructions(io);
    Offer {
        put_max: most(message, io),
        get_max: most(message * 2, io + hops),
        flush: true,
        notify: true,
        strided: false,
    }
}
