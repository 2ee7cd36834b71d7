//! Probes and matched receives (MPI 5.0 §3.8).

use super::*;

/// A message that a matched probe has taken (MPI 5.0 §3.8.2).
pub struct Message {
    /// The handle.
    pub identity: crate::Identity,
    comm: Arc<Comm>,
    req: ReqId,
}

/// The envelope that a probe found.
pub fn iprobe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Option<Outcome> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Some(Outcome::FROM_PROC_NULL);
    };
    device::poll_once(|d| d.probe(&pattern)).map(|e| Outcome::of_envelope(&e))
}

/// Blocks until a message matches.
///
/// Errors: the peer named by `from` is lost.
pub fn probe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Result<Outcome> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok(Outcome::FROM_PROC_NULL);
    };
    let mut found = None;
    device::wait_until(&waiting_for(comm, peer_of(comm, from), tag), |d| {
        found = d.probe(&pattern);
        found.is_some() || sender_is_lost(d, comm, from)
    });
    let found = found.ok_or_else(|| lost(comm))?;
    Ok(Outcome::of_envelope(&found))
}

/// Takes a matching message from the queue, if there is one (MPI_Improbe). The message in the pair
/// is `None` for MPI_PROC_NULL (MPI_MESSAGE_NO_PROC).
pub fn improbe(
    comm: &Arc<Comm>,
    from: From,
    tag: Option<u32>,
) -> Option<(Option<Arc<Message>>, Outcome)> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Some((None, Outcome::FROM_PROC_NULL));
    };
    let taken = device::poll_once(|d| d.matched_probe(&pattern));
    taken.map(|(req, e)| (Some(Message::new(comm, req)), Outcome::of_envelope(&e)))
}

/// Blocks until a matching message can be taken from the queue (MPI_Mprobe).
///
/// Errors: the peer named by `from` is lost.
pub fn mprobe(
    comm: &Arc<Comm>,
    from: From,
    tag: Option<u32>,
) -> Result<(Option<Arc<Message>>, Outcome)> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok((None, Outcome::FROM_PROC_NULL));
    };
    let mut taken = None;
    device::wait_until(&waiting_for(comm, peer_of(comm, from), tag), |d| {
        taken = d.matched_probe(&pattern);
        taken.is_some() || sender_is_lost(d, comm, from)
    });
    let (req, e) = taken.ok_or_else(|| lost(comm))?;
    Ok((Some(Message::new(comm, req)), Outcome::of_envelope(&e)))
}

impl Message {
    fn new(comm: &Arc<Comm>, req: ReqId) -> Arc<Message> {
        Arc::new(Message {
            identity: crate::Identity::none(),
            comm: comm.clone(),
            req,
        })
    }

    /// The communicator in which it came.
    pub fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// Starts the receive of the message. At most one call.
    ///
    /// # Safety
    /// As for [`ireceive`].
    pub unsafe fn ireceive(&self, buffer: Buffer<'_>) -> Arc<Request> {
        let into = sink(buffer.address, buffer.count, buffer.datatype);
        let mut d = device::device();
        // SAFETY: the caller's promise.
        let req = unsafe { d.receive_matched(self.req, into) };
        Request::receive(&mut d, &self.comm, Active::Device(req))
    }
}
