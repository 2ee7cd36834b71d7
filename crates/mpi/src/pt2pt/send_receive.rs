//! A send and a receive in one call (MPI 5.0 §3.10).

use super::*;

/// A send and a receive at once, without deadlock (MPI 5.0 §3.10).
///
/// # Safety
/// As for [`send`] and [`receive`]; the buffers do not overlap.
pub unsafe fn send_receive(
    comm: &Arc<Comm>,
    out: Buffer<'_>,
    dest: Dest,
    send_tag: u32,
    into: Buffer<'_>,
    from: From,
    tag: Option<u32>,
) -> Result<Outcome> {
    let mut d = device::device();
    // SAFETY: the caller's promise; this call returns after completion only.
    let receiving = unsafe { start_receive(&mut d, comm, into, from, tag) };
    // SAFETY: the caller's promise; this call returns after the send's completion only.
    let sending = unsafe { start_send(&mut d, comm, out, dest, send_tag, Mode::Standard) };
    match (&sending, &receiving) {
        (Active::Complete(_), Active::Complete(_)) => d.release(),
        _ => d.drop_within_call(),
    }
    let what = waiting_for(comm, peer_of(comm, from), tag);
    let sent = finish(sending, comm, &what, true);
    let received = finish(receiving, comm, &what, false);
    sent.into_result()?;
    Ok(received)
}

fn finish(active: Active, comm: &Arc<Comm>, what: &WaitingFor<'_>, is_send: bool) -> Outcome {
    match active {
        Active::Device(req) => Outcome::of(&device::wait(req, what), comm, is_send),
        Active::Complete(outcome) => outcome,
        Active::Work(_) => Outcome::EMPTY,
    }
}

/// [`send_receive()`] through one buffer (MPI_Sendrecv_replace).
///
/// # Safety
/// The buffer must be readable and writable.
pub unsafe fn send_receive_replace(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    dest: Dest,
    send_tag: u32,
    from: From,
    tag: Option<u32>,
) -> Result<Outcome> {
    let mut d = device::device();
    // SAFETY: the caller's promise; this call returns after completion only.
    let (sending, receiving) =
        unsafe { start_replace(&mut d, comm, buffer, dest, send_tag, from, tag) };
    drop(d);
    let what = waiting_for(comm, peer_of(comm, from), tag);
    let sent = finish(sending, comm, &what, true);
    let received = finish(receiving, comm, &what, false);
    sent.into_result()?;
    Ok(received)
}

/// Copies the message out of `buffer`, then starts the send and the receive.
///
/// # Safety
/// As for [`isend_receive_replace`].
unsafe fn start_replace(
    d: &mut Device,
    comm: &Comm,
    buffer: Buffer<'_>,
    dest: Dest,
    send_tag: u32,
    from: From,
    tag: Option<u32>,
) -> (Active, Active) {
    let mut copy = vec![0u8; crate::buffer::message_len(buffer.count, buffer.datatype)];
    // SAFETY: the caller's promise.
    unsafe { source(buffer.address, buffer.count, buffer.datatype).read(0, &mut copy) };
    // SAFETY: the caller's promise; the message has been copied out of the buffer.
    let receiving = unsafe { start_receive(d, comm, buffer, from, tag) };
    let sending = match dest {
        Dest::ProcNull => Active::Complete(Outcome::SENT),
        Dest::Rank(rank) => {
            let bytes = device::Source::Owned(copy.into_boxed_slice());
            // SAFETY: the device owns the bytes.
            match unsafe {
                d.send(
                    comm.peer(rank),
                    key(comm, send_tag),
                    bytes,
                    SendMode::Standard,
                )
            } {
                None => Active::Complete(Outcome::SENT),
                Some(req) => Active::Device(req),
            }
        }
    };
    (sending, receiving)
}

/// A send and a receive under way as one operation (MPI 5.0 §3.10, the non-blocking forms).
struct SendReceive {
    comm: Arc<Comm>,
    /// The part in progress, or its outcome.
    halves: std::sync::Mutex<(Half, Half)>,
}

enum Half {
    Device(ReqId),
    Complete(Outcome),
}

impl Half {
    fn of(active: Active) -> Half {
        match active {
            Active::Device(req) => Half::Device(req),
            Active::Complete(outcome) => Half::Complete(outcome),
            Active::Work(_) => Half::Complete(Outcome::EMPTY),
        }
    }

    /// Takes the completion if the part is complete. True if complete.
    fn settle(&mut self, d: &mut Device, comm: &Arc<Comm>, is_send: bool) -> bool {
        if let Half::Device(req) = *self {
            if !d.is_complete(req) {
                return false;
            }
            *self = Half::Complete(Outcome::of(&d.take(req), comm, is_send));
        }
        true
    }
}

impl crate::request::Work for SendReceive {
    fn is_done(&self, d: &mut Device) -> bool {
        let mut halves = self
            .halves
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (sending, receiving) = &mut *halves;
        let sent = sending.settle(d, &self.comm, true);
        receiving.settle(d, &self.comm, false) && sent
    }

    fn outcome(&self) -> Outcome {
        let halves = self
            .halves
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*halves {
            (Half::Complete(Outcome { error: Some(e), .. }), _) => Outcome {
                error: Some(e.clone()),
                ..Outcome::EMPTY
            },
            (_, Half::Complete(received)) => received.clone(),
            _ => Outcome::EMPTY,
        }
    }
}

/// Starts a send and a receive as one operation.
///
/// # Safety
/// As for [`isend`] and [`ireceive`]; the buffers do not overlap.
pub unsafe fn isend_receive(
    comm: &Arc<Comm>,
    out: Buffer<'_>,
    dest: Dest,
    send_tag: u32,
    into: Buffer<'_>,
    from: From,
    tag: Option<u32>,
) -> Arc<Request> {
    let mut d = device::device();
    // SAFETY: the caller's promise.
    let receiving = Half::of(unsafe { start_receive(&mut d, comm, into, from, tag) });
    // SAFETY: the caller's promise.
    let sending =
        Half::of(unsafe { start_send(&mut d, comm, out, dest, send_tag, Mode::Standard) });
    drop(d);
    let both = SendReceive {
        comm: comm.clone(),
        halves: std::sync::Mutex::new((sending, receiving)),
    };
    Request::work(Some(comm.clone()), Arc::new(both))
}

/// [`isend_receive`] through one buffer.
///
/// # Safety
/// The buffer must stay readable and writable, and untouched, until completion.
pub unsafe fn isend_receive_replace(
    comm: &Arc<Comm>,
    buffer: Buffer<'_>,
    dest: Dest,
    send_tag: u32,
    from: From,
    tag: Option<u32>,
) -> Arc<Request> {
    let mut d = device::device();
    // SAFETY: the caller's promise.
    let (sending, receiving) =
        unsafe { start_replace(&mut d, comm, buffer, dest, send_tag, from, tag) };
    drop(d);
    let halves = std::sync::Mutex::new((Half::of(sending), Half::of(receiving)));
    Request::work(
        Some(comm.clone()),
        Arc::new(SendReceive {
            comm: comm.clone(),
            halves,
        }),
    )
}
