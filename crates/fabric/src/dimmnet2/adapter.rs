//! The driver as the transport `model` wants it: lent the rank's seat for each call.

use super::driver::{self, Driver, Into, Plan, Port, Sent};
use super::figures;
use super::heap::Heap;
use super::machine::{Mapped, Room, process_of, room};
use super::packet::Process;
use super::pattern::Pattern;
use super::places::{self, Place};
use crate::driver::{Body, CardMemory, Driver as Drives, Expected, Garbled, Limits, Run, Upcall};
use crate::machine::Machine;
use crate::{Client, Rank, Time};

/// The DIMMnet-2 driver of a rank.
pub struct DimmnetDriver {
    machine: Machine,
    /// None before the first call, and during one.
    state: Option<Driver<Absent>>,
    plan: Plan,
    limits: Limits,
    /// The next message answers an announced one: it is a CTS.
    answers: bool,
    /// It announces a message that lies in the SO-DIMM: where.
    lies: Option<Vec<u8>>,
    /// The program's part of the SO-DIMM.
    room: Option<(Room, Heap)>,
    buffer: Vec<u8>,
}

/// No port: nobody has lent the rank's seat.
pub struct Absent;

impl DimmnetDriver {
    /// For a rank of `machine`; `None` if its card is another.
    pub fn new(machine: &Machine) -> Option<DimmnetDriver> {
        let f = figures::of(machine)?;
        Some(DimmnetDriver {
            state: None,
            plan: f.plan(machine.processes() as u16),
            limits: Limits {
                // A body is kept whole until the last byte has come: as long as the longest that is
                // sent piece by piece.
                message_max: 64 * 1024,
                eager_max: f.eager.value.0 as usize,
            },
            machine: machine.clone(),
            answers: false,
            lies: None,
            room: room(machine).map(|r| (r, Heap::new(r.from, r.bytes))),
            buffer: Vec::new(),
        })
    }

    /// The driver's state, made when the rank first uses its card.
    fn state(&mut self, client: &Client) -> Option<Driver<Absent>> {
        if let Some(state) = self.state.take() {
            return Some(state);
        }
        let (machine, me) = (&self.machine, client.me());
        let host = figures::of(machine)?.host(&machine.cpu);
        let places: Vec<Process> = (0..client.ranks())
            .map(|r| process_of(machine, r))
            .collect();
        Some(Driver::unstarted(Absent, host, self.plan, me, &places))
    }

    /// Does something with the card.
    fn with<R>(
        &mut self,
        client: &mut Client,
        then: impl FnOnce(&mut Driver<Mapped<&mut Client>>) -> R,
    ) -> Option<R> {
        let state = self.state(client)?;
        let port = Mapped::new(client, self.plan.window());
        let (mut driver, Absent) = state.exchange(port);
        driver.start();
        let result = then(&mut driver);
        self.state = Some(driver.exchange(Absent).0);
        Some(result)
    }
}

impl Drives for DimmnetDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        self.limits
    }

    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let (answers, lies) = (self.answers, self.lies.take());
        let sent = self.with(c, |driver| {
            if !driver.has_room(to) {
                return Sent::Full;
            }
            if let Some(places) = &lies {
                return driver.announce(to, message, head, places);
            }
            let body = match body {
                Body::Bytes(bytes) => bytes,
                fill => {
                    fill.append_to(&mut buffer);
                    &buffer[..]
                }
            };
            driver.send(to, message, answers, head, body)
        });
        self.buffer = buffer;
        let taken = sent == Some(Sent::Taken);
        self.answers &= !taken;
        taken
    }

    fn expects(&mut self, _c: &mut Client, _from: Rank, _what: &Expected<'_>) {
        self.answers = true;
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        let taken = self.with(c, |driver| driver.stream(to, message, head, body));
        taken.flatten().unwrap_or(0)
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Garbled> {
        // Events that nobody has taken: the rank has waited, and this is the look that has seen
        // them.
        let looked = !c.begins_look() || c.has_events();
        self.with(c, |driver| {
            if looked {
                driver.has_looked();
            }
            driver.poll(up)
        })
        .unwrap_or(Ok(0))
    }

    fn settled(&mut self, c: &mut Client) -> bool {
        self.with(c, |driver| {
            driver.port_mut().look();
            driver.is_settled()
        })
        .unwrap_or(true)
    }

    fn memory(&self) -> Option<&dyn CardMemory> {
        self.room.as_ref()?;
        Some(self)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn CardMemory> {
        self.room.as_ref()?;
        Some(self)
    }

    fn period(&self) -> Time {
        let period = self.state.as_ref().map(driver::Driver::period);
        period.unwrap_or(Time::ns(100))
    }
}

impl DimmnetDriver {
    /// Runs of the program's memory as runs of the SO-DIMM. `None`: they do not all lie there.
    fn runs(&self, c: &Client, runs: &[Run]) -> Option<Vec<(u32, u32)>> {
        let (room, _) = self.room.as_ref()?;
        let (from, end) = self.range(c);
        let run = |&(address, bytes): &Run| {
            let inside = from <= address && address.checked_add(bytes)? <= end;
            let memory = room.from + address.checked_sub(from)? as u64;
            inside.then_some((u32::try_from(memory).ok()?, u32::try_from(bytes).ok()?))
        };
        runs.iter().map(run).collect()
    }

    /// The same as places of at most a slot each.
    fn pieces(&self, c: &Client, runs: &[Run]) -> Vec<Place> {
        let all = places::places(&self.runs(c, runs).unwrap_or_default());
        places::cut(&all, self.plan.slot, self.plan.slot / 8)
    }
}

impl CardMemory for DimmnetDriver {
    fn range(&self, c: &Client) -> (usize, usize) {
        let (shown, bytes) = c.shown();
        match &self.room {
            Some((room, _)) if room.shown as u64 + room.bytes <= bytes as u64 => {
                let from = shown.addr() + room.shown;
                (from, from + room.bytes as usize)
            }
            _ => (0, 0),
        }
    }

    fn eager_max(&self) -> usize {
        // What one VL of an envelope brings: reading more from the windows on both sides takes
        // longer than asking.
        self.plan.glance as usize
    }

    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        let (from, end) = self.range(c);
        if from == end || alignment as u64 > super::memory::SHARED_ALIGNMENT {
            return None;
        }
        let (room, heap) = self.room.as_mut()?;
        let at = heap.take(bytes as u64, alignment as u64)?;
        Some(from + (at - room.from) as usize)
    }

    fn release(&mut self, c: &Client, address: usize) -> bool {
        let (from, end) = self.range(c);
        let Some((room, heap)) = self.room.as_mut() else {
            return false;
        };
        (from..end).contains(&address) && heap.give_back(room.from + (address - from) as u64)
    }

    fn describes(&self, c: &Client, runs: &[Run]) -> bool {
        let runs = self.runs(c, runs);
        runs.is_some_and(|runs| places::encode(&places::places(&runs)).is_some())
    }

    fn lies(&mut self, c: &Client, runs: &[Run]) {
        let runs = self.runs(c, runs);
        self.lies = runs.and_then(|runs| places::encode(&places::places(&runs)));
    }

    fn fetch(
        &mut self,
        c: &mut Client,
        from: Rank,
        request: u32,
        bytes: u64,
        into: Option<&[Run]>,
    ) -> Option<u32> {
        let into = match into {
            None => Into::Ordinary,
            Some(runs) => {
                let mut places = places::places(&self.runs(c, runs)?);
                if places::bytes(&places) != bytes {
                    return None;
                }
                match &places[..] {
                    [
                        Place {
                            memory,
                            what: Pattern::Contiguous { .. },
                        },
                    ] => Into::Run(*memory),
                    _ => {
                        let (_, heap) = self.room.as_mut()?;
                        let at = heap.take(bytes, 8)?;
                        Into::Places(at as u32, std::mem::take(&mut places))
                    }
                }
            }
        };
        let gathers = match &into {
            Into::Places(at, _) => Some(u64::from(*at)),
            _ => None,
        };
        let number = self.with(c, |driver| driver.fetch(from, request, bytes, into));
        if let (None | Some(None), Some(at), Some((_, heap))) = (number, gathers, &mut self.room) {
            heap.give_back(at);
        }
        number.flatten()
    }

    fn fetched(&mut self, from: Rank) -> Option<u32> {
        let fetched = self.state.as_mut()?.fetched(from)?;
        if let (Some(at), Some((_, heap))) = (fetched.gathered, &mut self.room) {
            heap.give_back(at.into());
        }
        Some(fetched.number)
    }

    fn take_out(&mut self, c: &mut Client, runs: &[Run]) {
        let pieces = self.pieces(c, runs);
        self.with(c, |driver| {
            for piece in &pieces {
                driver.take_out(piece);
            }
        });
    }

    fn put_in(&mut self, c: &mut Client, runs: &[Run]) {
        let Some((room, _)) = &self.room else {
            return;
        };
        let room = *room;
        let pieces = self.pieces(c, runs);
        // The library has written the bytes where they belong; the card writes the same once more.
        let bytes: Vec<Vec<u8>> = pieces
            .iter()
            .map(|piece| {
                let mut bytes = vec![0; piece.what.bytes() as usize];
                let mut rest = &mut bytes[..];
                for (offset, len) in piece.what.runs() {
                    let (part, behind) = rest.split_at_mut(len as usize);
                    let at = u64::from(piece.memory) + offset - room.from;
                    c.read(room.shown + at as usize, part);
                    rest = behind;
                }
                bytes
            })
            .collect();
        self.with(c, |driver| {
            for (piece, bytes) in pieces.iter().zip(&bytes) {
                driver.put_in(piece, bytes);
            }
        });
    }
}
