//! Point-to-point communication (MPI 5.0 chapter 3).

mod buffered;
mod probe;
mod send_receive;

pub use buffered::{Attached, BufferPool, PoolOwner, iflush};
pub use probe::*;
pub use send_receive::*;

use crate::buffer::{sink, source};
use crate::device::{self, Device, Key, Pattern, ReqId, SendMode, Sink, WaitingFor};
use crate::request::{Active, Outcome, Request};
use crate::{Comm, Datatype, Error, Kind, Result, Session};
use std::sync::Arc;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dest {
    /// To this rank of the communicator's peers.
    Rank(u32),
    /// Nowhere (MPI_PROC_NULL).
    ProcNull,
}

/// The source of a receive or of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// This rank of the communicator's peers.
    Rank(u32),
    /// Any of them (MPI_ANY_SOURCE).
    Any,
    /// Nowhere (MPI_PROC_NULL).
    ProcNull,
}

/// When a send may complete (MPI 5.0 §3.4). Ready mode is handled as standard mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When the buffer may be used again.
    Standard,
    /// When the receive has matched.
    Synchronous,
    /// At once; the message is copied into the attached buffer.
    Buffered,
}

/// A user's buffer: address, count and datatype. The datatype is borrowed, because counting another
/// reference takes as long as much of a small send.
#[derive(Clone, Copy)]
pub struct Buffer<'a> {
    /// Address of element 0.
    pub address: *mut u8,
    /// Elements.
    pub count: i64,
    /// Their type.
    pub datatype: &'a Arc<Datatype>,
}

impl Buffer<'_> {
    /// A copy that owns its datatype, for persistent requests.
    pub fn to_persistent(&self) -> PersistentBuffer {
        PersistentBuffer {
            address: self.address,
            count: self.count,
            datatype: self.datatype.clone(),
        }
    }
}

/// A [`Buffer`] that owns a reference to its datatype.
pub struct PersistentBuffer {
    /// Address of element 0.
    pub address: *mut u8,
    /// Elements.
    pub count: i64,
    /// Their type.
    pub datatype: Arc<Datatype>,
}

// SAFETY: the address is the user's, lent to MPI until the operation completes.
unsafe impl Send for PersistentBuffer {}

impl PersistentBuffer {
    /// The buffer for one operation.
    #[inline]
    pub fn lend(&self) -> Buffer<'_> {
        Buffer {
            address: self.address,
            count: self.count,
            datatype: &self.datatype,
        }
    }
}

fn send_mode(mode: Mode) -> SendMode {
    if mode == Mode::Synchronous {
        SendMode::Synchronous
    } else {
        SendMode::Standard
    }
}

fn waiting_for(comm: &Comm, peer: i32, tag: Option<u32>) -> WaitingFor<'_> {
    WaitingFor {
        context: comm.context,
        peer,
        tag: tag.map_or(-1, |t| t as i32),
        details: Some(comm),
    }
}

#[inline]
fn key(comm: &Comm, tag: u32) -> Key {
    Key {
        context: comm.context,
        source: comm.rank(),
        tag,
    }
}

/// The device's match pattern for `from` and `tag`. `None` for MPI_PROC_NULL.
#[inline]
fn pattern(comm: &Comm, from: From, tag: Option<u32>) -> Option<Pattern> {
    let source = match from {
        From::Rank(r) => Some(r),
        From::Any => None,
        From::ProcNull => return None,
    };
    Some(Pattern {
        context: comm.context,
        source,
        tag: tag.into(),
    })
}

#[inline]
fn peer_of(comm: &Comm, from: From) -> i32 {
    match from {
        From::Rank(r) => comm.peer(r) as i32,
        _ => -1,
    }
}

/// Sends, and blocks until the buffer may be reused. In synchronous mode, also until the receive
/// has matched.
///
/// # Safety
/// The buffer must be readable as its count and datatype say.
#[inline]
pub unsafe fn send(
    comm: &Arc<Comm>,
    address: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: Dest,
    tag: u32,
    mode: Mode,
) -> Result<()> {
    let Dest::Rank(rank) = dest else {
        return Ok(());
    };
    if mode == Mode::Buffered {
        let buffer = Buffer {
            address: address.cast_mut(),
            count,
            datatype,
        };
        // SAFETY: the caller's promise.
        return unsafe { buffered::send(comm, buffer, rank, tag) };
    }
    let to = comm.peer(rank);
    let mut d = device::device();
    // SAFETY: the caller's promise; this call returns after completion only.
    let started = unsafe {
        d.send(
            to,
            key(comm, tag),
            source(address, count, datatype),
            send_mode(mode),
        )
    };
    match started {
        None => {
            d.release();
            Ok(())
        }
        Some(req) => {
            d.drop_within_call();
            let ended = device::wait(req, &waiting_for(comm, to as i32, Some(tag)));
            Outcome::of_send(&ended, comm).into_result().map(|_| ())
        }
    }
}

/// Starts a send. The request completes when the buffer may be reused. `None` if the send is
/// complete and needs no request of its own.
///
/// # Safety
/// The buffer must stay readable and unchanged until completion.
#[inline]
pub unsafe fn isend(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    dest: Dest,
    tag: u32,
    mode: Mode,
) -> Result<Option<Arc<Request>>> {
    if mode == Mode::Buffered {
        if let Dest::Rank(rank) = dest {
            // SAFETY: the caller's promise.
            unsafe { buffered::send(comm, buffer, rank, tag)? };
        }
        return Ok(None);
    }
    let mut d = device::device();
    let started = match dest {
        Dest::Rank(rank) => {
            let bytes = source(buffer.address, buffer.count, buffer.datatype);
            // SAFETY: the caller's promise.
            unsafe { d.send(comm.peer(rank), key(comm, tag), bytes, send_mode(mode)) }
        }
        Dest::ProcNull => None,
    };
    let request = match started {
        // With sessions the request must have its communicator, because requests of different
        // sessions are not completed together.
        None if !Session::opened() => None,
        None => {
            let sent = Active::Complete(Outcome::SENT);
            Some(Request::send(&mut d, comm, sent))
        }
        Some(req) => Some(Request::send(&mut d, comm, Active::Device(req))),
    };
    d.release();
    Ok(request)
}

/// # Safety
/// As for [`isend`].
unsafe fn start_send(
    d: &mut Device,
    comm: &Comm,
    buffer: Buffer<'_>,
    dest: Dest,
    tag: u32,
    mode: Mode,
) -> Active {
    let Dest::Rank(rank) = dest else {
        return Active::Complete(Outcome::SENT);
    };
    let bytes = source(buffer.address, buffer.count, buffer.datatype);
    // SAFETY: the caller's promise.
    match unsafe { d.send(comm.peer(rank), key(comm, tag), bytes, send_mode(mode)) } {
        None => Active::Complete(Outcome::SENT),
        Some(req) => Active::Device(req),
    }
}

/// A persistent send (MPI 5.0 §3.9): inactive until started.
///
/// # Safety
/// Whenever it is started, the buffer must be as for [`isend`].
pub unsafe fn send_init(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    dest: Dest,
    tag: u32,
    mode: Mode,
) -> Arc<Request> {
    let (in_comm, buffer) = (comm.clone(), buffer.to_persistent());
    Request::persistent(
        Some(comm.clone()),
        true,
        Box::new(move |d| match (mode, dest) {
            (Mode::Buffered, Dest::Rank(rank)) => {
                // SAFETY: the caller's promise, for each start.
                let sent = unsafe { buffered::send_with(d, &in_comm, buffer.lend(), rank, tag) };
                Active::Complete(match sent {
                    Ok(()) => Outcome::SENT,
                    Err(e) => Outcome {
                        error: Some(e),
                        ..Outcome::SENT
                    },
                })
            }
            // SAFETY: the caller's promise: at each start the buffer may be read until completion.
            _ => unsafe { start_send(d, &in_comm, buffer.lend(), dest, tag, mode) },
        }),
    )
}

/// Receives a message. Blocks until it has arrived.
///
/// # Safety
/// The buffer must be writable as its count and datatype say.
#[inline]
pub unsafe fn receive(
    comm: &Arc<Comm>,
    address: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    from: From,
    tag: Option<u32>,
) -> Result<Outcome> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok(Outcome::FROM_PROC_NULL);
    };
    let mut d = device::device();
    // SAFETY: the caller's promise; this call returns after completion only.
    let req = unsafe { post(&mut d, comm, from, pattern, sink(address, count, datatype)) };
    if d.is_complete(req) {
        // The message was here.
        let ended = d.take(req);
        d.release();
        return Ok(Outcome::of_receive(&ended, comm));
    }
    d.drop_within_call();
    let ended = device::wait(req, &waiting_for(comm, peer_of(comm, from), tag));
    Ok(Outcome::of_receive(&ended, comm))
}

/// Starts a receive.
///
/// # Safety
/// The buffer must stay writable, and untouched, until completion.
#[inline]
pub unsafe fn ireceive(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    from: From,
    tag: Option<u32>,
) -> Arc<Request> {
    let mut d = device::device();
    let request = match pattern(comm, from, tag) {
        None => Request::receive(&mut d, comm, Active::Complete(Outcome::FROM_PROC_NULL)),
        Some(p) => {
            let into = sink(buffer.address, buffer.count, buffer.datatype);
            // SAFETY: the caller's promise.
            let req = unsafe { post(&mut d, comm, from, p, into) };
            Request::receive(&mut d, comm, Active::Device(req))
        }
    };
    d.release();
    request
}

/// # Safety
/// As for [`ireceive`].
unsafe fn start_receive(
    d: &mut Device,
    comm: &Comm,
    buffer: Buffer<'_>,
    from: From,
    tag: Option<u32>,
) -> Active {
    match pattern(comm, from, tag) {
        None => Active::Complete(Outcome::FROM_PROC_NULL),
        // SAFETY: the caller's promise.
        Some(p) => Active::Device(unsafe {
            let into = sink(buffer.address, buffer.count, buffer.datatype);
            post(d, comm, from, p, into)
        }),
    }
}

/// Posts a receive in the device. The device gets the sender's number if the source is a rank.
///
/// # Safety
/// As for [`Device::receive`].
#[inline(always)]
unsafe fn post(d: &mut Device, comm: &Comm, from: From, pattern: Pattern, into: Sink) -> ReqId {
    match from {
        // SAFETY: the caller's promise.
        From::Rank(r) => unsafe { d.receive_from(comm.peer(r), pattern, into) },
        // SAFETY: the caller's promise, for any sender.
        _ => unsafe {
            let req = d.receive(pattern, into);
            if d.has_losses() {
                d.fail_if_untold(comm.context, req, |process| comm.has_peer(process));
            }
            req
        },
    }
}

/// Is the named sender lost, or, if any may send, one of them? A probe fails then. `since`: the
/// number of losses when it began; `u64::MAX` if it does not wait.
fn sender_is_lost(d: &mut Device, comm: &Comm, from: From, since: u64) -> bool {
    match from {
        From::Rank(r) => d.is_lost(comm.peer(r)),
        From::Any => d.take_untold_loss(comm.context, since, |process| comm.has_peer(process)),
        From::ProcNull => false,
    }
}

/// The error of a probe for a lost peer.
fn lost(comm: &Arc<Comm>) -> Error {
    Error::new(
        Kind::Other,
        device::last_failure().unwrap_or_else(|| "the peer is lost".to_owned()),
    )
    .on(comm)
}

/// A persistent receive: inactive until started.
///
/// # Safety
/// Whenever it is started, the buffer must be as for [`ireceive`].
pub unsafe fn receive_init(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    from: From,
    tag: Option<u32>,
) -> Arc<Request> {
    let (in_comm, buffer) = (comm.clone(), buffer.to_persistent());
    Request::persistent(
        Some(comm.clone()),
        false,
        // SAFETY: the caller's promise, for each start.
        Box::new(move |d| unsafe { start_receive(d, &in_comm, buffer.lend(), from, tag) }),
    )
}
