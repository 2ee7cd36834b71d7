//! Agreement among processes, mostly on a new communicator: small messages along a binomial tree.
//!
//! The messages travel in the parent's control context, or in its tagged context where not all
//! members take part. Their source is the sender's process number, so any subset can communicate.
//! An agreement costs at most two messages for each member. Where ranks outnumber cores, that
//! matters more than the number of rounds.

use super::Comm;
use crate::device::{
    self, ContextId, Key, Pattern, ProcId, SendMode, Sink, Source, Tags, WaitingFor,
};
use crate::{Group, Result, err};

/// The processes of one agreement, and the context and tag of its messages.
pub(crate) struct Agreement<'a> {
    comm: &'a Comm,
    context: ContextId,
    tag: u32,
    group: &'a Group,
    rank: u32,
}

impl<'a> Agreement<'a> {
    /// An agreement of some members of `comm`, this process included. All of them pass the same
    /// `context` and `tag`. No other agreement between two of them uses these at the same time.
    pub fn new(
        comm: &'a Comm,
        context: ContextId,
        tag: u32,
        group: &'a Group,
    ) -> Result<Agreement<'a>> {
        let rank = group
            .rank()
            .ok_or_else(|| err!(Group, "the calling process is not in the group"))?;
        Ok(Agreement {
            comm,
            context,
            tag,
            group,
            rank,
        })
    }

    /// An agreement of all members of `comm`.
    ///
    /// Errors: none for a member, and only members have the communicator.
    pub fn of_all(comm: &'a Comm) -> Result<Agreement<'a>> {
        let tag = comm.next_agreement();
        Agreement::new(comm, comm.context.control(), tag, &comm.group)
    }

    /// This process's rank among them.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Broadcast: every process gets the bytes of rank `root`.
    pub fn broadcast(&self, root: u32, mine: Vec<u8>) -> Result<Vec<u8>> {
        let (size, at) = (self.group.size(), self.relative_rank(root));
        let (mut bytes, mut mask) = (mine, 1);
        while mask < size && at & mask == 0 {
            mask <<= 1;
        }
        if at != 0 {
            bytes = self.receive(self.process(root, at - mask))?;
        }
        while mask > 1 {
            mask >>= 1;
            if at + mask < size {
                self.send(self.process(root, at + mask), bytes.clone())?;
            }
        }
        Ok(bytes)
    }

    /// Gather: rank `root` gets all bytes, concatenated in rank order, starting with its own and
    /// wrapping round. The result of other ranks has no meaning.
    pub fn gather(&self, root: u32, mine: Vec<u8>) -> Result<Vec<u8>> {
        let (size, at) = (self.group.size(), self.relative_rank(root));
        let (mut bytes, mut mask) = (mine, 1);
        while mask < size {
            if at & mask != 0 {
                self.send(self.process(root, at - mask), bytes)?;
                return Ok(Vec::new());
            }
            if at + mask < size {
                bytes.extend(self.receive(self.process(root, at + mask))?);
            }
            mask <<= 1;
        }
        Ok(bytes)
    }

    /// Scatter: each process gets its part from rank 0. `parts` matters at rank 0 only and has one
    /// part for each rank.
    pub fn scatter(&self, parts: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        let (size, at) = (self.group.size(), self.rank);
        let mut mask = 1;
        while mask < size && at & mask == 0 {
            mask <<= 1;
        }
        let mut parts = if at == 0 {
            parts
        } else {
            let bytes = self.receive(self.process(0, at - mask))?;
            let mut reader = Reader(&bytes);
            let count = mask.min(size - at);
            (0..count)
                .map(|_| reader.framed().map(<[u8]>::to_vec))
                .collect::<Result<_>>()?
        };
        while mask > 1 {
            mask >>= 1;
            if at + mask < size && parts.len() > mask as usize {
                let mut bytes = Vec::new();
                for part in parts.split_off(mask as usize) {
                    put_framed(&mut bytes, &part);
                }
                self.send(self.process(0, at + mask), bytes)?;
            }
        }
        parts.into_iter().next().ok_or_else(malformed)
    }

    /// Exchanges bytes with one process outside the agreement.
    pub fn exchange(
        &self,
        context: ContextId,
        tag: u32,
        with: ProcId,
        mine: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let link = Agreement {
            context,
            tag,
            ..*self
        };
        link.send(with, mine)?;
        link.receive(with)
    }

    /// The rank relative to `root`, modulo the size.
    fn relative_rank(&self, root: u32) -> u32 {
        (self.rank + self.group.size() - root) % self.group.size()
    }

    fn process(&self, root: u32, at: u32) -> ProcId {
        self.group.process((root + at) % self.group.size())
    }

    fn send(&self, to: ProcId, bytes: Vec<u8>) -> Result<()> {
        let mut d = device::device();
        let key = Key {
            context: self.context,
            source: d.me(),
            tag: self.tag,
        };
        // SAFETY: the device owns the bytes.
        let started = unsafe {
            d.send(
                to,
                key,
                Source::Owned(bytes.into_boxed_slice()),
                SendMode::Standard,
            )
        };
        let Some(req) = started else { return Ok(()) };
        if d.is_complete(req) {
            return fault(d.take(req).fault, to);
        }
        // No wait: the message leaves while this process waits for others.
        d.detach(req);
        Ok(())
    }

    fn receive(&self, from: ProcId) -> Result<Vec<u8>> {
        let pattern = Pattern {
            context: self.context,
            source: Some(from),
            tag: Tags::one(self.tag),
        };
        let what = WaitingFor {
            context: self.comm.context,
            peer: from as i32,
            tag: -1,
            details: Some(self.comm),
        };
        let mut found = None;
        device::wait_until(&what, |d| {
            found = d.matched_probe(&pattern);
            found.is_some() || device::last_failure().is_some()
        });
        let Some((message, envelope)) = found else {
            let cause = device::last_failure().unwrap_or_default();
            return Err(err!(Other, "{cause}"));
        };
        let mut bytes = vec![0; envelope.len as usize];
        let sink = Sink::Bytes {
            ptr: bytes.as_mut_ptr(),
            cap: bytes.len(),
        };
        // SAFETY: `bytes` is not accessed until the receive has completed, in the next statement.
        let req = unsafe { device::device().receive_matched(message, sink) };
        fault(device::wait(req, &what).fault, from)?;
        Ok(bytes)
    }
}

fn fault(fault: Option<device::Fault>, peer: ProcId) -> Result<()> {
    match fault {
        None => Ok(()),
        Some(fault) => Err(err!(
            Other,
            "a message to or from process {peer} about a new communicator was lost: {fault}"
        )),
    }
}

fn malformed() -> crate::Error {
    err!(
        Intern,
        "a message about a new communicator makes no sense: do all processes make the same call?"
    )
}

/// Appends `bytes`, preceded by their length.
pub(crate) fn put_framed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Appends a number.
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

/// Appends the members of a group, preceded by their number.
pub(crate) fn put_group(out: &mut Vec<u8>, group: &Group) {
    put_u64(out, u64::from(group.size()));
    for process in group.iter() {
        out.extend(process.to_le_bytes());
    }
}

/// Reads what was appended, from the front. The bytes come from another process, so all reads are
/// checked.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len).ok_or_else(malformed)?;
        self.0 = tail;
        Ok(head)
    }

    /// A number.
    pub fn u64(&mut self) -> Result<u64> {
        self.take(8)?
            .try_into()
            .map(u64::from_le_bytes)
            .map_err(|_| malformed())
    }

    /// A number of 16 bytes.
    pub fn u128(&mut self) -> Result<u128> {
        let bytes = self.take(16)?.try_into();
        bytes.map(u128::from_le_bytes).map_err(|_| malformed())
    }

    /// A context.
    pub fn context(&mut self) -> Result<ContextId> {
        self.u64().map(ContextId)
    }

    /// A rank or a process number.
    pub fn u32(&mut self) -> Result<u32> {
        self.take(4)?
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| malformed())
    }

    /// Bytes that [`put_framed`] appended.
    pub fn framed(&mut self) -> Result<&'a [u8]> {
        let len = self.u64()?;
        self.take(usize::try_from(len).map_err(|_| malformed())?)
    }

    /// Processes that [`put_group`] appended.
    pub fn processes(&mut self) -> Result<Vec<ProcId>> {
        let count = usize::try_from(self.u64()?).map_err(|_| malformed())?;
        let bytes = self.take(count.checked_mul(4).ok_or_else(malformed)?)?;
        let mut reader = Reader(bytes);
        (0..count).map(|_| reader.u32()).collect()
    }

    /// Have all bytes been read?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
