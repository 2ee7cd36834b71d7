//! The card: a state machine without a clock of its own. It is told what comes and when, and
//! answers what follows from that.

use super::command::{CardError, Command, Place};
use super::memory::{Shared, SoDimm};
use super::packet::{Packet, Process, Request, parse};
use super::pattern::Pattern;
use super::ring::Ring;
use crate::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How much of everything there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Processes that a card serves.
    pub processes: u16,
    /// Bytes of a process's Write Window, and of its Prefetch Window.
    pub window: u32,
    /// Bytes of a process's part of the SO-DIMM.
    pub memory: u32,
    /// Most bytes of data in a packet.
    pub packet: u32,
}

/// How long the card's parts take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A cycle of the FPGA.
    pub cycle: Time,
    /// Bytes that its data paths move in a cycle.
    pub bytes: u32,
    /// Cycles to fetch and decode a command of several words and to report its end in LLCM.
    pub command: u32,
    /// Cycles from a packet image to the link.
    pub send: u32,
    /// Cycles from the link to a packet that has been understood.
    pub receive: u32,
    /// Cycles until the SO-DIMM gives or takes the first bytes.
    pub memory: u32,
    /// Cycles for each further block of a vector.
    pub block: u32,
    /// Cycles to find a sender's ring, look whether there is room, and announce the new NWA.
    pub append: u32,
}

impl Pace {
    fn moving(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.bytes.max(1)))
    }

    fn time(&self, cycles: u64) -> Time {
        self.cycle * cycles
    }

    /// The least time that a packet takes once it is here.
    pub fn received(&self) -> Time {
        self.time(self.receive.into())
    }

    /// The least time that a command takes.
    pub fn executed(&self) -> Time {
        self.time(self.send.min(self.command).into())
    }

    /// The least time from a new Next Read Addr to anything that comes of it.
    pub fn consumed(&self) -> Time {
        self.time(self.append.min(self.memory).min(self.command).into())
    }

    fn vector(&self, pattern: &Pattern) -> u64 {
        let further = pattern.blocks().saturating_sub(1);
        u64::from(self.memory)
            + further * u64::from(self.block)
            + self.moving(pattern.bytes() + u64::from(pattern.list_bytes()))
    }
}

/// What follows from something that the card was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the card of this event at that time.
    Later(Time, Event),
    /// The packet begins to leave the card now.
    Send(Packet),
    /// Something that this process can read has changed.
    Changed(u16, Seen),
}

/// What of the card a process can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A word of its LLCM.
    Word(Word),
    /// So many bytes from there on of its Prefetch Window.
    Window(u32, u32),
}

/// Something that the card wanted to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command in hand has been executed.
    Executed,
    /// A packet has been understood.
    Received(Box<Packet>),
    /// A packet that waited for room in this process's ring of that sender may be appended.
    Drain(u16, Process),
    /// A process has written what cannot be.
    Refused(u16, CardError),
}

/// A word in a process's part of LLCM. Counters run over at 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// How many commands that stay on the card have been executed.
    VectorsDone,
    /// How many commands to the network have left their window.
    SendsDone,
    /// How many RVL have brought their bytes.
    LoadsDone,
    /// How many errors there were.
    Errors,
    /// The number of the last one.
    LastError,
    /// Next Write Addr of a sender's ring.
    Nwa(u32),
}

/// Where the bytes of an RVL go.
#[derive(Clone, Debug)]
struct Wanted {
    into: Place,
    bytes: u64,
    /// The last part of its command.
    last: bool,
}

/// Packets of one sender that came when its ring was full.
#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Request>,
    /// The first one is being looked at again.
    draining: bool,
}

struct Port {
    write_window: Vec<u8>,
    prefetch_window: Vec<u8>,
    memory: SoDimm,
    rings: Option<(u32, u32, u32)>,
    ring: BTreeMap<u32, Ring>,
    vectors: u32,
    sends: u32,
    loads: u32,
    errors: u32,
    last_error: u32,
    /// By who is asked: RVL under way, oldest first.
    wanted: BTreeMap<Process, VecDeque<Wanted>>,
    /// Processes that have said Stop.
    stopped: BTreeSet<Process>,
    /// By sender: packets that came when its ring was full.
    waiting: BTreeMap<Process, Waiting>,
}

/// What a card has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Commands executed.
    pub commands: u64,
    /// VL, VS, RVL and RVS with a stride or a list among them.
    pub vectors: u64,
    /// Packets sent, Stop and Go among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often a full ring stopped a sender.
    pub stops: u64,
    /// Time in which commands were executed.
    pub busy: Time,
}

/// A command that is being executed.
struct InHand {
    name: &'static str,
    port: u16,
    /// It goes to the network.
    remote: bool,
    prepared: Result<Prepared, CardError>,
}

/// How many cycles a command takes, which packets it sends at its end, and what it does here.
struct Prepared {
    cycles: u64,
    packets: Vec<Packet>,
    local: Option<Local>,
}

/// A DIMMnet-2 card.
pub struct Card {
    node: u16,
    shape: Shape,
    pace: Pace,
    ports: Vec<Port>,
    /// Commands not yet begun, in the order in which they came.
    queue: VecDeque<(u16, Command)>,
    /// The one being executed, and what it sends.
    in_hand: Option<InHand>,
    /// When the receiving side has nothing to do any more.
    receiving: Time,
    tally: Tally,
}

/// What a command does on the card itself, at its end.
#[derive(Debug)]
enum Local {
    /// Between a window and the SO-DIMM.
    Vector {
        loads: bool,
        window: u32,
        memory: u32,
        pattern: Pattern,
    },
    Want {
        from: Process,
        wanted: Vec<Wanted>,
    },
    Rings {
        base: u32,
        size: u32,
        senders: u32,
    },
}

impl Card {
    /// A card in node `node`.
    pub fn new(node: u16, shape: Shape, pace: Pace) -> Card {
        let port = || Port {
            write_window: vec![0; shape.window as usize],
            prefetch_window: vec![0; shape.window as usize],
            memory: SoDimm::new(shape.memory.into()),
            rings: None,
            ring: BTreeMap::new(),
            vectors: 0,
            sends: 0,
            loads: 0,
            errors: 0,
            last_error: 0,
            wanted: BTreeMap::new(),
            stopped: BTreeSet::new(),
            waiting: BTreeMap::new(),
        };
        Card {
            node,
            shape,
            pace,
            ports: (0..shape.processes).map(|_| port()).collect(),
            queue: VecDeque::new(),
            in_hand: None,
            receiving: Time::ZERO,
            tally: Tally::default(),
        }
    }

    /// The end of a process's SO-DIMM is its program's, too, from now on.
    pub fn share(&mut self, port: u16, shared: Shared) {
        if let Ok(port) = self.port(port) {
            port.memory.share(shared);
        }
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What it does until an event is due, for a timeline.
    pub fn names(&self, event: &Event) -> &'static str {
        match event {
            Event::Executed => self.in_hand.as_ref().map_or("command", |c| c.name),
            Event::Received(packet) => match packet.request {
                Request::Store { .. } => "receives RVS",
                Request::Load { .. } => "receives RVL",
                Request::Append { .. } => "receives IVS",
                Request::Loaded { .. } => "receives loaded data",
                Request::Stop | Request::Go => "receives Stop or Go",
            },
            Event::Drain(..) => "appends what waited",
            Event::Refused(..) => "refuses",
        }
    }

    /// The processor's stores have come to a process's Write Window.
    ///
    /// Errors: beyond its end.
    pub fn store(&mut self, port: u16, window: u32, bytes: &[u8]) -> Result<(), CardError> {
        let port = self.port(port)?;
        let end = window as usize + bytes.len();
        let into = port.write_window.get_mut(window as usize..end);
        into.ok_or(CardError::Window)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The processor reads a process's Prefetch Window.
    ///
    /// Errors: beyond its end.
    pub fn load(&self, port: u16, window: u32, into: &mut [u8]) -> Result<(), CardError> {
        let port = self.ports.get(usize::from(port));
        let port = port.ok_or(CardError::Process)?;
        let end = window as usize + into.len();
        let from = port.prefetch_window.get(window as usize..end);
        into.copy_from_slice(from.ok_or(CardError::Window)?);
        Ok(())
    }

    /// The processor reads a word of a process's LLCM; what is not there reads as 0.
    pub fn word(&self, port: u16, word: Word) -> u32 {
        let Some(port) = self.ports.get(usize::from(port)) else {
            return 0;
        };
        match word {
            Word::VectorsDone => port.vectors,
            Word::SendsDone => port.sends,
            Word::LoadsDone => port.loads,
            Word::Errors => port.errors,
            Word::LastError => port.last_error,
            Word::Nwa(sender) => port.ring.get(&sender).map_or(0, Ring::nwa),
        }
    }

    /// The processor writes Next Read Addr of a sender's ring into a process's LLCM.
    pub fn consume(&mut self, now: Time, port: u16, sender: u32, nra: u32) -> Vec<Effect> {
        let mut effects = Vec::new();
        let processes = u32::from(self.shape.processes.max(1));
        let from = Process {
            node: (sender / processes) as u16,
            port: (sender % processes) as u16,
        };
        let Ok(own) = self.port(port) else {
            return effects;
        };
        let ring = own.ring.get_mut(&sender);
        if ring.is_some_and(|r| r.consume(nra)) {
            self.drain_later(now, port, from, &mut effects);
        } else {
            let refused = Event::Refused(port, CardError::ReadAddress);
            let at = now + self.pace.time(self.pace.command.into());
            effects.push(Effect::Later(at, refused));
        }
        effects
    }

    /// The processor has written a command into a process's User Registers.
    pub fn command(&mut self, now: Time, port: u16, command: Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.port(port).is_ok() {
            self.queue.push_back((port, command));
            self.begin(now, &mut effects);
        }
        effects
    }

    /// A packet has come over the link, whole.
    pub fn arrive(&mut self, now: Time, packet: Packet) -> Vec<Effect> {
        let pace = &self.pace;
        let cycles = u64::from(pace.receive)
            + match &packet.request {
                Request::Store { pattern, .. } | Request::Load { pattern, .. } => {
                    pace.vector(pattern)
                }
                Request::Append { data } => u64::from(pace.append) + pace.moving(data.len() as u64),
                Request::Loaded { data } => pace.moving(data.as_ref().map_or(0, Vec::len) as u64),
                Request::Stop | Request::Go => 0,
            };
        self.receiving = self.receiving.max(now) + pace.time(cycles);
        vec![Effect::Later(
            self.receiving,
            Event::Received(Box::new(packet)),
        )]
    }

    /// What the card wanted to be told of has come.
    pub fn event(&mut self, now: Time, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Executed => {
                self.executed(now, &mut effects);
                self.begin(now, &mut effects);
            }
            Event::Received(packet) => self.received(now, *packet, &mut effects),
            Event::Drain(port, from) => self.drain(now, port, from, &mut effects),
            Event::Refused(port, error) => self.fail(port, error, &mut effects),
        }
        effects
    }

    fn port(&mut self, port: u16) -> Result<&mut Port, CardError> {
        let port = self.ports.get_mut(usize::from(port));
        port.ok_or(CardError::Process)
    }

    fn fail(&mut self, port: u16, error: CardError, effects: &mut Vec<Effect>) {
        if let Ok(own) = self.port(port) {
            own.errors = own.errors.wrapping_add(1);
            own.last_error = error as u32;
            for word in [Word::Errors, Word::LastError] {
                effects.push(Effect::Changed(port, Seen::Word(word)));
            }
        }
    }

    /// Takes the first command in hand that may go, if none is.
    fn begin(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.in_hand.is_some() {
            return;
        }
        // A process's commands to the network leave in order: one to a process that has said Stop
        // holds those behind it up.
        let mut held = BTreeSet::new();
        let mut next = None;
        for (at, (port, command)) in self.queue.iter().enumerate() {
            if command.is_remote() && (held.contains(port) || self.is_held(*port, command)) {
                held.insert(*port);
            } else {
                next = Some(at);
                break;
            }
        }
        let Some((port, command)) = next.and_then(|at| self.queue.remove(at)) else {
            return;
        };
        let prepared = self.prepare(port, &command);
        let cycles = match &prepared {
            Ok(prepared) => prepared.cycles,
            Err(_) => self.pace.command.into(),
        };
        let took = self.pace.time(cycles);
        self.tally.commands += 1;
        self.tally.vectors += u64::from(command.is_strided());
        self.tally.busy += took;
        self.in_hand = Some(InHand {
            name: command.name(),
            port,
            remote: command.is_remote(),
            prepared,
        });
        effects.push(Effect::Later(now + took, Event::Executed));
    }

    fn is_held(&self, port: u16, command: &Command) -> bool {
        let own = &self.ports[usize::from(port)];
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
        self.tally.packets += 1;
        self.tally.bytes += u64::from(packet.bytes());
        effects.push(Effect::Send(packet));
    }

    /// A packet has been understood.
    fn received(&mut self, now: Time, packet: Packet, effects: &mut Vec<Effect>) {
        let Packet { from, to, request } = packet;
        let Ok(own) = self.port(to.port) else {
            return;
        };
        match request {
            Request::Stop => {
                own.stopped.insert(from);
            }
            Request::Go => {
                own.stopped.remove(&from);
                self.begin(now, effects);
            }
            Request::Loaded { data } => self.loaded(to.port, from, data, effects),
            request => {
                if let Some(waiting) = own.waiting.get_mut(&from) {
                    waiting.requests.push_back(request); // order is kept
                    return;
                }
                if let Some(request) = self.take(to, from, request, effects) {
                    if let Ok(own) = self.port(to.port) {
                        let waiting = own.waiting.entry(from).or_default();
                        waiting.requests.push_back(request);
                    }
                    self.tally.stops += 1;
                    let stop = Packet {
                        from: to,
                        to: from,
                        request: Request::Stop,
                    };
                    self.send(stop, effects);
                }
            }
        }
    }

    /// Does what a packet asks; gives it back if its ring has no room.
    fn take(
        &mut self,
        to: Process,
        from: Process,
        request: Request,
        effects: &mut Vec<Effect>,
    ) -> Option<Request> {
        let node = usize::from(from.node) * usize::from(self.shape.processes);
        let sender = (node + usize::from(from.port)) as u32;
        let own = self.ports.get_mut(usize::from(to.port))?;
        match request {
            Request::Store {
                memory,
                pattern,
                data,
            } => {
                let extent = pattern.extent().unwrap_or(u64::MAX);
                if !own.memory.holds(memory, extent) || pattern.bytes() != data.len() as u64 {
                    self.fail(to.port, CardError::Memory, effects);
                    return None;
                }
                let mut at = 0;
                for (offset, bytes) in pattern.runs() {
                    let part = &data[at..at + bytes as usize];
                    own.memory.write(memory + offset, part);
                    at += bytes as usize;
                }
            }
            Request::Load {
                memory, pattern, ..
            } => {
                let extent = pattern.extent().unwrap_or(u64::MAX);
                let small = pattern.bytes() <= self.shape.packet.into();
                let data = (small && own.memory.holds(memory, extent)).then(|| {
                    let mut data = vec![0; pattern.bytes() as usize];
                    let mut at = 0;
                    for (offset, bytes) in pattern.runs() {
                        let into = &mut data[at..at + bytes as usize];
                        own.memory.read(memory + offset, into);
                        at += bytes as usize;
                    }
                    data
                });
                let answer = Packet {
                    from: to,
                    to: from,
                    request: Request::Loaded { data },
                };
                self.send(answer, effects);
            }
            Request::Append { data } => {
                // A process that has not set up its rings yet: as if they were full.
                let Some((base, size, senders)) = own.rings else {
                    return Some(Request::Append { data });
                };
                let bytes = data.len() as u32;
                if sender >= senders || bytes > size - super::ring::WORD {
                    self.fail(to.port, CardError::TooLong, effects);
                    return None;
                }
                let first = u64::from(base) + u64::from(sender) * u64::from(size);
                let ring = match own.ring.entry(sender) {
                    std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::btree_map::Entry::Vacant(new) => {
                        new.insert(Ring::new(first, size)?)
                    }
                };
                let Some(runs) = ring.append(bytes) else {
                    return Some(Request::Append { data });
                };
                let mut at = 0;
                for (address, bytes) in runs {
                    own.memory.write(address, &data[at..at + bytes as usize]);
                    at += bytes as usize;
                }
                let word = Word::Nwa(sender);
                effects.push(Effect::Changed(to.port, Seen::Word(word)));
            }
            _ => {}
        }
        None
    }

    /// The bytes of an RVL have come.
    fn loaded(
        &mut self,
        port: u16,
        from: Process,
        data: Option<Vec<u8>>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(own) = self.port(port) else {
            return;
        };
        let Some(wanted) = own.wanted.get_mut(&from).and_then(VecDeque::pop_front) else {
            return;
        };
        own.loads = own.loads.wrapping_add(u32::from(wanted.last));
        match data {
            Some(data) if data.len() as u64 == wanted.bytes => match wanted.into {
                Place::Window(at) => {
                    own.prefetch_window[at as usize..][..data.len()].copy_from_slice(&data);
                    let seen = Seen::Window(at, data.len() as u32);
                    effects.push(Effect::Changed(port, seen));
                }
                Place::Memory(at) => own.memory.write(at.into(), &data),
            },
            _ => self.fail(port, CardError::Memory, effects),
        }
        effects.push(Effect::Changed(port, Seen::Word(Word::LoadsDone)));
    }

    /// What waits for room in a ring, if anything does, is looked at again.
    fn drain_later(&mut self, now: Time, port: u16, from: Process, effects: &mut Vec<Effect>) {
        let own = &mut self.ports[usize::from(port)];
        let Some(waiting) = own.waiting.get_mut(&from).filter(|w| !w.draining) else {
            return;
        };
        let cycles = match waiting.requests.front() {
            Some(Request::Append { data }) => {
                u64::from(self.pace.append) + self.pace.moving(data.len() as u64)
            }
            Some(Request::Store { pattern, .. } | Request::Load { pattern, .. }) => {
                self.pace.vector(pattern)
            }
            _ => 0,
        };
        waiting.draining = true;
        self.receiving = self.receiving.max(now) + self.pace.time(cycles);
        effects.push(Effect::Later(self.receiving, Event::Drain(port, from)));
    }

    fn drain(&mut self, now: Time, port: u16, from: Process, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.waiting(port, from) else {
            return;
        };
        waiting.draining = false;
        let Some(first) = waiting.requests.pop_front() else {
            return;
        };
        let to = Process {
            node: self.node,
            port,
        };
        let refused = self.take(to, from, first, effects);
        let Some(waiting) = self.waiting(port, from) else {
            return;
        };
        match refused {
            // No room still: the next read address, or the rings, will bring it here again.
            Some(request) => waiting.requests.push_front(request),
            None if waiting.requests.is_empty() => {
                self.ports[usize::from(port)].waiting.remove(&from);
                let go = Packet {
                    from: to,
                    to: from,
                    request: Request::Go,
                };
                self.send(go, effects);
            }
            None => self.drain_later(now, port, from, effects),
        }
    }

    fn waiting(&mut self, port: u16, from: Process) -> Option<&mut Waiting> {
        self.port(port).ok()?.waiting.get_mut(&from)
    }
}

mod execute;

#[cfg(test)]
mod tests;
