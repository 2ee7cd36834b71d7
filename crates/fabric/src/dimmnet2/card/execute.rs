//! Executing commands: what they read, which packets they send, and what they leave on the card.

use super::{Card, CardError, Effect, InHand, Local, Port, Prepared, Seen, Wanted, Word};
use crate::Time;
use crate::dimmnet2::command::{Command, LINE, Place};
use crate::dimmnet2::packet::{Packet, Process, Request, parse};
use crate::dimmnet2::pattern::Pattern;
use crate::dimmnet2::ring::Ring;

impl Card {
    /// What a command comes to.
    pub(super) fn prepare(&self, port: u16, command: &Command) -> Result<Prepared, CardError> {
        let done = |cycles, packets, local| {
            Ok(Prepared {
                cycles,
                packets,
                local,
            })
        };
        let own = &self.ports[usize::from(port)];
        let pace = &self.pace;
        let from = Process {
            node: self.node,
            port,
        };
        let begin = u64::from(pace.command);
        match *command {
            Command::VectorLoad {
                window,
                memory,
                what,
            }
            | Command::VectorStore {
                window,
                memory,
                what,
            } => {
                let pattern = what.resolve(&own.write_window)?;
                self.check_window(window, pattern.bytes())?;
                self.check_memory(memory, &pattern)?;
                let cycles = begin + pace.vector(&pattern);
                let local = Local::Vector {
                    loads: matches!(command, Command::VectorLoad { .. }),
                    window,
                    memory,
                    pattern,
                };
                done(cycles, Vec::new(), Some(local))
            }
            Command::RemoteStore {
                to,
                from: place,
                memory,
                what,
            } => {
                let pattern = what.resolve(&own.write_window)?;
                let data = self.local_bytes(own, place, pattern.bytes())?;
                let begin = begin
                    + match place {
                        Place::Window(_) => 0,
                        Place::Memory(_) => u64::from(pace.memory),
                    };
                let mut cycles = begin;
                let mut packets = Vec::new();
                for (offset, part) in self.parts(&pattern)? {
                    let bytes = data[offset as usize..][..part.bytes() as usize].to_vec();
                    cycles += u64::from(pace.send)
                        + pace.moving(part.bytes() + u64::from(part.list_bytes()));
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
                done(cycles, packets, None)
            }
            Command::RemoteLoad {
                from: peer,
                into,
                memory,
                what,
            } => {
                let pattern = what.resolve(&own.write_window)?;
                match into {
                    Place::Window(at) => self.check_window(at, pattern.bytes())?,
                    Place::Memory(at) => {
                        let bytes =
                            u32::try_from(pattern.bytes()).map_err(|_| CardError::Memory)?;
                        self.check_memory(at, &Pattern::Contiguous { bytes })?;
                    }
                }
                let mut cycles = begin;
                let mut packets = Vec::new();
                let mut wanted = Vec::new();
                for (offset, part) in self.parts(&pattern)? {
                    cycles += u64::from(pace.send) + pace.moving(part.list_bytes().into());
                    wanted.push(Wanted {
                        into: match into {
                            Place::Window(at) => Place::Window(at + offset),
                            Place::Memory(at) => Place::Memory(at + offset),
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
                done(cycles, packets, Some(Local::Want { from: peer, wanted }))
            }
            Command::BlockOnTheFly { window, bytes } => {
                if !window.is_multiple_of(LINE) {
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
                if data > self.shape.packet.into() {
                    return Err(CardError::Packet);
                }
                let local = match &request {
                    Request::Load {
                        pattern, window, ..
                    } => {
                        self.check_window(*window, pattern.bytes())?;
                        let wanted = Wanted {
                            into: Place::Window(*window),
                            bytes: pattern.bytes(),
                            last: true,
                        };
                        Some(Local::Want {
                            from: to,
                            wanted: vec![wanted],
                        })
                    }
                    _ => None,
                };
                let cycles = u64::from(pace.send) + pace.moving(bytes.into());
                done(cycles, vec![Packet { from, to, request }], local)
            }
            Command::Rings {
                base,
                size,
                senders,
            } => {
                let bytes = u64::from(size) * u64::from(senders);
                let fits = own.memory.holds(base.into(), bytes);
                if !fits || Ring::new(base.into(), size).is_none() {
                    return Err(CardError::Rings);
                }
                let local = Local::Rings {
                    base,
                    size,
                    senders,
                };
                done(begin, Vec::new(), Some(local))
            }
        }
    }

    fn check_window(&self, window: u32, bytes: u64) -> Result<(), CardError> {
        if !window.is_multiple_of(8) {
            return Err(CardError::Alignment);
        }
        let end = u64::from(window).checked_add(bytes);
        if end.is_none_or(|end| end > self.shape.window.into()) {
            return Err(CardError::Window);
        }
        Ok(())
    }

    fn check_memory(&self, memory: u32, pattern: &Pattern) -> Result<(), CardError> {
        let end = pattern
            .extent()
            .and_then(|e| e.checked_add(u64::from(memory)));
        if end.is_none_or(|end| end > self.shape.memory.into()) {
            return Err(CardError::Memory);
        }
        Ok(())
    }

    /// The bytes to send from a window or from memory.
    fn local_bytes(&self, own: &Port, place: Place, bytes: u64) -> Result<Vec<u8>, CardError> {
        match place {
            Place::Window(at) => {
                self.check_window(at, bytes)?;
                Ok(own.write_window[at as usize..][..bytes as usize].to_vec())
            }
            Place::Memory(at) => {
                let bytes = u32::try_from(bytes).map_err(|_| CardError::Memory)?;
                self.check_memory(at, &Pattern::Contiguous { bytes })?;
                let mut out = vec![0; bytes as usize];
                own.memory.read(at.into(), &mut out);
                Ok(out)
            }
        }
    }

    /// A pattern as packets carry it: one run is cut into as many as it takes. Each part with its
    /// offset in the bytes.
    fn parts(&self, pattern: &Pattern) -> Result<Vec<(u32, Pattern)>, CardError> {
        let most = self.shape.packet;
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

    /// The command in hand is at its end.
    pub(super) fn executed(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(InHand {
            port,
            remote,
            prepared,
            ..
        }) = self.in_hand.take()
        else {
            return;
        };
        match prepared {
            Ok(prepared) => {
                if let Some(local) = prepared.local {
                    self.act(now, port, local, effects);
                }
                for packet in prepared.packets {
                    self.send(packet, effects);
                }
            }
            Err(error) => self.fail(port, error, effects),
        }
        if let Ok(own) = self.port(port) {
            let (count, word) = if remote {
                (&mut own.sends, Word::SendsDone)
            } else {
                (&mut own.vectors, Word::VectorsDone)
            };
            *count = count.wrapping_add(1);
            effects.push(Effect::Changed(port, Seen::Word(word)));
        }
    }

    fn act(&mut self, now: Time, port: u16, local: Local, effects: &mut Vec<Effect>) {
        let Ok(own) = self.port(port) else {
            return;
        };
        match local {
            Local::Vector {
                loads,
                window,
                memory,
                pattern,
            } => {
                let mut at = window as usize;
                for (offset, bytes) in pattern.runs() {
                    let (address, place) = (u64::from(memory) + offset, at..at + bytes as usize);
                    at = place.end;
                    if loads {
                        own.memory.read(address, &mut own.prefetch_window[place]);
                    } else {
                        own.memory.write(address, &own.write_window[place]);
                    }
                }
                if loads {
                    let seen = Seen::Window(window, at as u32 - window);
                    effects.push(Effect::Changed(port, seen));
                }
            }
            Local::Want { from, wanted } => own.wanted.entry(from).or_default().extend(wanted),
            Local::Rings {
                base,
                size,
                senders,
            } => {
                own.rings = Some((base, size, senders));
                let early: Vec<Process> = own.waiting.keys().copied().collect();
                for from in early {
                    self.drain_later(now, port, from, effects);
                }
            }
        }
    }
}
