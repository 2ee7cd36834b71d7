//! Making and freeing windows (MPI 5.0 §12.2).
//!
//! ```text
//! 1. rank 0 gathers the sizes and displacement units of all ranks
//! 2. rank 0 sends them, with a context for the window's own communicator
//! 3. the first rank of each node allocates the node's range and sends where it lies
//! 4. each rank maps it and fills in its control block
//! 5. all ranks learn whether all have succeeded
//! ```
//!
//! On one node steps 1 to 3 are one small collective if all sizes and units are the same. Otherwise
//! steps 2 and 3 are one. `agree` has these steps; 4 and 5 are here.

mod agree;

use super::control::{Control, Layout, NodeMembers};
use super::epoch::Epochs;
use super::hints::{self, Hints};
use super::memory::{ALIGN_BYTES, Allocation, CardMemory, Memory};
use super::target::{Extent, Extents, Reach, Targets, node_members};
use super::{Flavor, Win, remote, short_update};
use crate::attr::Attributes;
use crate::coll::or_bits;
use crate::device::{self, Offer};
use crate::process::process;
use crate::{Comm, ErrhandlerSlot, Identity, Info, Result, err};
use agree::{Agreed, NodeRange};
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::sync::{Arc, Mutex, OnceLock};

/// Alignment of memory that is shorter than a page, bytes: a cache line.
const SMALL_ALIGN_BYTES: u64 = 64;

/// Bit of what a rank tells of a new window: it could not make it.
const FAILED: u64 = 1;
/// Bit of what a rank tells of a new window: it has no slot for notifications.
const NO_SLOT_HERE: u64 = 2;

/// The arguments of a call that makes a window.
pub struct NewWindow<'a> {
    /// Whose ranks the window has. An intracommunicator.
    pub comm: &'a Arc<Comm>,
    /// Hints.
    pub info: Option<&'a Info>,
    /// How it is made.
    pub flavor: Flavor,
    /// The program's memory, for MPI_Win_create.
    pub base: *mut u8,
    /// Bytes.
    pub size: i64,
    /// Bytes of a unit of displacement.
    pub disp_unit: i64,
}

impl Win {
    /// Makes a window. Collective; blocks until all ranks of the communicator call.
    ///
    /// Errors: Size, Disp, Base or InfoValue for a bad argument; RmaShared if
    /// MPI_Win_allocate_shared is called for ranks of several nodes; NoMem on all ranks if one has
    /// no memory.
    pub fn make(request: &NewWindow<'_>) -> Result<Arc<Win>> {
        request.check()?;
        let hints = Hints::new(request.info, request.flavor)?;
        let comm = request.comm;
        let local = process().node_ranks();
        let members = node_members(comm.size(), |rank| {
            local.binary_search(&comm.peer(rank)).is_ok()
        });
        let card = request.card_memory();
        let Agreed {
            context,
            slot,
            extents,
            range,
        } = request.agree(&members, card.as_ref())?;
        let own = Arc::new(comm.child(context, comm.group.clone()));
        // For reports of what ranks wait for.
        own.rename(b"a window");
        let node = match range {
            Some(node) => node,
            None => request.agree_on_node(&own, &members, &extents)?,
        };
        let members = if node.has_memory {
            members
        } else {
            NodeMembers::new(vec![comm.rank()], comm.size())
        };
        let placed = if request.flavor == Flavor::Shared && members.len() < comm.size() as usize {
            Err(err!(
                RmaShared,
                "{} of the communicator's {} ranks share memory with this one; \
                 MPI_Comm_split_type(MPI_COMM_TYPE_SHARED) makes a communicator of them",
                members.len(),
                comm.size()
            ))
        } else {
            request.place(&members, &extents, node, comm.rank(), card)
        };
        let made = placed.map(|(control, memory, offset)| {
            let member = members.member(comm.rank()).unwrap_or(0);
            control.block(member).fill_in(&memory, offset);
            Arc::new(Win {
                identity: Identity::none(),
                errhandler: ErrhandlerSlot::default(),
                attributes: Attributes::new(),
                attribute_values: OnceLock::new(),
                comm: own.clone(),
                name: Mutex::default(),
                flavor: request.flavor,
                hints,
                memory,
                control,
                members,
                member,
                extents,
                targets: Targets::new(comm.size()),
                epochs: Epochs::new(),
                flushes_left: AtomicI32::new(0),
                has_added: AtomicBool::new(false),
                remote: remote::State::default(),
                card: card_offer(),
                slot: remote::Slot::take(slot, context.0),
            })
        });
        if let Ok(win) = &made {
            remote::register(win);
            if win.has_short_updates() {
                device::device().begin_updates(short_update::serve);
            }
        }
        Win::agree_on_success(comm, made)
    }

    /// Step 5, and whether all have the slot. Also makes sure that all control blocks are filled in
    /// before any is read.
    fn agree_on_success(comm: &Arc<Comm>, made: Result<Arc<Win>>) -> Result<Arc<Win>> {
        let mine: u64 = match &made {
            Ok(win) if win.slot.is_some() => 0,
            Ok(_) => NO_SLOT_HERE,
            Err(_) => FAILED,
        };
        let mut all = [mine];
        or_bits(comm, &mut all)?;
        let [all] = all;
        if let Ok(win) = &made
            && all & NO_SLOT_HERE != 0
        {
            win.slot.give_up();
        }
        match made {
            Ok(win) if all & FAILED != 0 => {
                win.let_go();
                Err(err!(
                    NoMem,
                    "the window could not be made on another rank, which tells why"
                ))
            }
            made => made,
        }
    }

    /// Where the memory of `rank` lies in this process, with its size and displacement unit in
    /// bytes (MPI_Win_shared_query). `None` for MPI_PROC_NULL: the first rank whose memory is not
    /// empty. Null and 0 if it is empty or not in this process's reach.
    ///
    /// Errors: RmaFlavor for a dynamic window; Rank.
    pub fn shared_query(&self, rank: Option<u32>) -> Result<(*mut u8, u64, i64)> {
        if self.flavor == Flavor::Dynamic {
            return Err(err!(
                RmaFlavor,
                "the window was made by MPI_Win_create_dynamic: its memory is not shared"
            ));
        }
        let query = |rank: u32| {
            let target = self.target(rank)?;
            Ok(if target.reach == Reach::Mapped && target.size > 0 {
                (target.base, target.size, target.disp_unit)
            } else {
                (std::ptr::null_mut(), 0, target.disp_unit)
            })
        };
        let Some(rank) = rank else {
            for rank in 0..self.ranks() {
                if self.target(rank)?.size > 0 {
                    return query(rank);
                }
            }
            return Ok((std::ptr::null_mut(), 0, 1));
        };
        query(rank)
    }
}

impl NewWindow<'_> {
    /// Checks what does not depend on other ranks.
    fn check(&self) -> Result<()> {
        if self.size < 0 {
            return Err(err!(Size, "size is {}, which is negative", self.size));
        }
        if self.disp_unit <= 0 {
            return Err(err!(
                Disp,
                "disp_unit is {}, but has to be positive",
                self.disp_unit
            ));
        }
        if self.flavor == Flavor::Create && self.base.is_null() && self.size > 0 {
            return Err(err!(
                Base,
                "base is null, for a window of {} bytes",
                self.size
            ));
        }
        Ok(())
    }

    fn allocates(&self) -> bool {
        matches!(self.flavor, Flavor::Allocate | Flavor::Shared)
    }

    fn extent(&self, card: Option<&CardMemory>) -> Extent {
        Extent {
            size: self.size as u64,
            disp_unit: self.disp_unit,
            key: card.map(CardMemory::key),
        }
    }

    /// Memory that other ranks' cards reach: allocated for the window, or the program's. `None`:
    /// they reach none here.
    fn card_memory(&self) -> Option<CardMemory> {
        let asked = self.info.and_then(|info| info.text("ferry_memory"));
        if asked.is_some_and(|v| v.trim() == "system") {
            return None;
        }
        match self.flavor {
            Flavor::Allocate => CardMemory::allocate(self.size as usize),
            Flavor::Create => CardMemory::register(self.base, self.size as usize),
            Flavor::Dynamic | Flavor::Shared => None,
        }
    }

    fn noncontig(&self) -> bool {
        let asked = self.info.and_then(|info| info.text(hints::NONCONTIG));
        self.flavor != Flavor::Shared || asked.is_some_and(|v| v.trim() == "true")
    }

    /// Step 4: control blocks and memory of this process.
    fn place(
        &self,
        members: &NodeMembers,
        extents: &Extents,
        node: NodeRange,
        rank: u32,
        card: Option<CardMemory>,
    ) -> Result<(Control, Memory, u64)> {
        let layout = Layout::new(members.len(), self.flavor);
        let own = |base, size| Memory::at(base, size, self.disp_unit);
        let size = self.size as u64;
        if !node.has_memory {
            let control = Control::own(layout);
            let memory = match (self.flavor, card) {
                (_, Some(card)) => Memory::on_card(card, size, self.disp_unit),
                (Flavor::Create, None) => own(self.base, size),
                (Flavor::Dynamic, None) => Memory::none(),
                (Flavor::Allocate | Flavor::Shared, None) => {
                    let allocated = Allocation::new(size).ok_or_else(|| self.no_memory())?;
                    Memory::owned(allocated, size, self.disp_unit)
                }
            };
            return Ok((control, memory, u64::MAX));
        }
        let range = node.range.ok_or_else(|| self.no_memory())?;
        let shared = device::device().shared_memory();
        let mapping = shared.ok_or_else(|| self.no_memory())?.map(range);
        let mapping = mapping.map_err(|e| {
            err!(
                NoMem,
                "the window's shared memory, {} bytes, cannot be mapped: {e}",
                range.len
            )
        })?;
        let member = members.member(rank).unwrap_or(0);
        let releases = (member == 0).then_some(range);
        let control = Control::shared(mapping, layout, releases)?;
        let (memory, offset) = match self.flavor {
            Flavor::Create => (own(self.base, size), u64::MAX),
            Flavor::Dynamic => (Memory::none(), u64::MAX),
            Flavor::Allocate | Flavor::Shared => {
                let offset = offset_of(members, member, extents, node.noncontig, layout);
                let offset = offset.ok_or_else(|| self.no_memory())?;
                let base = control.memory(offset).ok_or_else(|| self.no_memory())?;
                (own(base, size), offset)
            }
        };
        Ok((control, memory, offset))
    }

    #[cold]
    fn no_memory(&self) -> crate::Error {
        err!(
            NoMem,
            "there is no memory for a window with {} bytes on this rank",
            self.size
        )
    }
}

/// Where the memory of `member` begins in the node's range, bytes. For the number of members: where
/// the last one's ends.
fn offset_of(
    members: &NodeMembers,
    member: usize,
    extents: &Extents,
    noncontig: bool,
    layout: Layout,
) -> Option<u64> {
    let page = ALIGN_BYTES as u64;
    let mut at = (layout.bytes() as u64).next_multiple_of(page);
    for before in 0..=member {
        if before == members.len() {
            break;
        }
        let size = extents.of(members.rank(before)).size;
        if noncontig {
            let align = if size < page { SMALL_ALIGN_BYTES } else { page };
            at = at.checked_next_multiple_of(align)?;
        }
        if before < member {
            at = at.checked_add(size)?;
        }
    }
    Some(at)
}

/// What this process's card offers.
fn card_offer() -> Offer {
    let mut d = device::device();
    d.remote_memory().map_or(Offer::default(), |m| m.offer())
}
