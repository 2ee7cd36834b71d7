//! Messages that lie in the sender's SO-DIMM: the receiver's card gets them by RVL, wherever their
//! blocks lie, and no processor packs or copies.
//!
//! The announcement (RTS) says where they lie. One at a time is brought, the first that was asked
//! for: the card tells how many RVL it has done, and those of two peers may end in any order. What
//! belongs into one run of the receiver's SO-DIMM goes straight there; into several: by RVS to the
//! own card, from where it has been gathered; into ordinary memory: through the Prefetch Window.

use super::{Driver, Port};
use crate::dimmnet2::card::Word;
use crate::dimmnet2::command::{Addressing, Command, Place as Near};
use crate::dimmnet2::pattern::Pattern;
use crate::dimmnet2::places::{self, Place};
use crate::driver::Upcall;
use std::collections::{BTreeMap, VecDeque};

/// Announced messages that nobody has asked for are forgotten, the oldest of a peer first, if there
/// are more of it than this: they go the other way then.
const ANNOUNCED_MAX: usize = 4096;

/// Where a message's bytes go.
pub enum Into {
    /// To ordinary memory.
    Ordinary,
    /// To one run of the own SO-DIMM.
    Run(u32),
    /// To these places of the own SO-DIMM; they gather at that address.
    Places(u32, Vec<Place>),
}

/// RVL under way.
struct Load {
    /// What LoadsDone comes to when it is done.
    count: u32,
    bytes: u32,
    window: u32,
}

struct Fetch {
    number: u32,
    from: u32,
    /// What is to be asked for yet.
    steps: VecDeque<Place>,
    /// Bytes asked for, and bytes handed up.
    asked: u32,
    handed: usize,
    into: Into,
    loads: VecDeque<Load>,
    /// RVL issued.
    issued: u32,
    /// Of what has been gathered, what is to be stored yet, and bytes stored.
    stores: VecDeque<Place>,
    stored: u32,
    /// The last command is on its way.
    fenced: bool,
}

impl Fetch {
    /// Has it a command to issue now, with so many windows for loads?
    fn has_command(&self, windows: u32) -> bool {
        if !self.steps.is_empty() {
            return self.loads.len() < windows as usize;
        }
        !self.fenced && self.loads.is_empty()
    }

    fn is_done(&self) -> bool {
        self.steps.is_empty() && self.fenced && self.loads.is_empty()
    }
}

/// A message that has been brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Who sent it.
    pub from: u32,
    /// What [`Driver::fetch`] returned.
    pub number: u32,
    /// Where it had been gathered, if it had.
    pub gathered: Option<u32>,
}

/// Messages that are being brought, and that can be.
#[derive(Default)]
pub(super) struct Fetches {
    announced: BTreeMap<(u32, u32), Vec<Place>>,
    queue: VecDeque<Fetch>,
    done: Vec<Fetched>,
    next: u32,
}

impl Fetches {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// A peer's message with this number lies there.
    pub fn announce(&mut self, from: u32, request: u32, places: Vec<Place>) {
        let mine = (from, 0)..=(from, u32::MAX);
        if self.announced.range(mine.clone()).count() >= ANNOUNCED_MAX {
            let first = self.announced.range(mine).next().map(|(key, _)| *key);
            first.map(|key| self.announced.remove(&key));
        }
        self.announced.insert((from, request), places);
    }
}

impl<P> Driver<P> {
    /// A message that has been brought since this was last asked.
    pub fn fetched(&mut self, from: u32) -> Option<Fetched> {
        let done = &mut self.fetches.done;
        let at = done.iter().position(|f| f.from == from)?;
        Some(done.remove(at))
    }

    /// Most offsets of a list for a command on its way: as many lists as there are slots lie in the
    /// Write Window.
    pub fn listed(&self) -> u32 {
        self.plan.slot / 8
    }
}

impl<P: Port> Driver<P> {
    /// Begins to bring the message that `from` has announced with the number `request`; it has
    /// `bytes` bytes. Returns a number for [`Driver::fetched`]. `None`: it was not said where
    /// it lies, or that is not so many bytes.
    pub fn fetch(&mut self, from: u32, request: u32, bytes: u64, into: Into) -> Option<u32> {
        let places = self.fetches.announced.remove(&(from, request))?;
        if places::bytes(&places) != bytes || u32::try_from(bytes).is_err() {
            return None;
        }
        let number = self.fetches.next;
        self.fetches.next = number.wrapping_add(1);
        let (most, listed) = (self.plan.slot, self.listed());
        let (stores, fenced) = match &into {
            Into::Places(_, own) => (places::cut(own, most, listed).into(), false),
            _ => (VecDeque::new(), true),
        };
        self.fetches.queue.push_back(Fetch {
            number,
            from,
            steps: places::cut(&places, most, listed).into(),
            asked: 0,
            handed: 0,
            into,
            loads: VecDeque::new(),
            issued: 0,
            stores,
            stored: 0,
            fenced,
        });
        if self.fetches.queue.len() == 1
            && let Some(mut first) = self.fetches.queue.pop_front()
        {
            self.issue_for(&mut first);
            self.fetches.queue.push_front(first);
        }
        Some(number)
    }

    /// Can the first of them go on, as of the last look?
    pub(super) fn fetch_moves(&self) -> bool {
        self.fetches.queue.front().is_some_and(|first| {
            let load = first.loads.front();
            load.is_some_and(|l| self.has_come(Word::LoadsDone, l.count))
                || first.has_command(self.plan.slots) && self.under_way() < self.plan.slots
        })
    }

    /// Takes what has come by RVL as of the last look, and asks for more. Returns how much
    /// happened.
    pub(super) fn fetch_on(&mut self, up: &mut dyn Upcall) -> usize {
        let mut moved = 0;
        while let Some(mut first) = self.fetches.queue.pop_front() {
            while let Some(load) = first.loads.pop_front() {
                if !self.has_come(Word::LoadsDone, load.count) {
                    first.loads.push_front(load);
                    break;
                }
                moved += 1;
                if matches!(first.into, Into::Ordinary) {
                    self.hand_up_window(&mut first, &load, up);
                }
            }
            moved += self.issue_for(&mut first);
            if !first.is_done() {
                self.fetches.queue.push_front(first);
                break;
            }
            self.fetches.done.push(Fetched {
                from: first.from,
                number: first.number,
                gathered: match first.into {
                    Into::Places(at, _) => Some(at),
                    _ => None,
                },
            });
        }
        moved
    }

    fn hand_up_window(&mut self, fetch: &mut Fetch, load: &Load, up: &mut dyn Upcall) {
        let mut bytes = vec![0; load.bytes as usize];
        self.port
            .charge("reads of the window", self.host.loading(load.bytes));
        self.port.load(load.window, &mut bytes);
        up.fetched(fetch.from, fetch.number, fetch.handed, &bytes);
        fetch.handed += bytes.len();
    }

    /// Issues as many of its commands as there is room for. Returns how many.
    fn issue_for(&mut self, fetch: &mut Fetch) -> usize {
        let mut issued = 0;
        while fetch.has_command(self.plan.slots) && self.under_way() < self.plan.slots {
            issued += 1;
            if let Some(step) = fetch.steps.pop_front() {
                // The first two slots are the rings'.
                let window = (2 + fetch.issued % self.plan.slots) * self.plan.slot;
                let near = match &fetch.into {
                    Into::Ordinary => Near::Window(window),
                    Into::Run(at) | Into::Places(at, _) => Near::Memory(at + fetch.asked),
                };
                let bytes = step.what.bytes() as u32;
                self.ask(fetch, near, &step, bytes, window);
                fetch.asked += bytes;
            } else if let (Some(step), Into::Places(at, _)) =
                (fetch.stores.pop_front(), &fetch.into)
            {
                let what = self.addressing(&step.what);
                let me = self.peers[self.me as usize].process;
                self.issue(&Command::RemoteStore {
                    to: me,
                    from: Near::Memory(at + fetch.stored),
                    memory: step.memory,
                    what,
                });
                fetch.stored += step.what.bytes() as u32;
            } else {
                // An RVL of nothing, which does not pass what has been stored.
                fetch.fenced = true;
                let from = std::mem::replace(&mut fetch.from, self.me);
                let what = Pattern::Contiguous { bytes: 0 };
                let nothing = Place { memory: 0, what };
                self.ask(fetch, Near::Memory(0), &nothing, 0, 0);
                fetch.from = from;
            }
        }
        issued
    }

    fn ask(&mut self, fetch: &mut Fetch, into: Near, step: &Place, bytes: u32, window: u32) {
        let what = self.addressing(&step.what);
        self.issue(&Command::RemoteLoad {
            from: self.peers[fetch.from as usize].process,
            into,
            memory: step.memory,
            what,
        });
        fetch.issued = fetch.issued.wrapping_add(1);
        fetch.loads.push_back(Load {
            count: self.loads,
            bytes,
            window,
        });
    }

    /// As the next command to the network says it; a list is written into the Write Window, into a
    /// place that no command under way uses.
    fn addressing(&mut self, what: &Pattern) -> Addressing {
        let lists = self.plan.slots * self.plan.slot + self.plan.window() / 4;
        let at = lists + self.sends % self.plan.slots * (self.plan.slot / 2);
        self.addressing_at(what, at)
    }

    fn addressing_at(&mut self, what: &Pattern, list: u32) -> Addressing {
        let (_, block, stride, count) = what.fields();
        let bytes = what.list();
        if !bytes.is_empty() {
            self.port.charge(
                "writes to the window",
                self.host.storing(bytes.len() as u32),
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

    /// The processor takes these bytes out of the own SO-DIMM: VL, and reads of the Prefetch
    /// Window. Blocks until it has them.
    pub fn take_out(&mut self, place: &Place) {
        let mut bytes = vec![0; place.what.bytes() as usize];
        let what = self.addressing_at(&place.what, self.own_list());
        self.load(place.memory, what, &mut bytes);
    }

    /// The processor puts these bytes into the own SO-DIMM: stores to the Write Window, and VS.
    /// Blocks until they are there.
    pub fn put_in(&mut self, place: &Place, bytes: &[u8]) {
        let what = self.addressing_at(&place.what, self.own_list());
        self.store(bytes, place.memory, what);
    }

    /// Where the list of a command that is waited for lies: behind what [`Driver::store`] stores.
    fn own_list(&self) -> u32 {
        self.plan.slots * self.plan.slot + self.plan.slot
    }
}
