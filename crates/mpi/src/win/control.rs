//! The control block of each member of a window, in memory that the members of a node share.
//!
//! It holds the window's locks, the counters of post-start-complete-wait, and where the member's
//! memory lies. Members of the node use it directly. For origins on other nodes the member's
//! service (`remote`) does.
//!
//! ```text
//! one range for each node:
//!   block of member 0 │ wait set │ posts    members in the order of their ranks
//!   block of member 1 │ wait set │ posts
//!   …
//!   regions of member 0, 1, …               dynamic windows only
//!   inboxes of member 0, 1, …               MPI_Win_create only
//!   memory of member 0, 1, …                MPI_Win_allocate, MPI_Win_allocate_shared
//! ```

use super::Flavor;
use super::inbox::Inboxes;
use super::memory::Memory;
use crate::device::{Mapping, NodeLock, SharedRange, WaitSet};
use crate::{Result, err};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Regions that one process can attach to a dynamic window at a time. A choice: 64 KiB of
/// addresses, which cost memory where they are used.
pub(super) const REGIONS_MAX: usize = 4000;

/// A cache line of its own for what many processes change.
#[repr(C, align(64))]
pub(super) struct Line<T>(pub T);

/// One member's control block. All zeros: nothing is locked, posted or attached.
#[repr(C)]
pub(super) struct Block {
    /// The lock of passive-target epochs (MPI_Win_lock).
    pub lock: Line<NodeLock>,
    /// Held while elements are accumulated that no CPU atomic reaches.
    pub accumulate: Line<NodeLock>,
    /// How many origins have called MPI_Win_complete since this member's last MPI_Win_wait.
    pub completed: Line<AtomicU64>,
    /// Where the member's memory begins, in its own addresses.
    pub base: AtomicU64,
    /// Its length, bytes.
    pub size: AtomicU64,
    /// The displacement unit, bytes.
    pub disp_unit: AtomicU64,
    /// Where it begins in the node's range, bytes. Windows of allocated memory only.
    pub offset: AtomicU64,
    /// How many members have called MPI_Win_free, and how many have seen that all have. The first
    /// member's only.
    pub arrived: AtomicU64,
    pub left: AtomicU64,
}

impl Block {
    /// Tells the other members where this one's memory lies. `offset`: where it begins in the
    /// node's range, or `u64::MAX`.
    pub fn fill_in(&self, memory: &Memory, offset: u64) {
        let base = memory.base().expose_provenance() as u64;
        self.base.store(base, Ordering::Release);
        self.size.store(memory.size(), Ordering::Release);
        let unit = memory.disp_unit() as u64;
        self.disp_unit.store(unit, Ordering::Release);
        self.offset.store(offset, Ordering::Release);
    }
}

/// A region that was attached to a dynamic window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    /// The address of its first byte.
    pub base: u64,
    /// Its length, bytes.
    pub size: u64,
}

/// The regions of one member, in shared memory. Only that member changes it.
#[repr(C)]
pub(super) struct Regions {
    /// Odd while the member changes the list.
    version: AtomicU64,
    count: AtomicU64,
    list: [[AtomicU64; 2]; REGIONS_MAX],
}

impl Regions {
    /// The region where `base..base + len` begins, if all of it is attached: there, and in regions
    /// that follow without a gap.
    pub fn find(&self, base: u64, len: u64) -> Option<Region> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let count = (self.count.load(Ordering::Relaxed) as usize).min(REGIONS_MAX);
            let holder = |at: u64, len: u64| {
                let holds = |r: &Region| at.wrapping_sub(r.base) < r.size + u64::from(len == 0);
                self.list[..count].iter().map(region).find(holds)
            };
            let found = holder(base, len).filter(|first| {
                let mut last = *first;
                let mut left = len.saturating_sub(first.size - (base - first.base));
                while left > 0 {
                    let next = last
                        .base
                        .checked_add(last.size)
                        .and_then(|at| holder(at, left));
                    let Some(next) = next else { return false };
                    left = left.saturating_sub(next.size);
                    last = next;
                }
                true
            });
            std::sync::atomic::fence(Ordering::Acquire);
            if version & 1 == 0 && self.version.load(Ordering::Relaxed) == version {
                return found;
            }
            std::hint::spin_loop();
        }
    }

    /// All regions. For the member itself.
    pub fn all(&self) -> Vec<Region> {
        let count = (self.count.load(Ordering::Relaxed) as usize).min(REGIONS_MAX);
        self.list[..count].iter().map(region).collect()
    }

    /// Replaces the list, which has at most [`REGIONS_MAX`] regions. For the member itself, one
    /// thread at a time.
    pub fn set(&self, all: &[Region]) {
        self.version.fetch_add(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        for (to, from) in self.list.iter().zip(all) {
            to[0].store(from.base, Ordering::Relaxed);
            to[1].store(from.size, Ordering::Relaxed);
        }
        let count = all.len().min(REGIONS_MAX) as u64;
        self.count.store(count, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

fn region(words: &[AtomicU64; 2]) -> Region {
    Region {
        base: words[0].load(Ordering::Relaxed),
        size: words[1].load(Ordering::Relaxed),
    }
}

/// How a node's range is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    members: usize,
    flavor: Flavor,
}

impl Layout {
    /// The layout for this many members.
    pub fn new(members: usize, flavor: Flavor) -> Layout {
        Layout { members, flavor }
    }

    fn set_bytes(&self) -> usize {
        8 * WaitSet::words(self.members)
    }

    /// From one member's block to the next.
    fn stride(&self) -> usize {
        let sets = 2 * self.set_bytes();
        size_of::<Block>() + sets.next_multiple_of(LINE_BYTES)
    }

    /// Bytes that each member has behind the blocks.
    fn list_bytes(&self) -> usize {
        match self.flavor {
            Flavor::Dynamic => size_of::<Regions>(),
            Flavor::Create => size_of::<Inboxes>(),
            Flavor::Allocate | Flavor::Shared => 0,
        }
    }

    fn list_offset(&self, member: usize) -> usize {
        (self.members * self.stride()).next_multiple_of(LINE_BYTES) + member * self.list_bytes()
    }

    /// Bytes before the members' memory.
    pub fn bytes(&self) -> usize {
        self.list_offset(self.members)
    }
}

/// Where a node's range lies in this process.
enum Backing {
    /// In the node's segment.
    Shared(Mapping),
    /// In this process's heap: it shares memory with nobody.
    Own(#[expect(dead_code, reason = "owns the memory")] Vec<Line<[u8; LINE_BYTES]>>),
}

/// The control blocks of a node's members.
pub(super) struct Control {
    backing: Backing,
    base: NonNull<u8>,
    layout: Layout,
    /// The range in the node's segment, if this process is to release it.
    range: Option<SharedRange>,
}

// SAFETY: all that is reached through `base` are atomics, or memory of the program's.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// The blocks at the beginning of a range that all members map. `range`: this process releases
    /// it in the end.
    pub fn shared(mapping: Mapping, layout: Layout, range: Option<SharedRange>) -> Result<Control> {
        let base = NonNull::new(mapping.base()).filter(|_| mapping.len() >= layout.bytes());
        let Some(base) = base else {
            let (len, needed) = (mapping.len(), layout.bytes());
            return Err(err!(
                Intern,
                "the window's shared memory has {len} bytes, but needs {needed}"
            ));
        };
        Ok(Control {
            backing: Backing::Shared(mapping),
            base,
            layout,
            range,
        })
    }

    /// Blocks for this process alone.
    pub fn own(layout: Layout) -> Control {
        let lines = layout.bytes().div_ceil(LINE_BYTES);
        let mut memory: Vec<_> = (0..lines).map(|_| Line([0; LINE_BYTES])).collect();
        let base = NonNull::from(&mut *memory).cast();
        Control {
            backing: Backing::Own(memory),
            base,
            layout,
            range: None,
        }
    }

    /// The range that this process is to release when no member uses it any more.
    pub fn range(&self) -> Option<SharedRange> {
        self.range
    }

    /// The block of `member`.
    #[inline]
    pub fn block(&self, member: usize) -> &Block {
        debug_assert!(member < self.layout.members);
        // SAFETY: the range has a block for each member, at a cache line.
        unsafe { self.at(member * self.layout.stride()).cast().as_ref() }
    }

    /// Which members wait for the locks of `member`.
    pub fn wait_set(&self, member: usize) -> &WaitSet {
        WaitSet::new(self.words(member, 0))
    }

    /// Which members have posted to `member` what it has not started yet: a bit for each.
    pub fn posts(&self, member: usize) -> &[AtomicU64] {
        self.words(member, self.layout.set_bytes())
    }

    /// The regions of `member`. Dynamic windows only.
    pub fn regions(&self, member: usize) -> Option<&Regions> {
        if self.layout.flavor != Flavor::Dynamic {
            return None;
        }
        // SAFETY: a dynamic window's range has a list for each member, behind the blocks.
        Some(unsafe { self.at(self.layout.list_offset(member)).cast().as_ref() })
    }

    /// The inboxes of `member`. Windows of MPI_Win_create only.
    #[inline]
    pub fn inboxes(&self, member: usize) -> Option<&Inboxes> {
        if self.layout.flavor != Flavor::Create {
            return None;
        }
        debug_assert!(member < self.layout.members);
        // SAFETY: such a window's range has inboxes for each member, at a cache line behind the
        // blocks.
        Some(unsafe { self.at(self.layout.list_offset(member)).cast().as_ref() })
    }

    /// The byte at `offset` of a shared range. `None`: it is not shared, or not so long.
    pub fn memory(&self, offset: u64) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        match &self.backing {
            Backing::Shared(mapping) if offset <= mapping.len() => {
                Some(self.base.as_ptr().wrapping_add(offset))
            }
            _ => None,
        }
    }

    fn words(&self, member: usize, offset: usize) -> &[AtomicU64] {
        let at = member * self.layout.stride() + size_of::<Block>() + offset;
        let len = WaitSet::words(self.layout.members);
        // SAFETY: behind each block are two sets of so many words.
        unsafe { std::slice::from_raw_parts(self.at(at).cast().as_ptr(), len) }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.layout.bytes());
        // SAFETY: callers pass offsets in the range.
        unsafe { self.base.add(offset) }
    }
}

/// Which member of its node each rank is.
#[derive(Clone, Debug)]
pub(super) enum NodeMembers {
    /// All ranks of the window are on the node: rank r is member r.
    All(u32),
    /// The ranks of the node's members, rising.
    Some(Arc<[u32]>),
}

impl NodeMembers {
    /// Of a window with `size` ranks, those in `ranks`, which rise.
    pub fn new(ranks: Vec<u32>, size: u32) -> NodeMembers {
        if ranks.len() == size as usize {
            NodeMembers::All(size)
        } else {
            NodeMembers::Some(ranks.into())
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            NodeMembers::All(size) => *size as usize,
            NodeMembers::Some(ranks) => ranks.len(),
        }
    }

    /// The member that `rank` is. `None`: it is on another node.
    pub fn member(&self, rank: u32) -> Option<usize> {
        match self {
            NodeMembers::All(size) => (rank < *size).then_some(rank as usize),
            NodeMembers::Some(ranks) => ranks.binary_search(&rank).ok(),
        }
    }

    /// The rank of a member.
    pub fn rank(&self, member: usize) -> u32 {
        match self {
            NodeMembers::All(_) => member as u32,
            NodeMembers::Some(ranks) => ranks[member],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_sets_and_regions_do_not_overlap() {
        for (members, flavor) in [
            (1, Flavor::Allocate),
            (3, Flavor::Dynamic),
            (65, Flavor::Create),
            (130, Flavor::Dynamic),
        ] {
            let control = Control::own(Layout::new(members, flavor));
            let mut ranges = Vec::new();
            let mut note = |at: usize, len: usize| ranges.push((at, at + len));
            for m in 0..members {
                let block: *const Block = control.block(m);
                assert_eq!(block.addr() % LINE_BYTES, 0);
                note(block.addr(), size_of::<Block>());
                let posts = control.posts(m);
                assert_eq!(posts.len(), members.div_ceil(64));
                note(posts.as_ptr().addr(), size_of_val(posts));
                let waiting: *const WaitSet = control.wait_set(m);
                note(waiting.cast::<u8>().addr(), 8 * members.div_ceil(64));
                if let Some(inboxes) = control.inboxes(m) {
                    note(std::ptr::from_ref(inboxes).addr(), size_of::<Inboxes>());
                }
                if let Some(regions) = control.regions(m) {
                    note(std::ptr::from_ref(regions).addr(), size_of::<Regions>());
                }
            }
            ranges.sort_unstable();
            for pair in ranges.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "{members} {flavor:?} {pair:x?}");
            }
            let end = control.base.as_ptr().addr() + control.layout.bytes();
            assert!(ranges.last().is_some_and(|last| last.1 <= end));
        }
    }

    #[test]
    fn a_region_is_found_by_any_part_of_it() {
        let control = Control::own(Layout::new(1, Flavor::Dynamic));
        let regions = control.regions(0).unwrap();
        assert_eq!(regions.find(0, 0), None);
        let (a, b) = (
            Region {
                base: 100,
                size: 50,
            },
            Region { base: 200, size: 8 },
        );
        regions.set(&[a, b]);
        assert_eq!(regions.all(), [a, b]);
        assert_eq!(regions.find(100, 50), Some(a));
        assert_eq!(regions.find(149, 1), Some(a));
        assert_eq!(regions.find(149, 2), None);
        assert_eq!(regions.find(99, 1), None);
        assert_eq!(regions.find(208, 0), Some(b));
        assert_eq!(regions.find(u64::MAX, 2), None);
        let between = Region {
            base: 150,
            size: 50,
        };
        regions.set(&[b, a, between]);
        assert_eq!(regions.find(100, 108), Some(a));
        assert_eq!(regions.find(160, 48), Some(between));
        assert_eq!(regions.find(160, 49), None);
        assert_eq!(regions.find(99, 10), None);
        regions.set(&[b]);
        assert_eq!(
            (regions.find(100, 1), regions.find(200, 8)),
            (None, Some(b))
        );
    }

    #[test]
    fn ranks_are_members_of_their_node() {
        let all = NodeMembers::new(vec![0, 1, 2], 3);
        assert_eq!(
            (all.member(2), all.member(3), all.len()),
            (Some(2), None, 3)
        );
        let some = NodeMembers::new(vec![1, 4], 6);
        assert_eq!(
            (some.member(4), some.member(2), some.rank(1)),
            (Some(1), None, 4)
        );
    }
}
