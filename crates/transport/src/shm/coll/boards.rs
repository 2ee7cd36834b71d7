//! Which board belongs to which group, and where boards are mapped.

use super::super::Waker;
use super::super::control::Control;
use super::counter_board::{BOARDS_PER_RANK, CounterBoard, board_bytes};
use super::flat_board::{FLAT_MAX_RANKS, FlatBoard};
use crate::shm::Shm;
use crate::shm::layout::{boards_offset, map};
use crate::{NodeCollectives, ProcId};
use std::collections::HashMap;

/// The boards that this process has allocated, and where it has mapped its own and others'.
#[derive(Default)]
pub(in crate::shm) struct Boards {
    /// Members that each of the own boards was allocated for; 0: never allocated.
    members: [u32; BOARDS_PER_RANK as usize],
    mapped: HashMap<(usize, u32), *mut u8>,
}

// SAFETY: the pointers are mappings that last as long as the process.
unsafe impl Send for Boards {}

impl Shm {
    /// Board `number` of local process `owner`, mapped.
    fn board_at(&mut self, owner: usize, number: u32) -> Option<*mut u8> {
        if let Some(&base) = self.boards.mapped.get(&(owner, number)) {
            return Some(base);
        }
        let n = self.locals.len() as u64;
        let at = boards_offset(n)
            + (owner as u64 * u64::from(BOARDS_PER_RANK) + u64::from(number)) * board_bytes(n);
        let base = map(
            &self.segment,
            self.segment.layout.wire_at + at,
            board_bytes(n) as usize,
        )
        .ok()?;
        self.boards.mapped.insert((owner, number), base);
        Some(base)
    }

    fn allocate(&mut self, members: u32) -> Option<u32> {
        if members == 0 || members as usize > self.locals.len() {
            return None;
        }
        for number in 0..BOARDS_PER_RANK {
            let lent = self.boards.members[number as usize];
            let base = self.board_at(self.me, number)?;
            // SAFETY: a mapped board; until it is announced to its members only its owner looks at
            // its counters.
            let board = unsafe { CounterBoard::new(base, members) };
            if lent == 0 || board.is_deserted(lent) {
                board.reset();
                if lent != 0 && members <= FLAT_MAX_RANKS {
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
        // SAFETY: as for a board; this process is member `me`.
        Some(unsafe { FlatBoard::new(base, members, me) })
    }

    /// Board `number` of process `owner`, if there is one that has room for so many.
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
}
