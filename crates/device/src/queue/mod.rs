//! Send queues: messages that wait for room on their transport, and when they are offered again.

pub(crate) mod batch;
pub(crate) mod outbox;
pub(crate) mod outgoing;
pub(crate) mod send_slots;
