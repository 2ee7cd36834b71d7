//! The shared file pointer (MPI 5.0 §14.4.4), in etypes of the view.
//!
//! Where all ranks are on one node, it is a number in memory that they share. Between nodes it is
//! in a window whose keeper is rank 0: whoever moves the pointer needs no lock file, but waits
//! until rank 0 makes progress.

use super::sieve_exclusion::{Ranks, WritesInFlight};
use crate::comm::agree::{Reader, put_u64};
use crate::device::{self, Mapping, SharedRange};
use crate::process::process;
use crate::pt2pt::Buffer;
use crate::win::{Flavor, NewWindow, Operands, TargetBuffer, Win};
use crate::{Comm, Datatype, Op, Result, err};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the pointer.
const POINTER_BYTES: usize = 8;
/// Bytes from one part of the shared memory to the next: a cache line.
const LINE_BYTES: usize = 64;

/// What the ranks of a file share on their node: the pointer, the flags that somebody has sieved
/// and that the file is claimed, and for each rank the number of its writes under way, each in a
/// cache line. Zeros at first.
pub(super) struct NodeState {
    memory: Memory,
    ranks: u32,
}

enum Memory {
    Shared(Mapping),
    /// Of this process's threads, in tests.
    #[cfg(test)]
    Own(Box<[WritesInFlight]>),
}

impl NodeState {
    fn bytes(ranks: u32) -> usize {
        LINE_BYTES * (2 + ranks as usize)
    }

    #[cfg(test)]
    pub fn of_threads(ranks: u32) -> NodeState {
        let lines = (0..2 + ranks).map(|_| WritesInFlight::default());
        NodeState {
            memory: Memory::Own(lines.collect()),
            ranks,
        }
    }

    fn line(&self, n: usize) -> *const u8 {
        let base = match &self.memory {
            Memory::Shared(mapping) => mapping.base().cast_const(),
            #[cfg(test)]
            Memory::Own(lines) => lines.as_ptr().cast(),
        };
        base.wrapping_add(n * LINE_BYTES)
    }

    fn pointer(&self) -> &AtomicU64 {
        // SAFETY: the memory has this line, which only atomics access.
        unsafe { &*self.line(0).cast() }
    }

    /// Not 0: a rank has sieved, or is about to.
    pub fn sieved(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.line(1).cast() }
    }

    /// Not 0: the file is claimed for its ranks.
    pub fn claimed(&self) -> &AtomicU32 {
        let after_sieved = self.line(1).wrapping_add(size_of::<AtomicU32>());
        // SAFETY: the line has this second word, which only atomics access.
        unsafe { &*after_sieved.cast() }
    }

    /// Each rank's writes under way.
    pub fn writes_in_flight(&self) -> &[WritesInFlight] {
        // SAFETY: the memory has a line for each rank, which only atomics access.
        unsafe { std::slice::from_raw_parts(self.line(2).cast(), self.ranks as usize) }
    }
}

/// Where the pointer lies, as rank 0 tells the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PointerPlacement {
    /// There is one rank.
    Own,
    /// In this range of the node's memory.
    OnNode(SharedRange),
    /// In a window, which all ranks are to make.
    InWindow,
}

impl PointerPlacement {
    pub fn put(self, out: &mut Vec<u8>) {
        let (kind, range) = match self {
            PointerPlacement::Own => (0, None),
            PointerPlacement::OnNode(range) => (1, Some(range)),
            PointerPlacement::InWindow => (2, None),
        };
        put_u64(out, kind);
        put_u64(out, range.map_or(0, |r| r.offset));
        put_u64(out, range.map_or(0, |r| r.len));
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<PointerPlacement> {
        let kind = reader.u64()?;
        let range = SharedRange {
            offset: reader.u64()?,
            len: reader.u64()?,
        };
        Ok(match kind {
            0 => PointerPlacement::Own,
            1 => PointerPlacement::OnNode(range),
            _ => PointerPlacement::InWindow,
        })
    }
}

/// The shared file pointer of a file.
pub(super) enum SharedPointer {
    /// Of a file with one rank.
    Own(AtomicU64),
    /// In memory of the node. The range is to be released by this process.
    OnNode(Arc<NodeState>, Option<SharedRange>),
    /// In memory of rank 0.
    InWindow(Arc<Win>),
}

impl SharedPointer {
    /// Allocates the pointer. For rank 0.
    pub fn announce(comm: &Comm) -> PointerPlacement {
        if comm.size() == 1 {
            return PointerPlacement::Own;
        }
        let local = &process().rank_info.local_ranks;
        let on_node = (0..comm.size()).all(|rank| local.binary_search(&comm.peer(rank)).is_ok());
        let memory = device::device().shared_memory().filter(|_| on_node);
        match memory.and_then(|memory| memory.allocate(NodeState::bytes(comm.size()) as u64).ok()) {
            Some(range) => PointerPlacement::OnNode(range),
            None => PointerPlacement::InWindow,
        }
    }

    /// Makes it known to this process. For a window, collective.
    ///
    /// Errors: NoMem.
    pub fn join(comm: &Arc<Comm>, announced: PointerPlacement) -> Result<SharedPointer> {
        match announced {
            PointerPlacement::Own => Ok(SharedPointer::Own(AtomicU64::new(0))),
            PointerPlacement::OnNode(range) => {
                let memory = device::device().shared_memory();
                let mapping = memory.map(|memory| memory.map(range));
                match mapping {
                    Some(Ok(mapping)) if mapping.len() >= NodeState::bytes(comm.size()) => {
                        let state = NodeState {
                            memory: Memory::Shared(mapping),
                            ranks: comm.size(),
                        };
                        let range = (comm.rank() == 0).then_some(range);
                        Ok(SharedPointer::OnNode(Arc::new(state), range))
                    }
                    other => Err(err!(
                        NoMem,
                        "the memory of the shared file pointer cannot be mapped: {}",
                        match other {
                            Some(Err(e)) => e.to_string(),
                            _ => "this process shares no memory".to_owned(),
                        }
                    )),
                }
            }
            PointerPlacement::InWindow => {
                let win = Win::make(&NewWindow {
                    comm,
                    info: None,
                    flavor: Flavor::Allocate,
                    base: std::ptr::null_mut(),
                    size: if comm.rank() == 0 {
                        POINTER_BYTES as i64
                    } else {
                        0
                    },
                    disp_unit: 1,
                })?;
                // Rank 0 is locked until the end: several threads may move the pointer at a time.
                win.lock_all(true)?;
                Ok(SharedPointer::InWindow(win))
            }
        }
    }

    /// Are all ranks of the file on one node, which shares memory?
    pub fn is_on_node(&self) -> bool {
        !matches!(self, SharedPointer::InWindow(_))
    }

    /// The ranks of the file, as sieving writes see them. `rank` is this rank.
    pub fn ranks(&self, rank: u32) -> Ranks {
        match self {
            SharedPointer::Own(_) => Ranks::One,
            SharedPointer::OnNode(state, _) => Ranks::OnNode(state.clone(), rank),
            SharedPointer::InWindow(_) => Ranks::Apart,
        }
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU64> {
        match self {
            SharedPointer::Own(word) => Some(word),
            SharedPointer::OnNode(state, _) => Some(state.pointer()),
            SharedPointer::InWindow(_) => None,
        }
    }

    /// Adds to it. Returns the value before.
    ///
    /// Errors: those of the messages to rank 0.
    #[inline]
    pub fn advance(&self, etypes: u64) -> Result<u64> {
        match self.word() {
            Some(word) => Ok(word.fetch_add(etypes, Ordering::AcqRel)),
            None => self.update(Predefined::Sum, etypes),
        }
    }

    /// Its value.
    ///
    /// Errors: those of the messages to rank 0.
    pub fn load(&self) -> Result<u64> {
        match self.word() {
            Some(word) => Ok(word.load(Ordering::Acquire)),
            None => self.update(Predefined::NoOp, 0),
        }
    }

    /// Sets it.
    ///
    /// Errors: those of the messages to rank 0.
    pub fn store(&self, etypes: u64) -> Result<()> {
        match self.word() {
            Some(word) => word.store(etypes, Ordering::Release),
            None => {
                self.update(Predefined::Replace, etypes)?;
            }
        }
        Ok(())
    }

    fn update(&self, op: Predefined, value: u64) -> Result<u64> {
        let SharedPointer::InWindow(win) = self else {
            return Ok(0);
        };
        let datatype = Datatype::basic(Basic::Uint64);
        let (value, mut before) = (value, 0u64);
        let buffer = |at: *const u64| Buffer {
            address: at.cast_mut().cast(),
            count: 1,
            datatype,
        };
        let operands = Operands {
            origin: Some(buffer(&raw const value)),
            result: Some(buffer(&raw mut before)),
        };
        let target_buffer = TargetBuffer {
            rank: 0,
            disp: 0,
            count: 1,
            datatype,
        };
        // SAFETY: both numbers live until the flush, which completes the operation.
        let done =
            unsafe { win.accumulate(operands, target_buffer, Op::of(op), "a shared file pointer") };
        win.flush(0)?;
        done?;
        Ok(before)
    }

    /// Frees it when no rank uses it any more. For a window, collective.
    pub fn release(&self) {
        match self {
            SharedPointer::OnNode(_, Some(range)) => {
                if let Some(memory) = device::device().shared_memory() {
                    memory.release(*range);
                }
            }
            SharedPointer::InWindow(win) => {
                let _ = win.unlock_all().and_then(|()| win.free());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_announced_is_read() {
        let range = SharedRange {
            offset: 65536,
            len: 8,
        };
        for announced in [
            PointerPlacement::Own,
            PointerPlacement::OnNode(range),
            PointerPlacement::InWindow,
        ] {
            let mut bytes = Vec::new();
            announced.put(&mut bytes);
            assert_eq!(
                PointerPlacement::read(&mut Reader(&bytes)).unwrap(),
                announced
            );
        }
    }
}
