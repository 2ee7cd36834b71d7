//! The names of the transports, and their indices in counters.

/// All transports, by their names in FERRY_TRANSPORTS and in reports. The last is that of a
/// modelled machine, which has it instead of shared memory, TCP and TIPC, and cannot be chosen.
pub const TRANSPORT_NAMES: [&str; 5] = ["self", "shm", "tcp", "tipc", "model"];

/// Shared memory's index in [`TRANSPORT_NAMES`].
pub const SHM_INDEX: usize = 1;

/// A transport's index in [`TRANSPORT_NAMES`].
pub(crate) fn index_of(name: &str) -> usize {
    TRANSPORT_NAMES.iter().position(|k| *k == name).unwrap_or(0)
}
