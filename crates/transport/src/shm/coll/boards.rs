//! The boards that a process has allocated, and those that it has mapped.

use super::counter_board::BOARDS_PER_RANK;
use std::collections::HashMap;

/// The boards that this process has allocated, and the addresses of its own and others' boards.
#[derive(Default)]
pub struct Boards {
    /// By number: members for which this process has allocated the board. 0: never allocated.
    pub members: [u32; BOARDS_PER_RANK as usize],
    /// By owner's local index and number: where the board is mapped.
    pub mapped: HashMap<(usize, u32), *mut u8>,
}

// SAFETY: the pointers are mappings that last as long as the process.
unsafe impl Send for Boards {}
