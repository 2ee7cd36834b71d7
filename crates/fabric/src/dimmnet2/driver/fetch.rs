//! Messages that lie in the sender's SO-DIMM. The receiver's card gets them by RVL, wherever their
//! blocks lie. No processor packs or copies.
//!
//! The RTS says where the message lies. One message is fetched at a time, the first that was asked
//! for: the card counts the RVL that are done, and those of two peers may end in any order.
//!
//! A message that belongs into one run of the receiver's SO-DIMM goes straight there. One that
//! belongs into several is gathered in one place, and goes from there by RVS to the own card. One
//! that belongs into ordinary memory goes through the Prefetch Window.

use super::regions::{self, Region};
use super::{CardDriver, CardPort};
use crate::dimmnet2::card::LlcmWord;
use crate::dimmnet2::card::command::{Addressing, Command, Location};
use crate::dimmnet2::card::pattern::Pattern;
use crate::driver::Upcall;
use std::collections::{BTreeMap, VecDeque};

/// Most announced messages of a peer that are kept. Of more, the oldest is forgotten. It then goes
/// through the windows like any other.
const ANNOUNCED_MAX: usize = 4096;

/// Where the bytes of a fetched message go.
pub enum FetchTarget {
    /// To ordinary memory.
    HostMemory,
    /// To one run of the own SO-DIMM, at this address.
    Run(u32),
    /// To these regions of the own SO-DIMM. The bytes are gathered at that address first.
    Regions(u32, Vec<Region>),
}

/// An RVL that is under way.
struct Load {
    /// What [`LlcmWord::LoadsDone`] reaches when it is done.
    count: u32,
    bytes: u32,
    /// Where its bytes lie in the Prefetch Window, if they go there.
    window: u32,
}

/// A message that is being fetched.
struct Fetch {
    number: u32,
    from: u32,
    /// Regions of the sender's SO-DIMM for which no RVL has been issued.
    to_load: VecDeque<Region>,
    /// Bytes for which an RVL has been issued.
    requested: u32,
    /// Bytes handed up.
    delivered: usize,
    target: FetchTarget,
    loads: VecDeque<Load>,
    /// RVL issued.
    load_count: u32,
    /// Regions of the own SO-DIMM for which no RVS has been issued.
    to_store: VecDeque<Region>,
    /// Bytes of what has been gathered for which an RVS has been issued.
    stored: u32,
    /// The last command has been issued: a fence, if there was something to store.
    fenced: bool,
}

impl Fetch {
    /// Returns whether it has a command to issue now, if `windows` loads may be under way.
    fn has_command(&self, windows: u32) -> bool {
        if !self.to_load.is_empty() {
            return self.loads.len() < windows as usize;
        }
        !self.fenced && self.loads.is_empty()
    }

    fn is_done(&self) -> bool {
        self.to_load.is_empty() && self.fenced && self.loads.is_empty()
    }
}

/// A message that has been fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Who sent it.
    pub from: u32,
    /// What [`CardDriver::fetch`] returned.
    pub number: u32,
    /// Where it was gathered, if it was.
    pub gathered_at: Option<u32>,
}

/// Fetches under way, and messages that can be fetched.
#[derive(Default)]
pub(super) struct Fetches {
    /// By peer and request: where announced messages lie.
    announced: BTreeMap<(u32, u32), Vec<Region>>,
    queue: VecDeque<Fetch>,
    done: Vec<Fetched>,
    next: u32,
}

impl Fetches {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A peer has announced a message with this request number, in these regions.
    pub fn announce(&mut self, from: u32, request: u32, regions: Vec<Region>) {
        let mine = (from, 0)..=(from, u32::MAX);
        if self.announced.range(mine.clone()).count() >= ANNOUNCED_MAX {
            let first = self.announced.range(mine).next().map(|(key, _)| *key);
            first.map(|key| self.announced.remove(&key));
        }
        self.announced.insert((from, request), regions);
    }
}

impl<P> CardDriver<P> {
    /// A message of `from` that has been fetched since this was last asked.
    pub fn fetched(&mut self, from: u32) -> Option<Fetched> {
        let done = &mut self.fetches.done;
        let at = done.iter().position(|f| f.from == from)?;
        Some(done.remove(at))
    }

    /// Most offsets in the list of a command. The Write Window has room for as many lists as slots.
    pub fn list_max(&self) -> u32 {
        self.layout.slot / 8
    }
}

impl<P: CardPort> CardDriver<P> {
    /// Starts to fetch the message of `bytes` bytes that `from` has announced with the number
    /// `request`. Returns a number for [`CardDriver::fetched`]. `None`: it is not known where the
    /// message lies, or its regions have another number of bytes.
    pub fn fetch(
        &mut self,
        from: u32,
        request: u32,
        bytes: u64,
        target: FetchTarget,
    ) -> Option<u32> {
        let regions = self.fetches.announced.remove(&(from, request))?;
        if regions::bytes(&regions) != bytes || u32::try_from(bytes).is_err() {
            return None;
        }
        let number = self.fetches.next;
        self.fetches.next = number.wrapping_add(1);
        let (bytes_max, list_max) = (self.layout.slot, self.list_max());
        let (to_store, fenced) = match &target {
            FetchTarget::Regions(_, own) => {
                (regions::split(own, bytes_max, list_max).into(), false)
            }
            _ => (VecDeque::new(), true),
        };
        self.fetches.queue.push_back(Fetch {
            number,
            from,
            to_load: regions::split(&regions, bytes_max, list_max).into(),
            requested: 0,
            delivered: 0,
            target,
            loads: VecDeque::new(),
            load_count: 0,
            to_store,
            stored: 0,
            fenced,
        });
        if self.fetches.queue.len() == 1
            && let Some(mut first) = self.fetches.queue.pop_front()
        {
            self.issue_commands_of(&mut first);
            self.fetches.queue.push_front(first);
        }
        Some(number)
    }

    /// Returns whether the first fetch could go on at the last sync.
    pub(super) fn fetch_can_go_on(&self) -> bool {
        self.fetches.queue.front().is_some_and(|first| {
            let load = first.loads.front();
            load.is_some_and(|l| self.has_reached(LlcmWord::LoadsDone, l.count))
                || first.has_command(self.layout.slots) && self.has_free_slot()
        })
    }

    /// Takes what had come by RVL at the last sync, and issues more commands. Returns the number of
    /// loads and commands.
    pub(super) fn fetch_on(&mut self, up: &mut dyn Upcall) -> usize {
        let mut moved = 0;
        while let Some(mut first) = self.fetches.queue.pop_front() {
            while let Some(load) = first.loads.pop_front() {
                if !self.has_reached(LlcmWord::LoadsDone, load.count) {
                    first.loads.push_front(load);
                    break;
                }
                moved += 1;
                if matches!(first.target, FetchTarget::HostMemory) {
                    self.deliver_window(&mut first, &load, up);
                }
            }
            moved += self.issue_commands_of(&mut first);
            if !first.is_done() {
                self.fetches.queue.push_front(first);
                break;
            }
            self.fetches.done.push(Fetched {
                from: first.from,
                number: first.number,
                gathered_at: match first.target {
                    FetchTarget::Regions(at, _) => Some(at),
                    _ => None,
                },
            });
        }
        moved
    }

    /// Hands up bytes that an RVL has brought into the Prefetch Window.
    fn deliver_window(&mut self, fetch: &mut Fetch, load: &Load, up: &mut dyn Upcall) {
        let mut bytes = vec![0; load.bytes as usize];
        self.port
            .charge("reads of the window", self.costs.load_time(load.bytes));
        self.port.load(load.window, &mut bytes);
        up.card_part(fetch.from, fetch.number, fetch.delivered, &bytes);
        fetch.delivered += bytes.len();
    }

    /// Issues as many of a fetch's commands as there is room for. Returns how many.
    fn issue_commands_of(&mut self, fetch: &mut Fetch) -> usize {
        let mut issued = 0;
        while fetch.has_command(self.layout.slots) && self.has_slot() {
            issued += 1;
            if let Some(region) = fetch.to_load.pop_front() {
                // The first two slots are the rings'.
                let window = (2 + fetch.load_count % self.layout.slots) * self.layout.slot;
                let into = match &fetch.target {
                    FetchTarget::HostMemory => Location::Window(window),
                    FetchTarget::Run(at) | FetchTarget::Regions(at, _) => {
                        Location::Memory(at + fetch.requested)
                    }
                };
                let bytes = region.what.bytes() as u32;
                self.issue_load(fetch, into, &region, bytes, window);
                fetch.requested += bytes;
            } else if let (Some(region), FetchTarget::Regions(at, _)) =
                (fetch.to_store.pop_front(), &fetch.target)
            {
                let what = self.addressing(&region.what);
                let me = self.peers[self.me as usize].process;
                self.issue(&Command::RemoteStore {
                    to: me,
                    from: Location::Memory(at + fetch.stored),
                    memory: region.memory,
                    what,
                });
                fetch.stored += region.what.bytes() as u32;
            } else {
                // A fence: an RVL of nothing, which does not overtake what has been stored.
                fetch.fenced = true;
                let from = std::mem::replace(&mut fetch.from, self.me);
                let what = Pattern::Contiguous { bytes: 0 };
                let nothing = Region { memory: 0, what };
                self.issue_load(fetch, Location::Memory(0), &nothing, 0, 0);
                fetch.from = from;
            }
        }
        issued
    }

    fn issue_load(
        &mut self,
        fetch: &mut Fetch,
        into: Location,
        region: &Region,
        bytes: u32,
        window: u32,
    ) {
        let what = self.addressing(&region.what);
        self.issue(&Command::RemoteLoad {
            from: self.peers[fetch.from as usize].process,
            into,
            memory: region.memory,
            what,
        });
        fetch.load_count = fetch.load_count.wrapping_add(1);
        fetch.loads.push_back(Load {
            count: self.loads_issued,
            bytes,
            window,
        });
    }

    /// The addressing of the next command to the network. A list is written into a part of the
    /// Write Window that no command under way uses.
    fn addressing(&mut self, what: &Pattern) -> Addressing {
        let lists = self.layout.slots * self.layout.slot + self.layout.window() / 4;
        let at = lists + self.sends_issued % self.layout.slots * (self.layout.slot / 2);
        self.addressing_at(what, at)
    }

    /// The addressing of a command whose list, if it has one, is written to `list`.
    fn addressing_at(&mut self, what: &Pattern, list: u32) -> Addressing {
        let (_, block, stride, count) = what.fields();
        let bytes = what.list();
        if !bytes.is_empty() {
            self.port.charge(
                "writes to the window",
                self.costs.store_time(bytes.len() as u32),
            );
            self.port.store(list, &bytes);
        }
        match what {
            Pattern::Contiguous { bytes } => Addressing::Contiguous(*bytes),
            Pattern::Stride { .. } => Addressing::Stride {
                block,
                stride,
                count,
            },
            Pattern::List { .. } => Addressing::List { block, count, list },
            Pattern::PackedList { .. } => Addressing::PackedList { block, count, list },
        }
    }

    /// The processor reads a region of the own SO-DIMM: VL, and reads of the Prefetch Window.
    /// Blocks until it has the bytes.
    pub fn load_region(&mut self, region: &Region) {
        let mut bytes = vec![0; region.what.bytes() as usize];
        let what = self.addressing_at(&region.what, self.own_list_at());
        self.load(region.memory, what, &mut bytes);
    }

    /// The processor writes a region of the own SO-DIMM: stores to the Write Window, and VS. Blocks
    /// until the bytes are there.
    pub fn store_region(&mut self, region: &Region, bytes: &[u8]) {
        let what = self.addressing_at(&region.what, self.own_list_at());
        self.store(bytes, region.memory, what);
    }

    /// Where the list of a command on the own card lies: behind what [`CardDriver::store`] stores.
    fn own_list_at(&self) -> u32 {
        self.layout.slots * self.layout.slot + self.layout.slot
    }
}
