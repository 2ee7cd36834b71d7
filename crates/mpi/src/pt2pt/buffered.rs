//! Buffered mode (MPI 5.0 §3.6): sends that complete at once, into a buffer that the program has
//! attached.
//!
//! The attached buffer is a budget. Each message is charged its size and a small overhead until it
//! has been sent. The bytes are kept in the library's own memory, so the program's buffer may have
//! any alignment.

use super::{Buffer, key};
use crate::buffer::{message_len, source};
use crate::device::{self, Device, ReqId, SendMode, Source, WaitingFor};
use crate::{Comm, Result, Session, err};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes charged for each message besides its data. A choice: it must be less than
/// MPI_BSEND_OVERHEAD.
const OVERHEAD_BYTES: u64 = 64;

/// An attached buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// A buffer of the program.
    User {
        /// Its address, returned by detach.
        address: usize,
        /// Its size in bytes.
        len: u64,
    },
    /// MPI_BUFFER_AUTOMATIC: unlimited.
    Automatic,
}

impl Attached {
    /// No buffer: 0 bytes at address 0.
    pub const NOTHING: Attached = Attached::User { address: 0, len: 0 };
}

/// The buffered messages of the process, of a communicator or of a session.
#[derive(Debug, Default)]
pub struct BufferPool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    attached: Option<Attached>,
    pending: Vec<(ReqId, u64)>,
}

/// The buffer attached to the process (MPI_Buffer_attach).
static PROCESS: BufferPool = BufferPool::new();

impl BufferPool {
    /// A pool with nothing attached.
    pub const fn new() -> BufferPool {
        BufferPool {
            state: Mutex::new(State {
                attached: None,
                pending: Vec::new(),
            }),
        }
    }

    /// The pool of the process.
    pub fn of_process() -> &'static BufferPool {
        &PROCESS
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is a buffer attached?
    pub fn is_attached(&self) -> bool {
        self.state().attached.is_some()
    }

    /// Attaches a buffer. [`Attached::NOTHING`], a possible result of [`BufferPool::detach`],
    /// leaves the pool without one.
    ///
    /// Errors: one is attached already.
    pub fn attach(&self, what: Attached) -> Result<()> {
        let mut state = self.state();
        if state.attached.is_some() {
            return Err(err!(
                Buffer,
                "a buffer is attached already; detach it first"
            ));
        }
        state.attached = (what != Attached::NOTHING).then_some(what);
        Ok(())
    }

    /// Blocks until all messages have been sent, then detaches. Without an attached buffer the
    /// result is [`Attached::NOTHING`], because then "MPI behaves as if a zero-sized buffer is
    /// associated" (MPI 5.0 §3.6). So a library can replace the attached buffer and restore it
    /// later.
    pub fn detach(&self) -> Attached {
        if self.is_attached() {
            self.flush();
        }
        self.state().attached.take().unwrap_or(Attached::NOTHING)
    }

    /// Blocks until all messages have been sent.
    pub fn flush(&self) {
        device::wait_until(&WaitingFor::SEVERAL, |d| self.reap(d));
    }

    /// Removes messages that have been sent. True if none remains.
    pub fn reap(&self, d: &mut Device) -> bool {
        let mut state = self.state();
        state.pending.retain(|&(req, _)| {
            let gone = d.is_complete(req);
            if gone {
                d.take(req);
            }
            !gone
        });
        state.pending.is_empty()
    }

    /// Checks that a message of `len` bytes fits into the attached buffer.
    fn check_room(&self, d: &mut Device, len: u64) -> Result<()> {
        let need = len + OVERHEAD_BYTES;
        for attempt in 0..2 {
            self.reap(d);
            let state = self.state();
            let used: u64 = state.pending.iter().map(|p| p.1).sum();
            match state.attached {
                None => {
                    return Err(err!(
                        Buffer,
                        "no buffer is attached for buffered sends; call MPI_Buffer_attach"
                    ));
                }
                Some(Attached::Automatic) => return Ok(()),
                Some(Attached::User { len, .. }) if used + need <= len => return Ok(()),
                Some(Attached::User { len: size, .. }) if attempt == 1 => {
                    return Err(err!(
                        Buffer,
                        "the attached buffer of {size} bytes has no room for a message of {len} \
                         bytes: {used} bytes are \
                         taken by messages that have not left"
                    ));
                }
                Some(_) => {}
            }
            drop(state);
            d.progress();
        }
        Ok(())
    }
}

/// A buffered send.
///
/// # Safety
/// The buffer must be readable.
pub(super) unsafe fn send(comm: &Arc<Comm>, buffer: Buffer<'_>, rank: u32, tag: u32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { send_with(&mut device::device(), comm, buffer, rank, tag) }
}

/// A buffered send by a caller that has the device.
///
/// # Safety
/// The buffer must be readable.
pub(super) unsafe fn send_with(
    d: &mut Device,
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    rank: u32,
    tag: u32,
) -> Result<()> {
    let session = comm.group.session().filter(|s| s.buffers.is_attached());
    let pool = match session {
        _ if comm.buffers.is_attached() => &comm.buffers,
        Some(session) => &session.buffers,
        None => BufferPool::of_process(),
    };
    let len = message_len(buffer.count, buffer.datatype);
    pool.check_room(d, len as u64)?;
    let mut copy = vec![0u8; len];
    // SAFETY: the caller's promise.
    unsafe { source(buffer.address, buffer.count, buffer.datatype).read(0, &mut copy) };
    // SAFETY: the device owns the bytes.
    let req = unsafe {
        d.send(
            comm.peer(rank),
            key(comm, tag),
            Source::Owned(copy.into_boxed_slice()),
            SendMode::Standard,
        )
    };
    if let Some(req) = req {
        pool.state()
            .pending
            .push((req, len as u64 + OVERHEAD_BYTES));
    }
    Ok(())
}

/// The owner of a pool of buffered messages.
#[derive(Clone)]
pub enum PoolOwner {
    /// The process (MPI_Buffer_attach).
    Process,
    /// A communicator.
    Comm(Arc<Comm>),
    /// A session.
    Session(Arc<Session>),
}

/// A flush of a pool (MPI_Buffer_iflush).
struct Flush(PoolOwner);

impl crate::request::Work for Flush {
    fn is_done(&self, d: &mut Device) -> bool {
        match &self.0 {
            PoolOwner::Process => PROCESS.reap(d),
            PoolOwner::Comm(comm) => comm.buffers.reap(d),
            PoolOwner::Session(session) => session.buffers.reap(d),
        }
    }
    fn outcome(&self) -> crate::request::Outcome {
        crate::request::Outcome::EMPTY
    }
}

/// A request that completes when all buffered messages of that pool have been sent.
pub fn iflush(owner: PoolOwner) -> Arc<crate::Request> {
    let comm = match &owner {
        PoolOwner::Comm(comm) => Some(comm.clone()),
        _ => None,
    };
    crate::Request::work(comm, Arc::new(Flush(owner)))
}
