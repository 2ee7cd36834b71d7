//! What processes of a node share: boards for collectives, which use them instead of messages, and
//! locks and wait sets in memory of windows.

pub(crate) mod counter_board;
pub(crate) mod flat_board;
pub(crate) mod lock;
pub(crate) mod unordered_flat_board;
pub(crate) mod wait_set;
