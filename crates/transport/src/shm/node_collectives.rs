//! The boards of shared-memory collectives: allocated for groups, mapped, and opened.

use super::Shm;
use super::coll::{BOARDS_PER_RANK, CounterBoard, FLAT_MAX_RANKS, FlatBoard, board_bytes};
use super::control::{Control, Waker};
use super::layout::{boards_offset, map};
use crate::{NodeCollectives, ProcId};

impl Shm {
    /// The address of board `number` of local process `owner`. Maps it if need be.
    fn board_at(&mut self, owner: usize, number: u32) -> Option<*mut u8> {
        if let Some(&base) = self.boards.mapped.get(&(owner, number)) {
            return Some(base);
        }
        let n = self.locals.len() as u64;
        let at = boards_offset(n)
            + (owner as u64 * u64::from(BOARDS_PER_RANK) + u64::from(number)) * board_bytes(n);
        let base = map(
            &self.segment,
            self.segment.layout.transport_offset + at,
            board_bytes(n) as usize,
        )
        .ok()?;
        self.boards.mapped.insert((owner, number), base);
        Some(base)
    }

    /// Allocates a board that was never allocated, or whose members have all left.
    fn allocate(&mut self, members: u32) -> Option<u32> {
        if members == 0 || members as usize > self.locals.len() {
            return None;
        }
        for number in 0..BOARDS_PER_RANK {
            let former = self.boards.members[number as usize];
            let base = self.board_at(self.me, number)?;
            // SAFETY: a mapped board; until its members are told of it only its owner uses its
            // counters.
            let board = unsafe { CounterBoard::new(base, members) };
            if former == 0 || board.is_deserted(former) {
                board.reset();
                if former != 0 && members <= FLAT_MAX_RANKS {
                    // SAFETY: the same memory, which nobody else uses yet. As long as it was never
                    // allocated it is all zeros.
                    unsafe { FlatBoard::new(base, members, 0) }.reset();
                }
                self.boards.members[number as usize] = members;
                return Some(number);
            }
        }
        None
    }

    fn open_counter_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
    ) -> Option<CounterBoard> {
        let base = self.allocated(owner, number, members)?;
        // SAFETY: a mapped board with slots for all local processes, allocated by its owner for
        // these members.
        Some(unsafe { CounterBoard::new(base, members) })
    }

    fn open_flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<FlatBoard> {
        if members > FLAT_MAX_RANKS {
            return None;
        }
        let base = self.allocated(owner, number, members)?;
        // SAFETY: as for a counter board; this process is member `me`.
        Some(unsafe { FlatBoard::new(base, members, me) })
    }

    /// The address of board `number` of process `owner`. `None`: there is none for this many
    /// members.
    fn allocated(&mut self, owner: ProcId, number: u32, members: u32) -> Option<*mut u8> {
        if number >= BOARDS_PER_RANK || members as usize > self.locals.len() {
            return None;
        }
        let owner = self.index(owner)?;
        self.board_at(owner, number)
    }
}

impl NodeCollectives for Shm {
    fn allocate_board(&mut self, members: u32) -> Option<u32> {
        self.allocate(members)
    }

    fn counter_board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<CounterBoard> {
        self.open_counter_board(owner, number, members)
    }

    fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<FlatBoard> {
        self.open_flat_board(owner, number, members, me)
    }

    fn waker(&self, peer: ProcId) -> Option<Waker> {
        let controls: &'static [Control] = self.controls;
        self.index(peer).map(|i| Waker(&controls[i]))
    }

    #[inline]
    fn wake_program(&self, peer: ProcId) {
        if let Some(i) = self.index(peer) {
            self.controls[i].wake_program_if_asleep();
        }
    }

    #[inline]
    fn wake(&self, peer: ProcId) {
        if let Some(i) = self.index(peer) {
            self.controls[i].wake_if_asleep();
        }
    }
}
