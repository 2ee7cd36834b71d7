//! Messages of collectives that have come and that no call of this rank's will receive.

use super::message::mismatch;
use super::signature::Signature;
use super::tag::{CollTag, OwnCall, any_signature, signature_of};
use crate::device::{self, Device, Envelope};
use crate::{Comm, Error, Kind, err};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The error of the first message of a collective on `comm` that has come and was not received.
///
/// A collective receives all that its members send in it. What is left when no call is under way
/// comes from a rank that made another call here (MPI 5.0 §6.1). The message was sent at once, so
/// that its sender may have gone on.
pub(crate) fn unreceived_error(comm: &Arc<Comm>, device: &mut Device) -> Option<Error> {
    let of = |c: &Arc<Comm>| Some((c.clone(), device.unreceived(c.context.collective())?));
    let (within, message) = [Some(comm), comm.local.as_ref()]
        .into_iter()
        .flatten()
        .find_map(of)?;
    let size = within.size();
    let (peer, theirs) = (message.key.source, signature_of(message.key.tag));
    let started = within.collectives.load(Ordering::Relaxed);
    let own = match within.coll.history.own_call(message.key.tag, started) {
        OwnCall::Called(own) if own != theirs => {
            format!("where this rank called {}", own.text(size))
        }
        OwnCall::Called(_) => "which its call of that function did not receive".to_owned(),
        OwnCall::NotCalled => not_called(&within),
        OwnCall::Forgotten => "where this rank called another collective".to_owned(),
    };
    let (len, theirs) = (message.len, theirs.text(size));
    let e = err!(
        Other,
        "rank {peer} sent {len} bytes in {theirs}, {own}: {SAME_ORDER}"
    );
    Some(e.on(comm))
}

/// The error of a call on `comm` that has ended: `error`, or the mismatch that may be its cause. A
/// rank that ended its own call at once may have left the job before this rank could send to it.
#[cold]
pub(super) fn explain(comm: &Arc<Comm>, error: Error) -> Error {
    if error.kind() != Kind::Other {
        return error;
    }
    let mut d = device::device();
    let Some(message) = d.unreceived(comm.context.collective()) else {
        return error;
    };
    let theirs = signature_of(message.key.tag);
    let started = comm.collectives.load(Ordering::Relaxed);
    match comm.coll.history.own_call(message.key.tag, started) {
        OwnCall::Called(own) if own != theirs => {
            mismatch(message.key.source, theirs, own, comm.size()).on(comm)
        }
        _ => error,
    }
}

/// A message that a peer has sent in the call with `tag`, which this rank makes on a board: other
/// arguments have sent the peer another way.
pub(super) fn message_at_board(comm: &Comm, tag: CollTag, device: &Device) -> Option<Envelope> {
    device.unreceived_with(comm.context.collective(), any_signature(tag.tag()))
}

/// The error of a call with `tag`, in which this rank has posted `len` bytes on a board and a peer
/// has sent a message. `None`: none has.
#[cold]
pub(crate) fn error_at_board(
    comm: &Arc<Comm>,
    tag: CollTag,
    len: usize,
    device: &Device,
) -> Option<Error> {
    let message = message_at_board(comm, tag, device)?;
    let (peer, theirs, own) = (message.source, signature_of(message.tag), tag.signature());
    if theirs != own {
        return Some(mismatch(peer, theirs, own, comm.size()).on(comm));
    }
    let sent = message.len;
    let e = err!(
        Truncate,
        "rank {peer} sent {sent} bytes in {}, in which this rank takes part with {len}: do all \
         ranks give counts and datatypes that agree, and the same operation?",
        own.function()
    );
    Some(e.on(comm))
}

const SAME_ORDER: &str = "all ranks must call the same collectives in the same order";

/// The error of a rank `peer` that has made a call which this rank has not made.
pub(crate) fn call_ahead(comm: &Comm, peer: u32, theirs: Signature) -> Error {
    let (theirs, own) = (theirs.text(comm.size()), not_called(comm));
    err!(Other, "rank {peer} is in {theirs}, {own}: {SAME_ORDER}")
}

fn not_called(comm: &Comm) -> String {
    let last = comm
        .coll
        .history
        .last(comm.collectives.load(Ordering::Relaxed));
    let last = last.map(|last| last.text(comm.size()));
    let last = last.map_or("it has called none here".to_owned(), |last| {
        format!("its last one here is {last}")
    });
    format!("which this rank did not call ({last})")
}
