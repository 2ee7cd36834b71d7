//! What a card keeps for each process, and its statistics.

use super::command::Location;
use super::packet::{Process, Request};
use super::ring::Ring;
use super::sodimm::SoDimm;
use super::timing::Capacity;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A packet of an RVL that is under way: where its bytes go.
#[derive(Clone, Debug)]
pub(super) struct PendingLoad {
    pub into: Location,
    pub bytes: u64,
    /// It is the last one of its command.
    pub last: bool,
}

/// Packets of one sender that came when its ring was full.
#[derive(Debug, Default)]
pub(super) struct Stalled {
    pub requests: VecDeque<Request>,
    /// The first one is being tried again.
    pub draining: bool,
}

/// What a card keeps for one of its processes.
pub(super) struct ProcessState {
    pub write_window: Vec<u8>,
    pub prefetch_window: Vec<u8>,
    pub memory: SoDimm,
    /// Base, size and number of its rings, once they are set up.
    pub ring_area: Option<(u32, u32, u32)>,
    /// By sender. A ring is made when its sender first uses it.
    pub rings: BTreeMap<u32, Ring>,
    pub vectors_done: u32,
    pub sends_done: u32,
    pub loads_done: u32,
    pub errors: u32,
    pub last_error: u32,
    /// By the process that is asked: RVL under way, oldest first.
    pub pending_loads: BTreeMap<Process, VecDeque<PendingLoad>>,
    /// Processes that have said Stop.
    pub stopped: BTreeSet<Process>,
    /// By sender: packets that came when its ring was full.
    pub stalled: BTreeMap<Process, Stalled>,
}

impl ProcessState {
    pub fn new(capacity: Capacity) -> ProcessState {
        ProcessState {
            write_window: vec![0; capacity.window_bytes as usize],
            prefetch_window: vec![0; capacity.window_bytes as usize],
            memory: SoDimm::new(capacity.memory_bytes.into()),
            ring_area: None,
            rings: BTreeMap::new(),
            vectors_done: 0,
            sends_done: 0,
            loads_done: 0,
            errors: 0,
            last_error: 0,
            pending_loads: BTreeMap::new(),
            stopped: BTreeSet::new(),
            stalled: BTreeMap::new(),
        }
    }
}

/// What a card has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardStats {
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
