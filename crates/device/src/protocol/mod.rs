//! How a message crosses: eager, rendezvous (RTS, CTS, DATA, FIN), speculative rendezvous, deferred
//! receives, zero copy, single copy, streams, and what becomes of them when a peer fails.

pub(crate) mod control;
pub(crate) mod deferred;
pub(crate) mod device_memory;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod select;
pub(crate) mod single_copy;
pub(crate) mod speculative;
pub(crate) mod stream;
pub(crate) mod zero_copy;
