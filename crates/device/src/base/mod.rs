//! What all other folders use: match keys, buffers, requests, headers of active messages, counters.

pub(crate) mod buffer;
pub(crate) mod counters;
pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod message;
pub(crate) mod path;
pub(crate) mod request;
