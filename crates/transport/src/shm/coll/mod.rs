//! Shared-memory collectives: memory of the node in which the members of a group post small data.

mod boards;
mod counter_board;
mod flat_board;
mod unordered_flat_board;

// Both boards name it as `super::memory`, for the loom models.
use super::memory;

pub use super::memory::PHASES;
pub(super) use boards::Boards;
pub use counter_board::{Awaited, COUNT_PER_MEMBER, CounterBoard, SLOT_MAX_BYTES};
pub(super) use counter_board::{BOARDS_PER_RANK, board_bytes};
pub use flat_board::{FLAT_MAX_RANKS, FlatBoard, MARK_BITS, POST_MAX_BYTES, Post};
pub use unordered_flat_board::UnorderedFlatBoard;
