//! Messages of collectives that have come and that no call of this rank's will receive.

use super::message::{gave_up, mismatch};
use super::signature::{Form, Signature};
use super::tag::{CollTag, OwnCall, any_gave_up, any_signature, signature_of};
use crate::device::{self, Device, Envelope, Key, SendMode};
use crate::{Comm, Error, Kind, err};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

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
    if theirs.kind_of_gave_up().is_some() {
        return None;
    }
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
    if theirs.kind_of_gave_up().is_some() {
        return error;
    }
    let started = comm.collectives.load(Ordering::Relaxed);
    match comm.coll.history.own_call(message.key.tag, started) {
        OwnCall::Called(own) if own != theirs => {
            mismatch(message.key.source, theirs, own, comm.size()).on(comm)
        }
        _ => error,
    }
}

/// A message that a peer has sent in the call with `tag`, which this rank makes on a board: other
/// arguments have sent the peer another way. Or one of a peer that has given up, in this call or
/// one before, and will not use the board again.
pub(super) fn message_at_board(comm: &Comm, tag: CollTag, device: &Device) -> Option<Envelope> {
    let form = tag.signature().function().form();
    [any_gave_up(form), any_signature(tag.tag())]
        .into_iter()
        .find_map(|tags| device.unreceived_with(comm.context.collective(), tags))
}

/// Returns whether a peer has given up a call of this form at a board, and will not use it again.
pub(crate) fn has_peer_given_up(comm: &Comm, form: Form, device: &Device) -> bool {
    let message = device.unreceived_with(comm.context.collective(), any_gave_up(form));
    message.is_some()
}

/// The error of a call with `tag`, in which this rank has posted `len` bytes on a board and a peer
/// has sent a message. `None`: none has. The members are told that this rank gives up.
#[cold]
pub(crate) fn error_at_board(
    comm: &Arc<Comm>,
    tag: CollTag,
    len: usize,
    device: &mut Device,
) -> Option<Error> {
    let message = message_at_board(comm, tag, device)?;
    let (peer, theirs) = (message.source, signature_of(message.tag));
    let error = match theirs.kind_of_gave_up() {
        Some(kind) => gave_up(peer, kind, message.len, tag.signature(), comm.size()),
        None => disagreement(&message, len, tag.signature(), comm),
    };
    tell_all(comm, tag, (error.kind(), len), device);
    Some(error.on(comm))
}

/// What the messages of [`tell_all`] hold: their length is what they say.
static ZEROS: [AtomicU8; ZEROS_MAX] = [const { AtomicU8::new(0) }; ZEROS_MAX];
/// A choice: more than most calls have at a board, and than a signature as a number.
const ZEROS_MAX: usize = 16 << 10;
const _: () = assert!(ZEROS_MAX >= 1 << Signature::BITS);

/// Tells the other members that this rank gives up the call with `tag`, in which it takes part with
/// `len` bytes: this length, where lengths disagree, otherwise the call. Who goes by messages, and
/// waits for this rank, would wait for ever; so would who is at the board, and has not been sent a
/// message.
pub(super) fn tell_all(comm: &Comm, tag: CollTag, (kind, len): (Kind, usize), device: &mut Device) {
    let len = match kind {
        Kind::Truncate => len.min(ZEROS_MAX),
        _ => tag.signature().bits() as usize,
    };
    let (context, me) = (comm.context.collective(), comm.rank());
    for tag in tag.gave_up(kind) {
        for peer in (0..comm.size()).filter(|&peer| peer != me) {
            let key = Key {
                context,
                source: me,
                tag,
            };
            let zeros = device::Source::Bytes {
                ptr: ZEROS.as_ptr().cast(),
                len,
            };
            // SAFETY: nobody writes the zeros, and they stay.
            let sent = unsafe { device.send(comm.peer(peer), key, zeros, SendMode::Standard) };
            if let Some(request) = sent {
                device.detach(request);
            }
        }
    }
}

/// The error of a rank that has posted `len` bytes on a board in the call `own`, where a peer has
/// sent this message.
fn disagreement(message: &Envelope, len: usize, own: Signature, comm: &Comm) -> Error {
    let (peer, theirs) = (message.source, signature_of(message.tag));
    if theirs != own {
        return mismatch(peer, theirs, own, comm.size());
    }
    let sent = message.len;
    err!(
        Truncate,
        "rank {peer} sent {sent} bytes in {}, in which this rank takes part with {len}: do all \
         ranks give counts and datatypes that agree, and the same operation?",
        own.function()
    )
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
