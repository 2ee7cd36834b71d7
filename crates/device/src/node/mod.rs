//! Boards in shared memory: collectives within a node use them instead of messages.

pub(crate) mod counter_board;
pub(crate) mod flat_board;
