//! Packets that have arrived: what they ask for, and those that wait for room in a ring.

use super::command::{CardError, Location};
use super::packet::{Packet, Process, Request};
use super::pattern::Pattern;
use super::ring::{Ring, WORD_BYTES};
use super::state::Stalled;
use super::{Card, CardEvent, Effect, LlcmWord, Visible};
use crate::time::Time;
use std::collections::VecDeque;
use std::collections::btree_map::Entry;

impl Card {
    /// A packet has been decoded.
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet, effects: &mut Vec<Effect>) {
        let Packet { from, to, request } = packet;
        let Ok(own) = self.process(to.port) else {
            return;
        };
        match request {
            Request::Stop => {
                own.stopped.insert(from);
            }
            Request::Go => {
                own.stopped.remove(&from);
                self.begin_next(now, effects);
            }
            Request::Loaded { data } => self.on_loaded(to.port, from, data, effects),
            request => {
                if let Some(stalled) = own.stalled.get_mut(&from) {
                    // It does not overtake those that wait.
                    stalled.requests.push_back(request);
                    return;
                }
                if let Some(request) = self.serve(to, from, request, effects) {
                    if let Ok(own) = self.process(to.port) {
                        let stalled = own.stalled.entry(from).or_default();
                        stalled.requests.push_back(request);
                    }
                    self.stats.stops += 1;
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

    /// Does what a packet asks for. Returns the request if its ring has no room.
    fn serve(
        &mut self,
        to: Process,
        from: Process,
        request: Request,
        effects: &mut Vec<Effect>,
    ) -> Option<Request> {
        match request {
            Request::Store {
                memory,
                pattern,
                data,
            } => self.serve_store(to, memory, &pattern, &data, effects),
            Request::Load {
                memory, pattern, ..
            } => self.serve_load(to, from, memory, &pattern, effects),
            Request::Append { data } => {
                return self
                    .serve_append(to, from, data, effects)
                    .map(|data| Request::Append { data });
            }
            _ => {}
        }
        None
    }

    /// Writes the data of an RVS to memory.
    fn serve_store(
        &mut self,
        to: Process,
        memory: u64,
        pattern: &Pattern,
        data: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let Some(own) = self.processes.get_mut(usize::from(to.port)) else {
            return;
        };
        let extent = pattern.extent().unwrap_or(u64::MAX);
        if !own.memory.holds(memory, extent) || pattern.bytes() != data.len() as u64 {
            self.fail(to.port, CardError::Memory, effects);
            return;
        }
        let mut at = 0;
        for (offset, bytes) in pattern.runs() {
            let part = &data[at..at + bytes as usize];
            own.memory.write(memory + offset, part);
            at += bytes as usize;
        }
    }

    /// Answers an RVL with the bytes in memory.
    fn serve_load(
        &mut self,
        to: Process,
        from: Process,
        memory: u64,
        pattern: &Pattern,
        effects: &mut Vec<Effect>,
    ) {
        let Some(own) = self.processes.get_mut(usize::from(to.port)) else {
            return;
        };
        let extent = pattern.extent().unwrap_or(u64::MAX);
        let small = pattern.bytes() <= self.capacity.packet_max_bytes.into();
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

    /// Appends data to the sender's ring. Returns the data if it has no room.
    fn serve_append(
        &mut self,
        to: Process,
        from: Process,
        data: Vec<u8>,
        effects: &mut Vec<Effect>,
    ) -> Option<Vec<u8>> {
        let node = usize::from(from.node) * usize::from(self.capacity.processes);
        let sender = (node + usize::from(from.port)) as u32;
        let own = self.processes.get_mut(usize::from(to.port))?;
        // Rings that have not been set up yet count as full.
        let Some((base, size, senders)) = own.ring_area else {
            return Some(data);
        };
        let bytes = data.len() as u32;
        if sender >= senders || bytes > size - WORD_BYTES {
            self.fail(to.port, CardError::TooLong, effects);
            return None;
        }
        let first = u64::from(base) + u64::from(sender) * u64::from(size);
        let ring = match own.rings.entry(sender) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Ring::new(first, size)?),
        };
        let Some(runs) = ring.append(bytes) else {
            return Some(data);
        };
        let mut at = 0;
        for (address, bytes) in runs {
            own.memory.write(address, &data[at..at + bytes as usize]);
            at += bytes as usize;
        }
        let word = LlcmWord::Nwa(sender);
        effects.push(Effect::Changed(to.port, Visible::Word(word)));
        None
    }

    /// The bytes of an RVL have arrived.
    fn on_loaded(
        &mut self,
        port: u16,
        from: Process,
        data: Option<Vec<u8>>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(own) = self.process(port) else {
            return;
        };
        let pending = own.pending_loads.get_mut(&from);
        let Some(load) = pending.and_then(VecDeque::pop_front) else {
            return;
        };
        own.loads_done = own.loads_done.wrapping_add(u32::from(load.last));
        match data {
            Some(data) if data.len() as u64 == load.bytes => match load.into {
                Location::Window(at) => {
                    own.prefetch_window[at as usize..][..data.len()].copy_from_slice(&data);
                    let visible = Visible::Window(at, data.len() as u32);
                    effects.push(Effect::Changed(port, visible));
                }
                Location::Memory(at) => own.memory.write(at.into(), &data),
            },
            _ => self.fail(port, CardError::Memory, effects),
        }
        effects.push(Effect::Changed(port, Visible::Word(LlcmWord::LoadsDone)));
    }

    /// Schedules another try for the packets of this sender that wait for room, if there are any.
    pub(super) fn schedule_drain(
        &mut self,
        now: Time,
        port: u16,
        from: Process,
        effects: &mut Vec<Effect>,
    ) {
        let own = &mut self.processes[usize::from(port)];
        let Some(stalled) = own.stalled.get_mut(&from).filter(|w| !w.draining) else {
            return;
        };
        let cycles = match stalled.requests.front() {
            Some(Request::Append { data }) => {
                u64::from(self.timing.append_cycles) + self.timing.move_cycles(data.len() as u64)
            }
            Some(Request::Store { pattern, .. } | Request::Load { pattern, .. }) => {
                self.timing.vector_cycles(pattern)
            }
            _ => 0,
        };
        stalled.draining = true;
        self.receiver_idle_at = self.receiver_idle_at.max(now) + self.timing.time(cycles);
        effects.push(Effect::Schedule(
            self.receiver_idle_at,
            CardEvent::Drain(port, from),
        ));
    }

    /// Tries the first packet again that waits for room.
    pub(super) fn drain(&mut self, now: Time, port: u16, from: Process, effects: &mut Vec<Effect>) {
        let Some(stalled) = self.stalled(port, from) else {
            return;
        };
        stalled.draining = false;
        let Some(first) = stalled.requests.pop_front() else {
            return;
        };
        let to = Process {
            node: self.node,
            port,
        };
        let refused = self.serve(to, from, first, effects);
        let Some(stalled) = self.stalled(port, from) else {
            return;
        };
        match refused {
            // Still no room. The next read address, or the setup of the rings, schedules another
            // try.
            Some(request) => stalled.requests.push_front(request),
            None if stalled.requests.is_empty() => {
                self.processes[usize::from(port)].stalled.remove(&from);
                let go = Packet {
                    from: to,
                    to: from,
                    request: Request::Go,
                };
                self.send(go, effects);
            }
            None => self.schedule_drain(now, port, from, effects),
        }
    }

    fn stalled(&mut self, port: u16, from: Process) -> Option<&mut Stalled> {
        self.process(port).ok()?.stalled.get_mut(&from)
    }
}
