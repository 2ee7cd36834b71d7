//! Messages that wait for room on their transport, and what decides when they go.

pub(crate) mod batch;
pub(crate) mod outbox;
pub(crate) mod outgoing;
pub(crate) mod send_slots;
