//! Agreement among processes, mostly on a new communicator: small messages along a binomial tree.
//!
//! The messages travel in the parent's control context, or in its tagged context where not all
//! members take part. Their source is the sender's rank in the parent, so any subset can
//! communicate. A process number would not do: processes of different jobs count differently.
//! An agreement costs at most two messages for each member. Where ranks outnumber cores, that
//! matters more than the number of rounds.

use super::Comm;
use crate::device::{
    self, ContextId, Describe, Device, Key, Pattern, ProcId, ReqId, SendMode, Sink, Source, Tags,
    WaitingFor,
};
use crate::dynamic::foreign::{self, ProcessName};
use crate::{Group, Result, err};
use std::sync::atomic::Ordering;

/// The processes of one agreement, and the context and tag of its messages. Its operations block
/// until all processes that they wait for have called them.
///
/// Errors of all: Other if a process is lost; Intern if its message makes no sense.
pub(crate) struct Agreement<'a> {
    comm: &'a Comm,
    context: ContextId,
    tag: u32,
    group: &'a Group,
    rank: u32,
}

/// The way from one leader to another, outside the leaders' agreements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderLink {
    /// Context of its messages.
    pub context: ContextId,
    /// Tag of its messages.
    pub tag: u32,
    /// The other leader.
    pub process: ProcId,
    /// Source of this leader's messages.
    pub mine: u32,
    /// Source of the other's messages.
    pub theirs: u32,
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

    /// The processes of the agreement.
    pub fn members(&self) -> impl Iterator<Item = ProcId> {
        self.group.iter()
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
            bytes = self.receive_of(self.process(root, at - mask))?;
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
                bytes.extend(self.receive_of(self.process(root, at + mask))?);
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
            let bytes = self.receive_of(self.process(0, at - mask))?;
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
    pub fn exchange(&self, link: &LeaderLink, mine: Vec<u8>) -> Result<Vec<u8>> {
        let key = Key {
            context: link.context,
            source: link.mine,
            tag: link.tag,
        };
        send(link.process, key, mine)?;
        let theirs = Key {
            source: link.theirs,
            ..key
        };
        receive(link.process, theirs, &self.wait())
    }

    /// The rank relative to `root`, modulo the size.
    fn relative_rank(&self, root: u32) -> u32 {
        (self.rank + self.group.size() - root) % self.group.size()
    }

    fn process(&self, root: u32, at: u32) -> ProcId {
        self.group.process((root + at) % self.group.size())
    }

    fn send(&self, to: ProcId, bytes: Vec<u8>) -> Result<()> {
        let key = Key {
            context: self.context,
            source: self.comm.rank(),
            tag: self.tag,
        };
        send(to, key, bytes)
    }

    fn receive_of(&self, from: ProcId) -> Result<Vec<u8>> {
        let source = self.comm.group.rank_of(from);
        let key = Key {
            context: self.context,
            source: source.ok_or_else(malformed)?,
            tag: self.tag,
        };
        receive(from, key, &self.wait())
    }

    fn wait(&self) -> AgreementWait<'_> {
        AgreementWait {
            comm: self.comm,
            context: self.context,
            members: self.group.size(),
        }
    }
}

/// Tells who looks at a hang that a collective call is waited in: its context says so.
struct AgreementWait<'a> {
    comm: &'a Comm,
    context: ContextId,
    members: u32,
}

impl Describe for AgreementWait<'_> {
    fn describe(&self, device: &mut Device, status: &ferry_job::RankStatus) {
        self.comm.describe(device, status);
        status.comm_size.store(self.members, Ordering::Relaxed);
    }
}

/// Sends bytes to a process. Does not wait: they leave while this process waits for others.
pub(crate) fn send(to: ProcId, key: Key, bytes: Vec<u8>) -> Result<()> {
    let mut d = device::device();
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
    d.detach(req);
    Ok(())
}

/// Receives the bytes that process `from` sends with this key. Blocks until they are here, or until
/// the process is lost.
fn receive(from: ProcId, key: Key, agreement: &AgreementWait<'_>) -> Result<Vec<u8>> {
    let pattern = Pattern {
        context: key.context,
        source: Some(key.source),
        tag: Tags::one(key.tag),
    };
    let what = WaitingFor {
        context: agreement.context,
        peer: from as i32,
        tag: -1,
        details: Some(agreement),
    };
    let mut found = None;
    device::wait_until(&what, |d| {
        found = d.matched_probe(&pattern);
        found.is_some() || d.is_lost(from) || device::failed_wholly()
    });
    let Some((message, envelope)) = found else {
        let cause = device::last_failure().unwrap_or_default();
        return Err(err!(Other, "{cause}"));
    };
    receive_found(message, envelope.len, from, &what)
}

/// Receives a message of `len` bytes that a probe has taken.
pub(crate) fn receive_found(
    message: ReqId,
    len: u64,
    from: ProcId,
    what: &WaitingFor<'_>,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let sink = Sink::Bytes {
        ptr: bytes.as_mut_ptr(),
        cap: bytes.len(),
    };
    // SAFETY: `bytes` is not accessed until the receive has completed, in the next statement.
    let req = unsafe { device::device().receive_matched(message, sink) };
    fault(device::wait(req, what).fault, from)?;
    Ok(bytes)
}

fn fault(fault: Option<device::Fault>, peer: ProcId) -> Result<()> {
    match fault {
        None => Ok(()),
        Some(fault) => Err(err!(
            Other,
            "a message of this call to or from process {peer} was lost: {fault}"
        )),
    }
}

/// The error of a message from another process that cannot be decoded.
pub(crate) fn malformed() -> crate::Error {
    err!(
        Intern,
        "a message of this call makes no sense: do all processes make the same call?"
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

/// Appends the names of the members of a group, preceded by their number.
pub(crate) fn put_group(out: &mut Vec<u8>, group: &Group) {
    put_u64(out, u64::from(group.size()));
    for name in foreign::names(group.iter()) {
        name.put(out);
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

    /// The names of processes that [`put_group`] appended.
    pub fn processes(&mut self) -> Result<Vec<ProcessName>> {
        let count = usize::try_from(self.u64()?).map_err(|_| malformed())?;
        let bytes = count.checked_mul(ProcessName::BYTES);
        let mut reader = Reader(self.take(bytes.ok_or_else(malformed)?)?);
        (0..count).map(|_| ProcessName::read(&mut reader)).collect()
    }

    /// Have all bytes been read?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
