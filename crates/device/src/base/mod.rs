//! What all other parts use: match keys, buffers, requests, and the headers of active messages.

pub(crate) mod buffer;
pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod request;
