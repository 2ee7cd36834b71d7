//! Messages that wait for room on their transport.

pub(crate) mod send_queue;
