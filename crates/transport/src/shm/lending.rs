//! Which board is lent to whom, and where boards are mapped.

use super::board::{BOARDS, Board, board_len};
use super::round::{FEW, Round};
use super::{Shm, boards_at, map};
use crate::ProcId;
use std::collections::HashMap;

/// The boards that this process lends, and where it has mapped its own and others'.
#[derive(Default)]
pub(super) struct Boards {
    /// Members that each of the own boards was lent to; 0: never lent.
    lent: [u32; BOARDS as usize],
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
        let at =
            boards_at(n) + (owner as u64 * u64::from(BOARDS) + u64::from(number)) * board_len(n);
        let base = map(
            &self.segment,
            self.segment.layout.wire_at + at,
            board_len(n) as usize,
        )
        .ok()?;
        self.boards.mapped.insert((owner, number), base);
        Some(base)
    }

    pub(super) fn lend(&mut self, members: u32) -> Option<u32> {
        if members == 0 || members as usize > self.locals.len() {
            return None;
        }
        for number in 0..BOARDS {
            let lent = self.boards.lent[number as usize];
            let base = self.board_at(self.me, number)?;
            // SAFETY: a mapped board; until it is announced to its members only its owner looks at
            // its counters.
            let board = unsafe { Board::new(base, members) };
            if lent == 0 || board.is_deserted(lent) {
                board.reset();
                if lent != 0 && members <= FEW {
                    // SAFETY: the same memory, which nobody else uses yet. As long as it was never
                    // lent it is all zeros.
                    unsafe { Round::new(base, members, 0) }.reset();
                }
                self.boards.lent[number as usize] = members;
                return Some(number);
            }
        }
        None
    }

    pub(super) fn view_board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<Board> {
        let base = self.lent(owner, number, members)?;
        // SAFETY: a mapped board with slots for all local processes, lent by its owner to these
        // members.
        Some(unsafe { Board::new(base, members) })
    }

    pub(super) fn view_round(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<Round> {
        if members > FEW {
            return None;
        }
        let base = self.lent(owner, number, members)?;
        // SAFETY: as for a board; this process is member `me`.
        Some(unsafe { Round::new(base, members, me) })
    }

    /// Board `number` of process `owner`, if there is one that has room for so many.
    fn lent(&mut self, owner: ProcId, number: u32, members: u32) -> Option<*mut u8> {
        if number >= BOARDS || members as usize > self.locals.len() {
            return None;
        }
        let owner = self.index(owner)?;
        self.board_at(owner, number)
    }
}
