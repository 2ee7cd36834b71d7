//! How a message crosses: eager, rendezvous (RTS, CTS, DATA, FIN), speculative rendezvous, deferred
//! receives, zero copy, single copy, streams, and what happens when a peer fails.
//!
//! Each protocol has a file with its private state, the `Worker` methods that send its messages,
//! and the `on_…` methods that receive them; `dispatch` calls the latter.

pub(crate) mod active;
pub(crate) mod batching;
pub(crate) mod control;
pub(crate) mod deferred;
pub(crate) mod device_memory;
mod dispatch;
mod eager;
pub(crate) mod early_cts;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod foreign_members;
#[cfg(test)]
mod fuzz;
mod offer;
mod offload;
mod prepost;
pub(crate) mod rendezvous;
pub(crate) mod select;
pub(crate) mod single_copy;
pub(crate) mod speculative;
mod stream;
pub(crate) mod withdrawable;
pub(crate) mod zero_copy;

pub(crate) use eager::SHORT_MAX_BYTES;
