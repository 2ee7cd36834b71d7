//! Windows: memory that other processes access by one-sided operations (MPI 5.0 chapter 12).
//!
//! ```text
//! create, memory, hints    MPI_Win_create … MPI_Win_free; dynamic: attach and detach
//! fence, active, passive   synchronisation; epoch: what is open; control: locks and counters
//! transfer, accumulate     operations, by the way in which the target is reached (target):
//!                            mapped    loads, stores and CPU atomics
//!                            peer      process_vm_readv(2), process_vm_writev(2); put_queue,
//!                                      short_update, shared_copy
//!                            remote    packets to the target's service
//! fast_path                operations on a few bytes that are mapped, and a flush behind them
//! ```
//!
//! Members of a node find each other's locks and counters in shared memory, so that no target has
//! to help. Packets are only for members on other nodes, and where the system refuses access to a
//! peer's memory. The memory model is MPI_WIN_UNIFIED.

mod accumulate;
mod active;
mod control;
mod create;
mod dynamic;
mod epoch;
mod fast_path;
mod fence;
mod free;
mod hints;
mod inbox;
mod memory;
mod passive;
mod put_queue;
mod remote;
mod shared_copy;
mod short_update;
mod target;
mod transfer;
mod transfer_queue;

pub use accumulate::Operands;
pub use create::NewWindow;
pub use fence::FenceAssertions;
pub use passive::LockType;

use crate::attr::Attributes;
use crate::device::{self, Describe, Device, Offer, ProcId, WaitingFor};
use crate::state_lock::StateLock;
use crate::{Comm, Datatype, ErrhandlerSlot, Group, Identity, Result, err};
use control::{Block, Control, NodeMembers};
use epoch::Epochs;
use memory::Memory;
use put_queue::PutQueue;
use short_update::Offers;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use target::{Extents, Reach, Target, Targets};
use transfer_queue::TransferQueue;

/// How a window was made (MPI_WIN_CREATE_FLAVOR).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavor {
    /// MPI_Win_create: memory of the program.
    Create,
    /// MPI_Win_allocate.
    Allocate,
    /// MPI_Win_create_dynamic: memory that is attached later.
    Dynamic,
    /// MPI_Win_allocate_shared.
    Shared,
}

/// Values of predefined attributes, at addresses that the program gets. The abi layer knows the
/// numbers.
pub struct AttributeValues {
    /// MPI_WIN_SIZE.
    pub size: i64,
    /// MPI_WIN_DISP_UNIT.
    pub disp_unit: i32,
    /// MPI_WIN_CREATE_FLAVOR.
    pub flavor: i32,
    /// MPI_WIN_MODEL.
    pub model: i32,
}

/// The target buffer of an operation: a displacement in the memory of a rank, and the elements
/// there (MPI 5.0 §12.3.1).
#[derive(Clone, Copy)]
pub struct TargetBuffer<'a> {
    /// The target's rank in the window.
    pub rank: u32,
    /// Displacement, in the target's units. An address in a dynamic window.
    pub disp: i64,
    /// Elements.
    pub count: i64,
    /// Their type.
    pub datatype: &'a Arc<Datatype>,
}

/// A one-sided call: what it accesses at the target, and its form.
#[derive(Clone, Copy)]
struct RmaCall<'a> {
    target_buffer: &'a TargetBuffer<'a>,
    /// Its name, for messages.
    call: &'static str,
    /// It returns a request (MPI_Rput and others).
    wants_request: bool,
}

impl<'a> RmaCall<'a> {
    /// A call that returns no request.
    #[inline(always)]
    fn new(target_buffer: &'a TargetBuffer<'a>, call: &'static str) -> RmaCall<'a> {
        RmaCall {
            target_buffer,
            call,
            wants_request: false,
        }
    }

    /// A call that returns a request.
    #[inline(always)]
    fn with_request(target_buffer: &'a TargetBuffer<'a>, call: &'static str) -> RmaCall<'a> {
        RmaCall {
            wants_request: true,
            ..RmaCall::new(target_buffer, call)
        }
    }
}

/// A window.
pub struct Win {
    /// The handle.
    pub identity: Identity,
    /// Its error handler.
    pub errhandler: ErrhandlerSlot,
    /// Its cached attributes.
    pub attributes: Attributes,
    /// Its predefined attributes.
    pub attribute_values: OnceLock<AttributeValues>,
    /// A communicator of its own over its group.
    comm: Arc<Comm>,
    name: Mutex<Vec<u8>>,
    flavor: Flavor,
    hints: hints::Hints,
    /// This process's own memory.
    memory: Memory,
    control: Control,
    members: NodeMembers,
    /// Which member of its node this process is.
    member: usize,
    extents: Extents,
    targets: Targets,
    epochs: Epochs,
    /// Flushes up to the next that makes progress. At most 0: it does.
    flushes_left: AtomicI32,
    /// This process has added something to a target's memory since then.
    has_added: AtomicBool,
    remote: remote::State,
    /// What this process's card does in windows. Nothing, where there is no such card.
    card: Offer,
    /// By which the card notifies others of its posts and completions.
    slot: remote::Slot,
}

impl Win {
    /// How it was made.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// The address of this process's memory; null for a dynamic window.
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Bytes of this process's memory.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// This process's displacement unit, bytes.
    pub fn disp_unit(&self) -> i64 {
        self.memory.disp_unit()
    }

    /// The processes that have made it.
    pub fn group(&self) -> &Arc<Group> {
        &self.comm.group
    }

    /// The number of its ranks.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.targets.size()
    }

    /// This process's rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// Its name, without a final null. Empty if it has none.
    pub fn name(&self) -> Vec<u8> {
        let name = self.name.lock();
        name.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets its name.
    pub fn rename(&self, name: &[u8]) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_vec();
        self.comm.rename(&[b"window ", name].concat());
    }

    /// This process's control block.
    fn own_block(&self) -> &Block {
        self.control.block(self.member)
    }

    /// The target `rank`.
    ///
    /// Errors: Rank if there is no such rank.
    #[inline]
    fn target(&self, rank: u32) -> Result<&Target> {
        match self.targets.known(rank) {
            Some(target) => Ok(target),
            None => self.new_target(rank),
        }
    }

    #[cold]
    fn new_target(&self, rank: u32) -> Result<&Target> {
        if rank >= self.ranks() {
            return Err(err!(
                Rank,
                "the target's rank is {}, but the window has {}",
                rank as i32,
                epoch::ranks_text(self.ranks())
            ));
        }
        Ok(self.targets.get_or_make(rank, || self.make_target(rank)))
    }

    fn make_target(&self, rank: u32) -> Target {
        let process = self.comm.peer(rank);
        let member = self.members.member(rank);
        let own = rank == self.rank();
        let mut d = device::device();
        let mut target = Target {
            rank,
            process,
            base: std::ptr::null_mut(),
            size: 0,
            disp_unit: 1,
            reach: Reach::Remote,
            // Alone on its node, a process has all accesses to its memory made by its own threads.
            atomics: self.members.len() == 1,
            member,
            key: None,
            direct_size: 0,
            update_slot: None,
            offers: Offers::default(),
            puts: StateLock::new(PutQueue::default()),
            has_puts: Default::default(),
            transfers: StateLock::new(TransferQueue::new()),
            has_transfers: Default::default(),
            stored: Default::default(),
            access: Default::default(),
            pending: Mutex::default(),
            older: std::ptr::null(),
        };
        let Some(member) = member else {
            let extent = self.extents.of(rank);
            (target.size, target.disp_unit) = (extent.size, extent.disp_unit);
            target.key = extent.key;
            return target;
        };
        let block = self.control.block(member);
        target.size = block.size.load(Ordering::Acquire);
        target.disp_unit = block.disp_unit.load(Ordering::Acquire) as i64;
        let mapped = match self.flavor {
            Flavor::Allocate | Flavor::Shared => {
                self.control.memory(block.offset.load(Ordering::Acquire))
            }
            Flavor::Create | Flavor::Dynamic => None,
        };
        if own {
            (target.reach, target.base) = (Reach::Mapped, self.memory.base());
            target.atomics |= mapped.is_some();
        } else if let Some(base) = mapped {
            (target.reach, target.base, target.atomics) = (Reach::Mapped, base, true);
        } else {
            let base = block.base.load(Ordering::Acquire) as usize;
            target.base = std::ptr::without_provenance_mut(base);
            if let Some(memory) = d.peer_memory(process) {
                target.reach = Reach::Peer(memory);
                target.update_slot = d.update_slot(process);
            }
        }
        if target.reach == Reach::Mapped && self.flavor != Flavor::Dynamic {
            target.direct_size = target.size;
        }
        target
    }

    /// What a wait for `target` shows in mpiexec's report of a hang. `tag` says what it waits for.
    fn waiting_for(&self, process: ProcId, tag: i32) -> WaitingFor<'_> {
        WaitingFor {
            context: self.comm.context,
            peer: process as i32,
            tag,
            details: Some(self),
        }
    }

    /// As [`Win::waiting_for`], where several ranks are waited for.
    fn waiting_for_origins(&self, tag: i32) -> WaitingFor<'_> {
        WaitingFor {
            peer: ferry_job::PEER_SEVERAL,
            ..self.waiting_for(0, tag)
        }
    }

    /// Wakes a member of the node that waits for what has changed in shared memory.
    fn wake(&self, d: &mut Device, member: usize) {
        let process = self.comm.peer(self.members.rank(member));
        if process == d.me() {
            d.notify_sleepers();
        } else if let Some(waker) = d.waker(process) {
            waker.wake();
        } else {
            // Its arrival is all that it is for.
            d.send_active(process, Box::default());
        }
    }

    /// Wakes the members that wait for a lock of `member`.
    fn wake_waiting(&self, d: &mut Device, member: usize) {
        self.control
            .wait_set(member)
            .drain(|waiting| self.wake(d, waiting));
    }
}

impl Describe for Win {
    fn describe(&self, d: &mut Device, status: &ferry_job::RankStatus) {
        self.comm.describe(d, status);
    }
}

impl std::fmt::Debug for Win {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        f.debug_struct("Win")
            .field("name", &String::from_utf8_lossy(&name))
            .field("flavor", &self.flavor)
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .finish_non_exhaustive()
    }
}
