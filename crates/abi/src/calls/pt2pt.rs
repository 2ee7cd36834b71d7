//! Point-to-point communication (MPI 5.0 chapter 3).

use crate::prelude::*;
use ferry_mpi::pt2pt::{self, Attached, Buffer, BufferPool, Message, Mode, PoolOwner};
use ferry_mpi::request::Outcome;

/// Blocking sends.
macro_rules! sends {
    ($($name:ident $mode:ident;)*) => {$(
        pub fn $name(buf: *const u8, count: i64, datatype: DatatypeRef, dest: Dest,
            tag: u32, comm: CommRef) -> Result<()> {
            // SAFETY: the program passes a readable buffer.
            unsafe { pt2pt::send(comm, buf, count, datatype, dest, tag, Mode::$mode) }
        }
    )*};
}
sends! { send Standard; bsend Buffered; ssend Synchronous; rsend Standard; }

/// Non-blocking sends.
macro_rules! isends {
    ($($name:ident $mode:ident;)*) => {$(
        #[inline(always)]
        pub fn $name<R: RequestForm>(buf: *const u8, count: i64,
            datatype: DatatypeRef, dest: Dest, tag: u32, comm: CommRef,
            request: Out<R>) -> Result<()> {
            let buffer = buffer(buf.cast_mut(), count, datatype);
            // SAFETY: the program leaves the buffer alone until completion.
            let started = unsafe { pt2pt::isend(comm, buffer, dest, tag, Mode::$mode)? };
            request.set(R::of(started.map_or_else(super::request::sent, handle::insert)));
            Ok(())
        }
    )*};
}
isends! { isend Standard; ibsend Buffered; issend Synchronous; irsend Standard; }

/// Persistent sends.
macro_rules! send_inits {
    ($($name:ident $mode:ident;)*) => {$(
        pub fn $name(buf: *const u8, count: i64, datatype: DatatypeRef, dest: Dest,
            tag: u32, comm: CommRef, request: Out<Handle>) -> Result<()> {
            let buffer = buffer(buf.cast_mut(), count, datatype);
            // SAFETY: the program leaves the buffer alone between each start and completion.
            let made = unsafe { pt2pt::send_init(comm, buffer, dest, tag, Mode::$mode) };
            request.set(handle::insert(made));
            Ok(())
        }
    )*};
}
send_inits! {
    send_init Standard; bsend_init Buffered; ssend_init Synchronous; rsend_init Standard;
}

/// The arguments buf, count and datatype of a call.
#[inline]
pub fn buffer(address: *mut u8, count: i64, datatype: &Arc<Datatype>) -> Buffer<'_> {
    Buffer {
        address,
        count,
        datatype,
    }
}

/// Stores a receive's status and returns its error.
fn received(outcome: Outcome, status: OutStatus) -> Result<()> {
    status.store(&outcome);
    outcome.into_result().map(|_| ())
}

pub fn recv(
    buf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    source: Source,
    tag: Option<u32>,
    comm: CommRef,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, tag)?;
    // SAFETY: the program passes a writable buffer.
    received(
        unsafe { pt2pt::receive(comm, buf, count, datatype, source, tag)? },
        status,
    )
}

/// Non-blocking and persistent receives.
macro_rules! receives {
    ($($name:ident $make:ident;)*) => {$(
        #[inline(always)]
        pub fn $name<R: RequestForm>(buf: *mut u8, count: i64, datatype: DatatypeRef,
            source: Source, tag: Option<u32>, comm: CommRef, request: Out<R>)
            -> Result<()> {
            comm.check_assertions(source, tag)?;
            let buffer = buffer(buf, count, datatype);
            // SAFETY: the program leaves the buffer alone between each start and completion.
            let made = unsafe { pt2pt::$make(comm, buffer, source, tag) };
            request.set(R::of(handle::insert(made)));
            Ok(())
        }
    )*};
}
receives! { irecv ireceive; recv_init receive_init; }

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn sendrecv(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    dest: Dest,
    sendtag: u32,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    source: Source,
    recvtag: Option<u32>,
    comm: CommRef,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, recvtag)?;
    let (out, into) = (
        buffer(sendbuf.cast_mut(), sendcount, sendtype),
        buffer(recvbuf, recvcount, recvtype),
    );
    // SAFETY: the program passes buffers that may be read and written and do not overlap.
    received(
        unsafe { pt2pt::send_receive(comm, out, dest, sendtag, into, source, recvtag)? },
        status,
    )
}

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn sendrecv_replace(
    buf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    dest: Dest,
    sendtag: u32,
    source: Source,
    recvtag: Option<u32>,
    comm: CommRef,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, recvtag)?;
    let both = buffer(buf, count, datatype);
    // SAFETY: the program passes a buffer that may be read and written.
    received(
        unsafe { pt2pt::send_receive_replace(comm, both, dest, sendtag, source, recvtag)? },
        status,
    )
}

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn isendrecv(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    dest: Dest,
    sendtag: u32,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    source: Source,
    recvtag: Option<u32>,
    comm: CommRef,
    request: Out<Handle>,
) -> Result<()> {
    comm.check_assertions(source, recvtag)?;
    let (out, into) = (
        buffer(sendbuf.cast_mut(), sendcount, sendtype),
        buffer(recvbuf, recvcount, recvtype),
    );
    // SAFETY: the program leaves the buffers alone until completion; they do not overlap.
    let started = unsafe { pt2pt::isend_receive(comm, out, dest, sendtag, into, source, recvtag) };
    request.set(handle::insert(started));
    Ok(())
}

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn isendrecv_replace(
    buf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    dest: Dest,
    sendtag: u32,
    source: Source,
    recvtag: Option<u32>,
    comm: CommRef,
    request: Out<Handle>,
) -> Result<()> {
    comm.check_assertions(source, recvtag)?;
    // SAFETY: the program leaves the buffer alone until completion.
    let started = unsafe {
        pt2pt::isend_receive_replace(
            comm,
            buffer(buf, count, datatype),
            dest,
            sendtag,
            source,
            recvtag,
        )
    };
    request.set(handle::insert(started));
    Ok(())
}

pub fn probe(source: Source, tag: Option<u32>, comm: CommRef, status: OutStatus) -> Result<()> {
    comm.check_assertions(source, tag)?;
    status.store(&pt2pt::probe(comm, source, tag)?);
    Ok(())
}

pub fn iprobe(
    source: Source,
    tag: Option<u32>,
    comm: CommRef,
    flag: OutFlag,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, tag)?;
    let found = pt2pt::iprobe(comm, source, tag)?;
    flag.set(found.is_some());
    if let Some(outcome) = found {
        status.store(&outcome);
    }
    Ok(())
}

/// The handle of a message. `None`: MPI_MESSAGE_NO_PROC.
fn message_handle(message: Option<Arc<Message>>) -> Handle {
    message.map_or(constants::MPI_MESSAGE_NO_PROC, handle::insert::<Message>)
}

pub fn mprobe(
    source: Source,
    tag: Option<u32>,
    comm: CommRef,
    message: Out<Handle>,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, tag)?;
    let (found, outcome) = pt2pt::mprobe(comm, source, tag)?;
    message.set(message_handle(found));
    status.store(&outcome);
    Ok(())
}

pub fn improbe(
    source: Source,
    tag: Option<u32>,
    comm: CommRef,
    flag: OutFlag,
    message: Out<Handle>,
    status: OutStatus,
) -> Result<()> {
    comm.check_assertions(source, tag)?;
    let found = pt2pt::improbe(comm, source, tag)?;
    flag.set(found.is_some());
    if let Some((found, outcome)) = found {
        message.set(message_handle(found));
        status.store(&outcome);
    } else {
        message.set(constants::MPI_MESSAGE_NULL);
    }
    Ok(())
}

/// Takes the message of a handle. The handle becomes MPI_MESSAGE_NULL. `None`: the handle was
/// MPI_MESSAGE_NO_PROC.
fn take_message(message: &mut Handle) -> Result<Option<Arc<Message>>> {
    let taken = if *message == constants::MPI_MESSAGE_NO_PROC {
        None
    } else if *message == constants::MPI_MESSAGE_NULL {
        return Err(err!(Request, "message is MPI_MESSAGE_NULL"));
    } else {
        let taken = handle::remove::<Message>(*message);
        Some(taken.ok_or_else(|| err!(Request, "message is no valid message handle"))?)
    };
    *message = constants::MPI_MESSAGE_NULL;
    Ok(taken)
}

pub fn mrecv(
    buf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    message: &mut Handle,
    status: OutStatus,
) -> Result<()> {
    let Some(taken) = take_message(message)? else {
        status.store(&Outcome::FROM_PROC_NULL);
        return Ok(());
    };
    // SAFETY: the program passes a writable buffer; this call returns after completion only.
    let receiving = unsafe { taken.ireceive(buffer(buf, count, datatype)) };
    ferry_mpi::request::wait_all(&[&*receiving]);
    received(receiving.complete(&mut None), status)
}

pub fn imrecv(
    buf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    message: &mut Handle,
    request: Out<Handle>,
) -> Result<()> {
    let receiving = match take_message(message)? {
        // SAFETY: the program leaves the buffer alone until completion.
        Some(taken) => unsafe { taken.ireceive(buffer(buf, count, datatype)) },
        None => Request::ended(Outcome::FROM_PROC_NULL),
    };
    request.set(handle::insert(receiving));
    Ok(())
}

/// The ABI's value of MPI_BUFFER_AUTOMATIC.
const AUTOMATIC: usize = 2;

/// Attaches the program's buffer.
pub fn attach(pool: &BufferPool, buffer: *mut c_void, size: i64) -> Result<()> {
    pool.attach(match buffer as usize {
        AUTOMATIC => Attached::Automatic,
        address => Attached::User {
            address,
            len: size as u64,
        },
    })
}

/// Detaches the attached buffer.
pub fn detach(pool: &BufferPool, buffer: OutPointer, size: OutCount) -> Result<()> {
    match pool.detach() {
        Attached::Automatic => {
            buffer.set(AUTOMATIC as *mut c_void);
            size.set(0);
        }
        Attached::User { address, len } => {
            buffer.set(address as *mut c_void);
            size.set(len as i64);
        }
    }
    Ok(())
}

pub fn buffer_attach(buffer: *mut c_void, size: i64) -> Result<()> {
    attach(BufferPool::of_process(), buffer, size)
}

pub fn buffer_detach(buffer_addr: OutPointer, size: OutCount) -> Result<()> {
    detach(BufferPool::of_process(), buffer_addr, size)
}

pub fn buffer_flush() -> Result<()> {
    BufferPool::of_process().flush();
    Ok(())
}

pub fn buffer_iflush(request: Out<Handle>) -> Result<()> {
    request.set(handle::insert(pt2pt::iflush(PoolOwner::Process)));
    Ok(())
}

pub fn comm_attach_buffer(comm: CommRef, buffer: *mut c_void, size: i64) -> Result<()> {
    attach(&comm.buffers, buffer, size)
}

pub fn comm_detach_buffer(comm: CommRef, buffer_addr: OutPointer, size: OutCount) -> Result<()> {
    detach(&comm.buffers, buffer_addr, size)
}

pub fn comm_flush_buffer(comm: CommRef) -> Result<()> {
    comm.buffers.flush();
    Ok(())
}

pub fn comm_iflush_buffer(comm: CommRef, request: Out<Handle>) -> Result<()> {
    request.set(handle::insert(pt2pt::iflush(PoolOwner::Comm(comm.clone()))));
    Ok(())
}
