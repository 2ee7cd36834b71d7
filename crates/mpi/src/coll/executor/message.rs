//! A collective's messages: to and from whom, by which key, and whether one is as it should be.

use super::tag::{self, Function, Number};
use crate::device::{self, Key, Pattern};
use crate::{Comm, Error, err};
use ferry_schedule::Peer;
use std::sync::Arc;

/// The peer's process, and the key of a message to it (or from it).
#[inline]
pub(super) fn address(comm: &Comm, number: Number, peer: Peer, sending: bool) -> (u32, Key) {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => {
            let source = if sending { local.rank() } else { r };
            (
                local.peer(r),
                Key {
                    context: local.context.collective(),
                    source,
                    tag: number.local_tag(),
                },
            )
        }
        (Peer::Local(r) | Peer::Remote(r), _) => {
            let source = if sending { comm.rank() } else { r };
            (
                comm.peer(r),
                Key {
                    context: comm.context.collective(),
                    source,
                    tag: number.tag(),
                },
            )
        }
    }
}

/// The peer's process, and what a receive of a message from it asks for.
#[inline]
pub(super) fn incoming(comm: &Comm, number: Number, peer: Peer) -> (u32, Pattern) {
    let (process, key) = address(comm, number, peer, false);
    let pattern = Pattern {
        context: key.context,
        source: Some(key.source),
        tag: tag::of_any_function(key.tag),
    };
    (process, pattern)
}

/// The peer's process.
pub(crate) fn process(comm: &Comm, peer: Peer) -> u32 {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => local.peer(r),
        (Peer::Local(r) | Peer::Remote(r), _) => comm.peer(r),
    }
}

/// Was a message as it should be, of so many bytes if it was received?
#[inline]
pub(crate) fn check(
    comm: &Arc<Comm>,
    function: Function,
    expected: Option<usize>,
    ended: &device::Completion,
) -> Option<Error> {
    let amiss = ended.fault.is_some()
        || expected.is_some_and(|e| {
            e as u64 != ended.received || Function::of_tag(ended.envelope.tag) != function
        });
    amiss.then(|| fault(comm, function, expected.unwrap_or(0), ended))
}

#[cold]
fn fault(
    comm: &Arc<Comm>,
    function: Function,
    expected: usize,
    ended: &device::Completion,
) -> Error {
    let (source, sent) = (ended.envelope.source, ended.envelope.len);
    let e = match ended.fault {
        Some(device::Fault::Transport) => Error::new(
            crate::Kind::Other,
            device::last_failure().unwrap_or_else(|| device::Fault::Transport.to_string()),
        ),
        _ if Function::of_tag(ended.envelope.tag) != function => err!(
            Other,
            "rank {source} is in {} where this rank is in {function}: all ranks must call the same collectives in the same order",
            Function::of_tag(ended.envelope.tag)
        ),
        _ => err!(
            Truncate,
            "rank {source} sent {sent} bytes in this collective, but {expected} were expected of it: do all ranks give the same root, and counts and datatypes that agree?"
        ),
    };
    e.on(comm)
}
