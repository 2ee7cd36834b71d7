//! What collectives within a node use instead of messages: boards in shared memory.

pub(crate) mod counter_board;
pub(crate) mod flat_board;
