//! Executing commands: what they read, which packets they send, and what they leave on the card.

use super::command::{Addressing, CardError, Command, LINE_BYTES, Location};
use super::packet::{Packet, Process, Request, parse};
use super::pattern::Pattern;
use super::ring::Ring;
use super::state::{PendingLoad, ProcessState};
use super::{Card, Effect, LlcmWord, Visible};
use crate::time::Time;

/// A command that is being executed.
pub(super) struct CurrentCommand {
    pub name: &'static str,
    pub port: u16,
    /// It goes to the network.
    pub remote: bool,
    pub execution: Result<Execution, CardError>,
}

/// What executing a command does.
pub(super) struct Execution {
    pub cycles: u64,
    /// Sent at its end.
    packets: Vec<Packet>,
    /// Done at its end.
    local: Option<LocalAction>,
}

/// What a command does on its own card.
#[derive(Debug)]
enum LocalAction {
    /// Moves bytes between a window and the SO-DIMM. `is_load`: to the window.
    Vector {
        is_load: bool,
        window: u32,
        memory: u32,
        pattern: Pattern,
    },
    /// Expects the packets of an RVL.
    ExpectLoads {
        from: Process,
        loads: Vec<PendingLoad>,
    },
    /// Sets up the rings.
    Rings { base: u32, size: u32, senders: u32 },
}

impl Card {
    /// Finds what executing a command does.
    pub(super) fn prepare(&self, port: u16, command: &Command) -> Result<Execution, CardError> {
        let own = &self.processes[usize::from(port)];
        let from = Process {
            node: self.node,
            port,
        };
        match *command {
            Command::VectorLoad {
                window,
                memory,
                what,
            } => self.prepare_vector(own, true, window, memory, what),
            Command::VectorStore {
                window,
                memory,
                what,
            } => self.prepare_vector(own, false, window, memory, what),
            Command::RemoteStore {
                to,
                from: place,
                memory,
                what,
            } => self.prepare_remote_store(own, (from, to), place, memory, what),
            Command::RemoteLoad {
                from: peer,
                into,
                memory,
                what,
            } => self.prepare_remote_load(own, (from, peer), into, memory, what),
            Command::BlockOnTheFly { window, bytes } => {
                self.prepare_block_on_the_fly(own, from, window, bytes)
            }
            Command::Rings {
                base,
                size,
                senders,
            } => self.prepare_rings(own, base, size, senders),
        }
    }

    /// VL and VS: moves bytes between a window and the SO-DIMM.
    fn prepare_vector(
        &self,
        own: &ProcessState,
        is_load: bool,
        window: u32,
        memory: u32,
        what: Addressing,
    ) -> Result<Execution, CardError> {
        let pattern = what.resolve(&own.write_window)?;
        self.check_window(window, pattern.bytes())?;
        self.check_memory(memory, &pattern)?;
        Ok(Execution {
            cycles: u64::from(self.timing.command_cycles) + self.timing.vector_cycles(&pattern),
            packets: Vec::new(),
            local: Some(LocalAction::Vector {
                is_load,
                window,
                memory,
                pattern,
            }),
        })
    }

    /// RVS: sends bytes of a window or of the SO-DIMM to another process's SO-DIMM.
    fn prepare_remote_store(
        &self,
        own: &ProcessState,
        (from, to): (Process, Process),
        place: Location,
        memory: u32,
        what: Addressing,
    ) -> Result<Execution, CardError> {
        let timing = &self.timing;
        let pattern = what.resolve(&own.write_window)?;
        let data = self.local_bytes(own, place, pattern.bytes())?;
        let mut cycles = u64::from(timing.command_cycles)
            + match place {
                Location::Window(_) => 0,
                Location::Memory(_) => u64::from(timing.memory_cycles),
            };
        let mut packets = Vec::new();
        for (offset, part) in self.parts(&pattern)? {
            let bytes = data[offset as usize..][..part.bytes() as usize].to_vec();
            cycles += u64::from(timing.send_cycles)
                + timing.move_cycles(part.bytes() + u64::from(part.list_bytes()));
            packets.push(Packet {
                from,
                to,
                request: Request::Store {
                    memory: u64::from(memory) + u64::from(offset),
                    pattern: part,
                    data: bytes,
                },
            });
        }
        Ok(Execution {
            cycles,
            packets,
            local: None,
        })
    }

    /// RVL: asks for bytes of another process's SO-DIMM.
    fn prepare_remote_load(
        &self,
        own: &ProcessState,
        (from, peer): (Process, Process),
        into: Location,
        memory: u32,
        what: Addressing,
    ) -> Result<Execution, CardError> {
        let timing = &self.timing;
        let pattern = what.resolve(&own.write_window)?;
        match into {
            Location::Window(at) => self.check_window(at, pattern.bytes())?,
            Location::Memory(at) => {
                let bytes = u32::try_from(pattern.bytes()).map_err(|_| CardError::Memory)?;
                self.check_memory(at, &Pattern::Contiguous { bytes })?;
            }
        }
        let mut cycles = u64::from(timing.command_cycles);
        let mut packets = Vec::new();
        let mut loads = Vec::new();
        for (offset, part) in self.parts(&pattern)? {
            cycles += u64::from(timing.send_cycles) + timing.move_cycles(part.list_bytes().into());
            loads.push(PendingLoad {
                into: match into {
                    Location::Window(at) => Location::Window(at + offset),
                    Location::Memory(at) => Location::Memory(at + offset),
                },
                bytes: part.bytes(),
                last: u64::from(offset) + part.bytes() == pattern.bytes(),
            });
            packets.push(Packet {
                from,
                to: peer,
                request: Request::Load {
                    memory: u64::from(memory) + u64::from(offset),
                    pattern: part,
                    window: 0,
                },
            });
        }
        Ok(Execution {
            cycles,
            packets,
            local: Some(LocalAction::ExpectLoads { from: peer, loads }),
        })
    }

    /// BOTF: sends the packet image in the Write Window as it is.
    fn prepare_block_on_the_fly(
        &self,
        own: &ProcessState,
        from: Process,
        window: u32,
        bytes: u32,
    ) -> Result<Execution, CardError> {
        if !window.is_multiple_of(LINE_BYTES) {
            return Err(CardError::Alignment);
        }
        let end = window as usize + bytes as usize;
        let image = own.write_window.get(window as usize..end);
        let image = image.ok_or(CardError::Window)?;
        let (to, request) = parse(image).map_err(|_| CardError::Image)?;
        let data = match &request {
            Request::Store { data, .. } | Request::Append { data } => data.len() as u64,
            Request::Load { pattern, .. } => pattern.bytes(),
            _ => 0,
        };
        if data > self.capacity.packet_max_bytes.into() {
            return Err(CardError::Packet);
        }
        let local = match &request {
            Request::Load {
                pattern, window, ..
            } => {
                self.check_window(*window, pattern.bytes())?;
                let loads = PendingLoad {
                    into: Location::Window(*window),
                    bytes: pattern.bytes(),
                    last: true,
                };
                Some(LocalAction::ExpectLoads {
                    from: to,
                    loads: vec![loads],
                })
            }
            _ => None,
        };
        Ok(Execution {
            cycles: u64::from(self.timing.send_cycles) + self.timing.move_cycles(bytes.into()),
            packets: vec![Packet { from, to, request }],
            local,
        })
    }

    /// Sets up the rings.
    fn prepare_rings(
        &self,
        own: &ProcessState,
        base: u32,
        size: u32,
        senders: u32,
    ) -> Result<Execution, CardError> {
        let bytes = u64::from(size) * u64::from(senders);
        let fits = own.memory.holds(base.into(), bytes);
        if !fits || Ring::new(base.into(), size).is_none() {
            return Err(CardError::Rings);
        }
        Ok(Execution {
            cycles: self.timing.command_cycles.into(),
            packets: Vec::new(),
            local: Some(LocalAction::Rings {
                base,
                size,
                senders,
            }),
        })
    }

    fn check_window(&self, window: u32, bytes: u64) -> Result<(), CardError> {
        if !window.is_multiple_of(8) {
            return Err(CardError::Alignment);
        }
        let end = u64::from(window).checked_add(bytes);
        if end.is_none_or(|end| end > self.capacity.window_bytes.into()) {
            return Err(CardError::Window);
        }
        Ok(())
    }

    fn check_memory(&self, memory: u32, pattern: &Pattern) -> Result<(), CardError> {
        let end = pattern
            .extent()
            .and_then(|e| e.checked_add(u64::from(memory)));
        if end.is_none_or(|end| end > self.capacity.memory_bytes.into()) {
            return Err(CardError::Memory);
        }
        Ok(())
    }

    /// Reads the bytes to send from a window or from the SO-DIMM.
    fn local_bytes(
        &self,
        own: &ProcessState,
        location: Location,
        bytes: u64,
    ) -> Result<Vec<u8>, CardError> {
        match location {
            Location::Window(at) => {
                self.check_window(at, bytes)?;
                Ok(own.write_window[at as usize..][..bytes as usize].to_vec())
            }
            Location::Memory(at) => {
                let bytes = u32::try_from(bytes).map_err(|_| CardError::Memory)?;
                self.check_memory(at, &Pattern::Contiguous { bytes })?;
                let mut out = vec![0; bytes as usize];
                own.memory.read(at.into(), &mut out);
                Ok(out)
            }
        }
    }

    /// Cuts a pattern into the parts that packets carry, each with its offset in the bytes. Only a
    /// contiguous pattern can be cut.
    fn parts(&self, pattern: &Pattern) -> Result<Vec<(u32, Pattern)>, CardError> {
        let most = self.capacity.packet_max_bytes;
        match pattern {
            Pattern::Contiguous { bytes } if *bytes > most => Ok((0..*bytes)
                .step_by(most as usize)
                .map(|at| {
                    let bytes = most.min(bytes - at);
                    (at, Pattern::Contiguous { bytes })
                })
                .collect()),
            _ if pattern.bytes() > most.into() => Err(CardError::Packet),
            _ => Ok(vec![(0, pattern.clone())]),
        }
    }

    /// The current command is at its end.
    pub(super) fn finish_command(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(CurrentCommand {
            port,
            remote,
            execution,
            ..
        }) = self.current.take()
        else {
            return;
        };
        match execution {
            Ok(execution) => {
                if let Some(local) = execution.local {
                    self.apply(now, port, local, effects);
                }
                for packet in execution.packets {
                    self.send(packet, effects);
                }
            }
            Err(error) => self.fail(port, error, effects),
        }
        if let Ok(own) = self.process(port) {
            let (count, word) = if remote {
                (&mut own.sends_done, LlcmWord::SendsDone)
            } else {
                (&mut own.vectors_done, LlcmWord::VectorsDone)
            };
            *count = count.wrapping_add(1);
            effects.push(Effect::Changed(port, Visible::Word(word)));
        }
    }

    /// Does what a command does on its own card.
    fn apply(&mut self, now: Time, port: u16, local: LocalAction, effects: &mut Vec<Effect>) {
        let Ok(own) = self.process(port) else {
            return;
        };
        match local {
            LocalAction::Vector {
                is_load,
                window,
                memory,
                pattern,
            } => {
                let mut at = window as usize;
                for (offset, bytes) in pattern.runs() {
                    let (address, place) = (u64::from(memory) + offset, at..at + bytes as usize);
                    at = place.end;
                    if is_load {
                        own.memory.read(address, &mut own.prefetch_window[place]);
                    } else {
                        own.memory.write(address, &own.write_window[place]);
                    }
                }
                if is_load {
                    let visible = Visible::Window(window, at as u32 - window);
                    effects.push(Effect::Changed(port, visible));
                }
            }
            LocalAction::ExpectLoads { from, loads } => {
                own.pending_loads.entry(from).or_default().extend(loads)
            }
            LocalAction::Rings {
                base,
                size,
                senders,
            } => {
                own.ring_area = Some((base, size, senders));
                let stalled: Vec<Process> = own.stalled.keys().copied().collect();
                for from in stalled {
                    self.schedule_drain(now, port, from, effects);
                }
            }
        }
    }
}
