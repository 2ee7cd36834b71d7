//! A collective's messages: peer and key of each, and whether one is as it should be.

use super::signature::Signature;
use super::tag::{CollTag, any_signature, signature_of};
use crate::device::{self, Key, Pattern};
use crate::{Comm, Error, Kind, err};
use ferry_schedule::Peer;
use std::sync::Arc;

/// The peer's process, and the key of a message to it (or from it).
#[inline]
pub(super) fn key_for(comm: &Comm, tag: CollTag, peer: Peer, sending: bool) -> (u32, Key) {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => {
            let source = if sending { local.rank() } else { r };
            (
                local.peer(r),
                Key {
                    context: local.context.collective(),
                    source,
                    tag: tag.local_tag(),
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
                    tag: tag.tag(),
                },
            )
        }
    }
}

/// The peer's process, and what a receive of a message from it asks for.
#[inline]
pub(super) fn pattern_for(comm: &Comm, tag: CollTag, peer: Peer) -> (u32, Pattern) {
    let (process, key) = key_for(comm, tag, peer, false);
    let pattern = Pattern {
        context: key.context,
        source: Some(key.source),
        tag: any_signature(key.tag),
    };
    (process, pattern)
}

/// The peer's process.
pub(crate) fn process_of(comm: &Comm, peer: Peer) -> u32 {
    match (peer, &comm.local) {
        (Peer::Local(r), Some(local)) => local.peer(r),
        (Peer::Local(r) | Peer::Remote(r), _) => comm.peer(r),
    }
}

/// The error of a message that did not end as it should. `expected`: the bytes that a receive must
/// have got; `None` for a send.
#[inline]
pub(crate) fn check_message(
    comm: &Arc<Comm>,
    signature: Signature,
    expected: Option<usize>,
    ended: &device::Completion,
) -> Option<Error> {
    let wrong = ended.fault.is_some()
        || expected.is_some_and(|e| {
            e as u64 != ended.received || signature_of(ended.envelope.tag) != signature
        });
    wrong.then(|| message_error(comm, signature, expected.unwrap_or(0), ended))
}

#[cold]
fn message_error(
    comm: &Arc<Comm>,
    signature: Signature,
    expected: usize,
    ended: &device::Completion,
) -> Error {
    let (source, sent) = (ended.envelope.source, ended.envelope.len);
    let theirs = signature_of(ended.envelope.tag);
    let e = match ended.fault {
        Some(device::Fault::Transport) => Error::new(
            Kind::Other,
            device::last_failure().unwrap_or_else(|| device::Fault::Transport.to_string()),
        ),
        _ if let Some(kind) = theirs.kind_of_gave_up() => {
            gave_up(source, kind, sent, signature, comm.size())
        }
        _ if theirs != signature => mismatch(source, theirs, signature, comm.size()),
        _ => err!(
            Truncate,
            "rank {source} sent {sent} bytes in {}, but {expected} were expected of \
             it: do all ranks give the same root, and counts and datatypes that agree?",
            signature.function()
        ),
    };
    e.on(comm)
}

/// Returns whether a receive has got what a rank sends that will send nothing more in this call.
#[cold]
pub(super) fn has_given_up(ended: &device::Completion) -> bool {
    signature_of(ended.envelope.tag).kind_of_gave_up().is_some()
}

/// Rank `peer` has given up, since the members disagree in this call or one before. The `len` of
/// its message is what it [says](super::unreceived::tell_all).
#[cold]
pub(super) fn gave_up(peer: u32, kind: Kind, len: u64, own: Signature, size: u32) -> Error {
    if kind != Kind::Truncate {
        return mismatch(peer, Signature::from_bits(len as u32), own, size);
    }
    let own = own.function();
    err!(
        Truncate,
        "rank {peer} takes part in {own} with {len} bytes, and has found that others do with \
         another length: do all ranks give counts and datatypes that agree, and the same operation?"
    )
}

/// Rank `peer` of a communicator of `size` ranks is in another call than this rank.
#[cold]
pub(crate) fn mismatch(peer: u32, theirs: Signature, own: Signature, size: u32) -> Error {
    let (theirs, own) = (theirs.text(size), own.text(size));
    err!(
        Other,
        "rank {peer} is in {theirs} where this rank is in {own}: all ranks must call the same \
         collectives in the same order"
    )
}
