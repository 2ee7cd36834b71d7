//! The card: a state machine without a clock. Its caller tells it what comes and when, and does
//! what follows ([`Effect`]).
//!
//! ```text
//!   access::STORE, COMMAND, SET_READ_ADDR          packets from the network
//!          │                                              │
//!   Write Window ─► command ─► execute ─► packets    receive ─► ring ─► SO-DIMM
//!                       │                                 │
//!                 Prefetch Window                       LLCM (NWA, counters)
//! ```

pub mod access;
pub mod command;
mod execute;
mod model;
pub mod packet;
pub mod pattern;
mod receive;
pub mod ring;
pub mod sodimm;
mod state;
mod timing;

pub use model::{Cards, ProgramMemory};
pub use state::CardStats;
pub use timing::{Capacity, Timing};

use crate::time::Time;
use command::{CardError, Command};
use execute::CurrentCommand;
use packet::{Packet, Process, Request, parse};
use ring::Ring;
use sodimm::SharedMemory;
use state::ProcessState;
use std::collections::{BTreeSet, VecDeque};

/// What follows from something that the card was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the card of this event at that time.
    Schedule(Time, CardEvent),
    /// The packet begins to leave the card now.
    Send(Packet),
    /// Something that this process can read has changed.
    Changed(u16, Visible),
}

/// A part of the card that a process can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// A word of its LLCM.
    Word(LlcmWord),
    /// A range of its Prefetch Window: offset and bytes.
    Window(u32, u32),
}

/// An event that the card has scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardEvent {
    /// The current command has been executed.
    Executed,
    /// A packet has been decoded.
    Received(Box<Packet>),
    /// A packet of that sender has waited for room in this process's ring, and can be tried again.
    Drain(u16, Process),
    /// A process has written a read address that is not valid.
    Refused(u16, CardError),
}

/// A word in a process's part of LLCM. Counters wrap around at 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlcmWord {
    /// Commands that stay on the card and have been executed.
    VectorsDone,
    /// Commands to the network that have left their window.
    SendsDone,
    /// RVL that have brought their bytes.
    LoadsDone,
    /// Errors so far.
    Errors,
    /// The number of the last error.
    LastError,
    /// Next Write Addr of a sender's ring.
    Nwa(u32),
}

/// A DIMMnet-2 card.
pub struct Card {
    node: u16,
    capacity: Capacity,
    timing: Timing,
    /// By the process's place on the node.
    processes: Vec<ProcessState>,
    /// Commands that have not begun, in the order in which they came.
    queue: VecDeque<(u16, Command)>,
    /// The command that is being executed.
    current: Option<CurrentCommand>,
    /// When the receiving side is idle again.
    receiver_idle_at: Time,
    stats: CardStats,
}

impl Card {
    /// A card in node `node`.
    pub fn new(node: u16, capacity: Capacity, timing: Timing) -> Card {
        Card {
            node,
            capacity,
            timing,
            processes: (0..capacity.processes)
                .map(|_| ProcessState::new(capacity))
                .collect(),
            queue: VecDeque::new(),
            current: None,
            receiver_idle_at: Time::ZERO,
            stats: CardStats::default(),
        }
    }

    /// The end of a process's SO-DIMM is memory that its program shares from now on.
    pub fn share(&mut self, port: u16, shared: SharedMemory) {
        if let Ok(process) = self.process(port) {
            process.memory.share(shared);
        }
    }

    /// What the card has done so far.
    pub fn stats(&self) -> CardStats {
        self.stats
    }

    /// What the card does until an event is due, for a timeline.
    pub fn activity(&self, event: &CardEvent) -> &'static str {
        match event {
            CardEvent::Executed => self.current.as_ref().map_or("command", |c| c.name),
            CardEvent::Received(packet) => match packet.request {
                Request::Store { .. } => "receives RVS",
                Request::Load { .. } => "receives RVL",
                Request::Append { .. } => "receives IVS",
                Request::Loaded { .. } => "receives loaded data",
                Request::Stop | Request::Go => "receives Stop or Go",
            },
            CardEvent::Drain(..) => "appends what waited",
            CardEvent::Refused(..) => "refuses",
        }
    }

    /// The processor's stores reach a process's Write Window.
    ///
    /// # Errors
    /// They lie beyond its end.
    pub fn store(&mut self, port: u16, window: u32, bytes: &[u8]) -> Result<(), CardError> {
        let process = self.process(port)?;
        let end = window as usize + bytes.len();
        let into = process.write_window.get_mut(window as usize..end);
        into.ok_or(CardError::Window)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The processor reads a process's Prefetch Window.
    ///
    /// # Errors
    /// It reads beyond its end.
    pub fn load(&self, port: u16, window: u32, into: &mut [u8]) -> Result<(), CardError> {
        let process = self.processes.get(usize::from(port));
        let process = process.ok_or(CardError::Process)?;
        let end = window as usize + into.len();
        let from = process.prefetch_window.get(window as usize..end);
        into.copy_from_slice(from.ok_or(CardError::Window)?);
        Ok(())
    }

    /// The processor reads a word of a process's LLCM. Words that do not exist read as 0.
    pub fn word(&self, port: u16, word: LlcmWord) -> u32 {
        let Some(process) = self.processes.get(usize::from(port)) else {
            return 0;
        };
        match word {
            LlcmWord::VectorsDone => process.vectors_done,
            LlcmWord::SendsDone => process.sends_done,
            LlcmWord::LoadsDone => process.loads_done,
            LlcmWord::Errors => process.errors,
            LlcmWord::LastError => process.last_error,
            LlcmWord::Nwa(sender) => process.rings.get(&sender).map_or(0, Ring::nwa),
        }
    }

    /// The processor writes Next Read Addr of a sender's ring into a process's LLCM.
    pub fn set_read_addr(&mut self, now: Time, port: u16, sender: u32, nra: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        let processes = u32::from(self.capacity.processes.max(1));
        let from = Process {
            node: (sender / processes) as u16,
            port: (sender % processes) as u16,
        };
        let Ok(own) = self.process(port) else {
            return effects;
        };
        let ring = own.rings.get_mut(&sender);
        if ring.is_some_and(|r| r.consume(nra)) {
            self.schedule_drain(now, port, from, &mut effects);
        } else {
            let refused = CardEvent::Refused(port, CardError::ReadAddress);
            let at = now + self.timing.time(self.timing.command_cycles.into());
            effects.push(Effect::Schedule(at, refused));
        }
        effects
    }

    /// The processor has written a command into a process's User Registers.
    pub fn command(&mut self, now: Time, port: u16, command: Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.process(port).is_ok() {
            self.queue.push_back((port, command));
            self.begin_next(now, &mut effects);
        }
        effects
    }

    /// A packet has arrived over the link, to its last byte.
    pub fn arrive(&mut self, now: Time, packet: Packet) -> Vec<Effect> {
        let timing = &self.timing;
        let cycles = u64::from(timing.receive_cycles)
            + match &packet.request {
                Request::Store { pattern, .. } | Request::Load { pattern, .. } => {
                    timing.vector_cycles(pattern)
                }
                Request::Append { data } => {
                    u64::from(timing.append_cycles) + timing.move_cycles(data.len() as u64)
                }
                Request::Loaded { data } => {
                    timing.move_cycles(data.as_ref().map_or(0, Vec::len) as u64)
                }
                Request::Stop | Request::Go => 0,
            };
        self.receiver_idle_at = self.receiver_idle_at.max(now) + timing.time(cycles);
        vec![Effect::Schedule(
            self.receiver_idle_at,
            CardEvent::Received(Box::new(packet)),
        )]
    }

    /// An event is due that the card has scheduled.
    pub fn event(&mut self, now: Time, event: CardEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            CardEvent::Executed => {
                self.finish_command(now, &mut effects);
                self.begin_next(now, &mut effects);
            }
            CardEvent::Received(packet) => self.on_packet(now, *packet, &mut effects),
            CardEvent::Drain(port, from) => self.drain(now, port, from, &mut effects),
            CardEvent::Refused(port, error) => self.fail(port, error, &mut effects),
        }
        effects
    }

    fn process(&mut self, port: u16) -> Result<&mut ProcessState, CardError> {
        let process = self.processes.get_mut(usize::from(port));
        process.ok_or(CardError::Process)
    }

    /// Counts an error for a process.
    fn fail(&mut self, port: u16, error: CardError, effects: &mut Vec<Effect>) {
        if let Ok(own) = self.process(port) {
            own.errors = own.errors.wrapping_add(1);
            own.last_error = error as u32;
            for word in [LlcmWord::Errors, LlcmWord::LastError] {
                effects.push(Effect::Changed(port, Visible::Word(word)));
            }
        }
    }

    /// Begins the first command that may go, if none is being executed.
    fn begin_next(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.current.is_some() {
            return;
        }
        // A process's commands to the network leave in order. One to a process that has said Stop
        // holds up those behind it.
        let mut blocked = BTreeSet::new();
        let mut next = None;
        for (at, (port, command)) in self.queue.iter().enumerate() {
            if command.is_remote() && (blocked.contains(port) || self.is_stopped(*port, command)) {
                blocked.insert(*port);
            } else {
                next = Some(at);
                break;
            }
        }
        let Some((port, command)) = next.and_then(|at| self.queue.remove(at)) else {
            return;
        };
        let execution = self.prepare(port, &command);
        let cycles = match &execution {
            Ok(execution) => execution.cycles,
            Err(_) => self.timing.command_cycles.into(),
        };
        let took = self.timing.time(cycles);
        self.stats.commands += 1;
        self.stats.vectors += u64::from(command.is_strided());
        self.stats.busy += took;
        self.current = Some(CurrentCommand {
            name: command.name(),
            port,
            remote: command.is_remote(),
            execution,
        });
        effects.push(Effect::Schedule(now + took, CardEvent::Executed));
    }

    /// Returns whether the command goes to a process that has said Stop.
    fn is_stopped(&self, port: u16, command: &Command) -> bool {
        let own = &self.processes[usize::from(port)];
        if own.stopped.is_empty() {
            return false;
        }
        let to = match command {
            Command::RemoteStore { to, .. } => Some(*to),
            Command::RemoteLoad { from, .. } => Some(*from),
            Command::BlockOnTheFly { window, bytes } => {
                let (from, end) = (*window as usize, *window as usize + *bytes as usize);
                let image = own.write_window.get(from..end);
                image.and_then(|i| parse(i).ok()).map(|(to, _)| to)
            }
            _ => None,
        };
        to.is_some_and(|to| own.stopped.contains(&to))
    }

    fn send(&mut self, packet: Packet, effects: &mut Vec<Effect>) {
        self.stats.packets += 1;
        self.stats.bytes += u64::from(packet.bytes());
        effects.push(Effect::Send(packet));
    }
}

#[cfg(test)]
mod tests;
