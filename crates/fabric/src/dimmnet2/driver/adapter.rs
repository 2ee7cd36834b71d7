//! The driver as the transport `model` uses it. The rank's client is lent to it for each call.

mod remote_memory;

use super::host_costs::HostCosts;
use super::layout::{MemoryLayout, program_memory};
use super::mapped::MappedCard;
use super::regions::{self, Region};
use super::{CardDriver, CardPort, FetchTarget, Sent};
use crate::address_allocator::AddressAllocator;
use crate::dimmnet2::card::ProgramMemory;
use crate::dimmnet2::card::access::process_of;
use crate::dimmnet2::card::packet::Process;
use crate::dimmnet2::card::pattern::Pattern;
use crate::dimmnet2::card::sodimm::SHARED_ALIGNMENT;
use crate::dimmnet2::figures::Figures;
use crate::driver::{Body, CardMemory, Driver, Expected, Limits, Malformed, Run, Upcall};
use crate::kernel::{Client, Rank};
use crate::platform::Platform;
use crate::remote_memory::RemoteMemory;
use crate::time::Time;
use std::collections::BTreeSet;

/// Largest message, bytes. The driver keeps a message whole until its last byte has come. Longer
/// messages are sent by rendezvous, in pieces.
const MESSAGE_MAX_BYTES: usize = 64 * 1024;
/// Poll period of a rank that has not used its card yet. It does not matter: nothing can come.
const IDLE_POLL_PERIOD: Time = Time::ns(100);

/// The DIMMnet-2 driver of a rank.
pub struct DimmnetDriver {
    platform: Platform,
    costs: HostCosts,
    /// `None` before the first call, and during one.
    state: Option<CardDriver<NoPort>>,
    layout: MemoryLayout,
    limits: Limits,
    /// The next message is a CTS.
    next_is_cts: bool,
    /// The next message announces one that lies in the SO-DIMM: its encoded regions.
    next_source: Option<Vec<u8>>,
    /// Ranks to which something was put since the last flush.
    unflushed: BTreeSet<Rank>,
    /// The program's part of the SO-DIMM, and what is allocated of it.
    program: Option<(ProgramMemory, AddressAllocator)>,
    /// Kept to reuse its memory.
    buffer: Vec<u8>,
}

/// In place of a port while no client is lent.
pub struct NoPort;

impl DimmnetDriver {
    /// The driver of a rank of this machine.
    pub fn new(platform: &Platform, f: &Figures) -> DimmnetDriver {
        let memory = program_memory(platform, f);
        DimmnetDriver {
            platform: platform.clone(),
            costs: HostCosts::new(f, &platform.cpu),
            state: None,
            layout: MemoryLayout::new(f, platform.processes() as u16),
            limits: Limits {
                message_max: MESSAGE_MAX_BYTES,
                eager_max: f.eager.value.0 as usize,
            },
            next_is_cts: false,
            next_source: None,
            unflushed: BTreeSet::new(),
            program: memory.map(|m| (m, AddressAllocator::new(m.from, m.bytes))),
            buffer: Vec::new(),
        }
    }

    /// Takes the driver's state, which is made when the rank first uses its card.
    fn take_state(&mut self, client: &Client) -> CardDriver<NoPort> {
        if let Some(state) = self.state.take() {
            return state;
        }
        let processes: Vec<Process> = (0..client.ranks())
            .map(|rank| process_of(&self.platform, rank))
            .collect();
        CardDriver::new_unstarted(NoPort, self.costs, self.layout, client.me(), &processes)
    }

    /// Uses the card with the client.
    fn with<R>(
        &mut self,
        client: &mut Client,
        then: impl FnOnce(&mut CardDriver<MappedCard<&mut Client>>) -> R,
    ) -> R {
        let state = self.take_state(client);
        let port = MappedCard::new(client, self.layout.window());
        let (mut driver, NoPort) = state.with_port(port);
        driver.start();
        let result = then(&mut driver);
        self.state = Some(driver.with_port(NoPort).0);
        result
    }
}

impl Driver for DimmnetDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        self.limits
    }

    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let (is_cts, source) = (self.next_is_cts, self.next_source.take());
        let sent = self.with(c, |driver| {
            if !driver.has_room(to) {
                return Sent::Full;
            }
            if let Some(regions) = &source {
                return driver.send_rts_of_regions(to, message, head, regions);
            }
            let body = match body {
                Body::Bytes(bytes) => bytes,
                fill => {
                    fill.append_to(&mut buffer);
                    &buffer[..]
                }
            };
            driver.send(to, message, is_cts, head, body)
        });
        self.buffer = buffer;
        let taken = sent == Sent::Taken;
        self.next_is_cts &= !taken;
        taken
    }

    fn before_cts(&mut self, _c: &mut Client, _from: Rank, _what: &Expected<'_>) {
        self.next_is_cts = true;
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        let taken = self.with(c, |driver| driver.stream(to, message, head, body));
        taken.unwrap_or(0)
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Malformed> {
        // If there are events that nobody has taken, the rank has waited, and its last poll has
        // seen them.
        let has_polled = !c.begin_poll() || c.has_events();
        self.with(c, |driver| {
            if has_polled {
                driver.set_polled();
            }
            driver.poll(up)
        })
    }

    fn settle(&mut self, c: &mut Client) -> bool {
        self.with(c, |driver| {
            driver.port_mut().sync();
            driver.is_settled()
        })
    }

    fn memory(&self) -> Option<&dyn CardMemory> {
        self.program.as_ref()?;
        Some(self)
    }

    fn memory_mut(&mut self) -> Option<&mut dyn CardMemory> {
        self.program.as_ref()?;
        Some(self)
    }

    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        self.program.as_ref()?;
        Some(self)
    }

    fn poll_period(&self) -> Time {
        let state = self.state.as_ref();
        state.map_or(IDLE_POLL_PERIOD, CardDriver::poll_period)
    }
}

impl DimmnetDriver {
    /// Turns runs of the program's memory into runs of the SO-DIMM. `None`: they do not all lie
    /// there.
    fn runs(&self, c: &Client, runs: &[Run]) -> Option<Vec<(u32, u32)>> {
        let (memory, _) = self.program.as_ref()?;
        let (from, end) = CardMemory::range(self, c);
        let run = |&(address, bytes): &Run| {
            let inside = from <= address && address.checked_add(bytes)? <= end;
            let at = memory.from + address.checked_sub(from)? as u64;
            inside.then_some((u32::try_from(at).ok()?, u32::try_from(bytes).ok()?))
        };
        runs.iter().map(run).collect()
    }

    /// Turns runs of the program's memory into regions of at most a slot each.
    fn slot_regions(&self, c: &Client, runs: &[Run]) -> Vec<Region> {
        let all = regions::regions(&self.runs(c, runs).unwrap_or_default());
        regions::split(&all, self.layout.slot, self.layout.slot / 8)
    }

    /// Encodes where a message lies, if that fits an announcement.
    fn describe(&self, c: &Client, runs: &[Run]) -> Option<Vec<u8>> {
        regions::encode(&regions::regions(&self.runs(c, runs)?))
    }
}

impl CardMemory for DimmnetDriver {
    fn range(&self, c: &Client) -> (usize, usize) {
        let (mapped, bytes) = c.mapped_memory();
        match &self.program {
            Some((m, _)) if m.mapped_at as u64 + m.bytes <= bytes as u64 => {
                let from = mapped.addr() + m.mapped_at;
                (from, from + m.bytes as usize)
            }
            _ => (0, 0),
        }
    }

    fn eager_max(&self) -> usize {
        // What the first VL of an envelope brings. To read more from the windows on both sides
        // takes longer than a rendezvous.
        self.layout.first_read as usize
    }

    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        let (from, end) = CardMemory::range(self, c);
        if from == end || alignment as u64 > SHARED_ALIGNMENT {
            return None;
        }
        let (memory, allocator) = self.program.as_mut()?;
        let at = allocator.allocate(bytes as u64, alignment as u64)?;
        Some(from + (at - memory.from) as usize)
    }

    fn release(&mut self, c: &Client, address: usize) -> bool {
        let (from, end) = CardMemory::range(self, c);
        let Some((memory, allocator)) = self.program.as_mut() else {
            return false;
        };
        (from..end).contains(&address) && allocator.free(memory.from + (address - from) as u64)
    }

    fn can_describe(&self, c: &Client, runs: &[Run]) -> bool {
        self.describe(c, runs).is_some()
    }

    fn set_source(&mut self, c: &Client, runs: &[Run]) {
        self.next_source = self.describe(c, runs);
    }

    fn start_read(
        &mut self,
        c: &mut Client,
        from: Rank,
        request: u32,
        bytes: u64,
        into: Option<&[Run]>,
    ) -> Option<u32> {
        let target = match into {
            None => FetchTarget::HostMemory,
            Some(runs) => {
                let regions = regions::regions(&self.runs(c, runs)?);
                if regions::bytes(&regions) != bytes {
                    return None;
                }
                match &regions[..] {
                    [
                        Region {
                            memory,
                            what: Pattern::Contiguous { .. },
                        },
                    ] => FetchTarget::Run(*memory),
                    _ => {
                        let (_, allocator) = self.program.as_mut()?;
                        let at = allocator.allocate(bytes, 8)?;
                        FetchTarget::Regions(at as u32, regions)
                    }
                }
            }
        };
        let gathered_at = match &target {
            FetchTarget::Regions(at, _) => Some(u64::from(*at)),
            _ => None,
        };
        let number = self.with(c, |driver| driver.fetch(from, request, bytes, target));
        if let (None, Some(at), Some((_, allocator))) = (number, gathered_at, &mut self.program) {
            allocator.free(at);
        }
        number
    }

    fn finished_read(&mut self, from: Rank) -> Option<u32> {
        let fetched = self.state.as_mut()?.fetched(from)?;
        if let (Some(at), Some((_, allocator))) = (fetched.gathered_at, &mut self.program) {
            allocator.free(at.into());
        }
        Some(fetched.number)
    }

    fn charge_load(&mut self, c: &mut Client, runs: &[Run]) {
        let regions = self.slot_regions(c, runs);
        self.with(c, |driver| {
            for region in &regions {
                driver.load_region(region);
            }
        });
    }

    fn charge_store(&mut self, c: &mut Client, runs: &[Run]) {
        let Some((memory, _)) = &self.program else {
            return;
        };
        let memory = *memory;
        let regions = self.slot_regions(c, runs);
        // The library has written the bytes where they belong. The card writes the same once more.
        let bytes: Vec<Vec<u8>> = regions
            .iter()
            .map(|region| {
                let mut bytes = vec![0; region.what.bytes() as usize];
                let mut rest = &mut bytes[..];
                for (offset, len) in region.what.runs() {
                    let (part, behind) = rest.split_at_mut(len as usize);
                    let at = u64::from(region.memory) + offset - memory.from;
                    c.read(memory.mapped_at + at as usize, part);
                    rest = behind;
                }
                bytes
            })
            .collect();
        self.with(c, |driver| {
            for (region, bytes) in regions.iter().zip(&bytes) {
                driver.store_region(region, bytes);
            }
        });
    }
}
