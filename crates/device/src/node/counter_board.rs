//! Counter boards: a group of many processes of one node exchanges small data in shared memory.
//!
//! [`CounterBoardGroup`] has the board's slots, the waits and the wakeups. The collectives say what
//! the members do in a phase. Blocking ones go through the phases one after the other. Others name
//! the phase, can be in several, and never wait here.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use crate::progress::wait::{WaitingFor, wait_for_memory};
use ferry_transport::shm::{COUNT_PER_MEMBER, CounterBoard};

pub use ferry_transport::shm::{Awaited, PHASES, SLOT_MAX_BYTES};

/// One process's part in the exchanges of a group.
pub struct CounterBoardGroup {
    board: CounterBoard,
    members: Vec<ProcId>,
    me: u32,
    phase: u64,
    /// A member's progress thread is woken as well as its program.
    wakes_threads: bool,
}

impl Device {
    /// Allocates a board of this process for a group of `members` processes, itself included.
    /// Returns the number for [`Device::counter_board`] on all members. `None`: no board is free,
    /// or the node has none.
    pub fn allocate_board(&mut self, members: u32) -> Option<u32> {
        self.worker.transports.allocate_board(members)
    }

    /// Joins the group `members`, as `members[me]`, on the board `number` that process `owner` has
    /// allocated. `None`: this process cannot map the board.
    pub fn counter_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: Vec<ProcId>,
        me: u32,
    ) -> Option<CounterBoardGroup> {
        let board = self
            .worker
            .transports
            .counter_board(owner, number, members.len() as u32)?;
        Some(CounterBoardGroup {
            board,
            members,
            me,
            phase: 0,
            wakes_threads: false,
        })
    }
}

impl Drop for CounterBoardGroup {
    fn drop(&mut self) {
        self.board.leave();
    }
}

impl CounterBoardGroup {
    /// The number of members.
    #[inline]
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// The same group for collectives in the background, which progress threads advance as well.
    pub fn in_background(mut self) -> CounterBoardGroup {
        self.wakes_threads = true;
        self
    }

    /// Begins the next phase. Blocks until the slots may be written to.
    #[inline]
    pub fn begin(&mut self, what: &WaitingFor<'_>) {
        self.phase += 1;
        self.wait(what, Awaited::Part, |b, phase, _| b.progress(phase) >= 0);
    }

    /// Begins a run of `count` phases, at most [`PHASES`], in which all members post at once.
    /// Blocks until their slots may be written to. Until [`CounterBoardGroup::end_run`] the first
    /// is the current phase: a member posts in it when it has written all its slots of the run,
    /// and when it is open, all of them may be read.
    pub fn begin_run(&mut self, count: u64, what: &WaitingFor<'_>) {
        debug_assert!(count <= PHASES as u64);
        self.phase += 1;
        self.wait(what, Awaited::Part, |b, first, _| b.are_free(first, count));
    }

    /// This member has read in the run of `count` phases. It does not need their slots any more.
    pub fn end_run(&mut self, d: &Device, count: u64) {
        let progress = self.board.end_run(self.phase, count);
        self.wake_for_part(d, progress);
        self.phase += count - 1;
    }

    /// Member `i`'s slot: `stride` bytes, a multiple of 64, equal on all members. All slots
    /// together have [`CounterBoardGroup::size`] · [`SLOT_MAX_BYTES`] bytes.
    #[inline]
    pub fn slot(&self, i: u32, stride: usize) -> *mut u8 {
        self.board.slot(self.phase, i, stride)
    }

    /// As [`CounterBoardGroup::slot`], in an earlier `phase`. The first phase is 1. A member that
    /// is ahead may write to the slot for a later phase.
    pub fn slot_in(&self, phase: u64, i: u32, stride: usize) -> *mut u8 {
        self.board.slot(phase, i, stride)
    }

    /// This member has posted. Returns true for the last member, which must then
    /// [open](CounterBoardGroup::open) the phase. Each member that posts calls
    /// [`CounterBoardGroup::read`] when it has read.
    #[inline]
    pub fn post(&self) -> bool {
        self.post_in(self.phase)
    }

    /// Opens the phase: the members may read what all have posted.
    #[inline]
    pub fn open(&self, d: &Device) {
        self.open_phase(d, self.phase);
    }

    /// Blocks until the phase is open. Returns false if it never will be: a member is in another
    /// call ([`Describe::is_hopeless`](crate::Describe)).
    #[inline]
    pub fn wait_open(&self, what: &WaitingFor<'_>) -> bool {
        let mut open = true;
        self.wait(what, Awaited::Data, |b, phase, d| {
            open = b.is_open(phase);
            open || d.is_some_and(|d| what.is_hopeless(d))
        });
        open
    }

    /// This member has [posted](CounterBoardGroup::post) and has read. It does not need the slots
    /// of this phase any more.
    #[inline]
    pub fn read(&self, d: &Device) {
        self.read_in(d, self.phase);
    }

    /// This member is done with this phase, without [post](CounterBoardGroup::post): it has read,
    /// or it has written what another member reads.
    #[inline]
    pub fn done(&self, d: &Device) {
        self.done_in(d, self.phase);
    }

    /// Returns whether the slots of a phase may be written to.
    #[inline]
    pub fn is_free(&self, phase: u64) -> bool {
        self.board.progress(phase) >= 0
    }

    /// As [`CounterBoardGroup::post`], in this phase.
    #[inline]
    pub fn post_in(&self, phase: u64) -> bool {
        self.board.add(phase, 1) == i64::from(self.size())
    }

    /// As [`CounterBoardGroup::open`], of this phase.
    #[inline]
    pub fn open_phase(&self, d: &Device, phase: u64) {
        self.board.open(phase);
        self.wake(d, Awaited::Data);
    }

    /// Returns whether a phase is open.
    #[inline]
    pub fn is_open(&self, phase: u64) -> bool {
        self.board.is_open(phase)
    }

    /// As [`CounterBoardGroup::read`], in this phase.
    #[inline]
    pub fn read_in(&self, d: &Device, phase: u64) {
        self.add(d, phase, 1);
    }

    /// As [`CounterBoardGroup::done`], with this phase.
    #[inline]
    pub fn done_in(&self, d: &Device, phase: u64) {
        self.add(d, phase, COUNT_PER_MEMBER);
    }

    /// From now on this member is woken, if it sleeps, when there may be what it waits for. To be
    /// called before it looks for the last time.
    pub fn begin_wait(&self, d: &mut Device, what: Awaited) {
        self.board.begin_wait(what);
        d.memory_waits += 1;
    }

    /// Ends [`CounterBoardGroup::begin_wait`].
    pub fn end_wait(&self, d: &mut Device, what: Awaited) {
        self.board.end_wait(what);
        d.memory_waits -= 1;
    }

    #[inline]
    fn add(&self, d: &Device, phase: u64, count: u64) {
        let progress = self.board.add(phase, count);
        self.wake_for_part(d, progress);
    }

    /// Wakes who may wait for a part of the board, if all are done with its phase.
    #[inline]
    fn wake_for_part(&self, d: &Device, progress: i64) {
        if progress == COUNT_PER_MEMBER as i64 * i64::from(self.size()) {
            self.wake(d, Awaited::Part);
        }
    }

    #[inline]
    fn wake(&self, d: &Device, what: Awaited) {
        if self.board.has_waiting(what) {
            self.wake_all(d);
        }
    }

    fn wake_all(&self, d: &Device) {
        for (i, &process) in self.members.iter().enumerate() {
            if i as u32 == self.me {
                continue;
            }
            match self.wakes_threads {
                true => d.worker.transports.wake(process),
                false => d.worker.transports.wake_program(process),
            }
        }
    }

    #[inline]
    fn wait(
        &self,
        what: &WaitingFor<'_>,
        awaited: Awaited,
        mut until: impl FnMut(&CounterBoard, u64, Option<&Device>) -> bool,
    ) {
        if until(&self.board, self.phase, None) {
            return;
        }
        self.board.begin_wait(awaited);
        wait_for_memory(what, |d| until(&self.board, self.phase, Some(d)));
        self.board.end_wait(awaited);
    }
}
