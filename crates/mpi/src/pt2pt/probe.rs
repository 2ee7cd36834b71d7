//! Probes and matched receives (MPI 5.0 §3.8).

use super::*;

/// A message that a matched probe has taken (MPI 5.0 §3.8.2).
pub struct Message {
    /// The handle.
    pub identity: crate::Identity,
    comm: Arc<Comm>,
    req: ReqId,
}

/// A message that a matched probe has taken, and its envelope. No message: of MPI_PROC_NULL.
pub type Taken = (Option<Arc<Message>>, Outcome);

/// The envelope that a probe found.
///
/// Errors: as for [`probe()`].
pub fn iprobe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Result<Option<Outcome>> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok(Some(Outcome::FROM_PROC_NULL));
    };
    let found = poll_or_lost(comm, from, |d| d.probe(&pattern))?;
    Ok(found.map(|e| Outcome::of_envelope(&e)))
}

/// What is there after some progress.
fn poll_or_lost<T>(
    comm: &Arc<Comm>,
    from: From,
    look: impl Fn(&mut Device) -> Option<T>,
) -> Result<Option<T>> {
    let peer = device::ProcId::try_from(peer_of(comm, from)).ok();
    let answer = device::poll_once_for(
        |_| peer,
        |d| match look(d) {
            Some(found) => Some(Some(found)),
            None => sender_is_lost(d, comm, from, u64::MAX).then_some(None),
        },
    );
    answer
        .map(|found| found.ok_or_else(|| lost(comm)))
        .transpose()
}

/// Blocks until there is a message that `look` finds.
fn wait_or_lost<T>(
    comm: &Arc<Comm>,
    from: From,
    tag: Option<u32>,
    mut look: impl FnMut(&mut Device) -> Option<T>,
) -> Result<T> {
    let (mut found, mut since) = (None, None);
    device::wait_until(&waiting_for(comm, peer_of(comm, from), tag), |d| {
        let since = *since.get_or_insert_with(|| d.losses());
        found = look(d);
        found.is_some() || sender_is_lost(d, comm, from, since)
    });
    found.ok_or_else(|| lost(comm))
}

/// Blocks until a message matches.
///
/// Errors: the peer named by `from` is lost; or one of them all, if `from` names none. Of the loss
/// each communicator is told once; later probes wait for the peers that live.
pub fn probe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Result<Outcome> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok(Outcome::FROM_PROC_NULL);
    };
    let found = wait_or_lost(comm, from, tag, |d| d.probe(&pattern))?;
    Ok(Outcome::of_envelope(&found))
}

/// Takes a matching message from the queue, if there is one (MPI_Improbe). The message in the pair
/// is `None` for MPI_PROC_NULL (MPI_MESSAGE_NO_PROC).
///
/// Errors: as for [`probe()`].
pub fn improbe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Result<Option<Taken>> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok(Some((None, Outcome::FROM_PROC_NULL)));
    };
    let taken = poll_or_lost(comm, from, |d| d.matched_probe(&pattern))?;
    Ok(taken.map(|(req, e)| (Some(Message::new(comm, req)), Outcome::of_envelope(&e))))
}

/// Blocks until a matching message can be taken from the queue (MPI_Mprobe).
///
/// Errors: as for [`probe()`].
pub fn mprobe(comm: &Arc<Comm>, from: From, tag: Option<u32>) -> Result<Taken> {
    let Some(pattern) = pattern(comm, from, tag) else {
        return Ok((None, Outcome::FROM_PROC_NULL));
    };
    let (req, e) = wait_or_lost(comm, from, tag, |d| d.matched_probe(&pattern))?;
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
