//! Intercommunicators (MPI 5.0 §7.6): making them, and making others from them.
//!
//! The first members of the two groups (the leaders) swap what the groups need to know of each
//! other, and tell the others of their own group. Both leaders offer a context; the smaller one is
//! taken, so nobody has to ask.

use super::Comm;
use super::agree::{Circle, Reader, put, put_framed, put_group};
use super::create::{Choice, Choices};
use crate::device::{ContextId, ProcId};
use crate::process::process;
use crate::{Group, Result, err};
use std::sync::Arc;

/// The leader's way to the other leader.
pub struct Bridge<'a> {
    /// A communicator in which both leaders are.
    pub peer_comm: &'a Arc<Comm>,
    /// The other leader's rank there.
    pub remote_leader: u32,
}

/// What one side tells the other about itself.
struct Side {
    /// What its leader offers as context of the new communicator.
    offered: ContextId,
    /// The context of its own local communicator.
    local: ContextId,
    group: Vec<crate::ProcId>,
}

impl Side {
    /// Made by a leader.
    fn offer(group: &Group) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, process().new_context().0);
        put(&mut bytes, process().new_context().0);
        put_group(&mut bytes, group);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Side> {
        let mut reader = Reader(bytes);
        Ok(Side {
            offered: reader.context()?,
            local: reader.context()?,
            group: reader.processes()?,
        })
    }
}

/// An intercommunicator between `local`'s group and another, whose members make the same call
/// (MPI_Intercomm_create). The member `local_leader` gives the bridge to the other leader; `tag`
/// tells calls on the bridge apart. Collective over both groups.
///
/// Errors: Comm if the groups have members in common.
pub fn intercomm_create(
    local: &Arc<Comm>,
    local_leader: u32,
    bridge: Option<Bridge<'_>>,
    tag: u32,
) -> Result<Arc<Comm>> {
    let circle = Circle::of_all(local)?;
    let link = bridge.map(|b| {
        // Tags of the two kinds of calls in the tagged context (create_group is the other) must not
        // meet: leaders use the upper half.
        (
            b.peer_comm.context.tagged(),
            tag | 1 << 31,
            b.peer_comm.peer(b.remote_leader),
        )
    });
    between(&circle, local_leader, link, local, &local.group)
}

/// An intercommunicator between `group`, whose members are the circle, and another. The member
/// `leader` gives the link to the other leader: context, tag, process. The new communicator takes
/// after `parent`.
pub(super) fn between(
    circle: &Circle<'_>,
    leader: u32,
    link: Option<(ContextId, u32, ProcId)>,
    parent: &Comm,
    group: &Arc<Group>,
) -> Result<Arc<Comm>> {
    let mut both = Vec::new();
    if circle.rank() == leader {
        let Some((context, tag, other)) = link else {
            return Err(err!(
                Comm,
                "the leader of the local group gave no peer communicator"
            ));
        };
        let mine = Side::offer(group);
        let theirs = circle.exchange(context, tag, other, mine.clone())?;
        put_framed(&mut both, &mine);
        put_framed(&mut both, &theirs);
    }
    let both = circle.broadcast(leader, both)?;
    let mut reader = Reader(&both);
    let (mine, theirs) = (
        Side::parse(reader.framed()?)?,
        Side::parse(reader.framed()?)?,
    );
    if let Some(p) = theirs.group.iter().find(|&&p| group.contains(p)) {
        return Err(err!(
            Comm,
            "process {p} of the job is in both the local and the remote group"
        ));
    }
    Ok(Arc::new(parent.inter_of(&mine, theirs, group.clone())))
}

impl Comm {
    /// One communicator of both groups (MPI_Intercomm_merge). Those whose `high` is false come
    /// first; if both sides say the same, the side whose leader has the smaller process number.
    /// Collective over both groups.
    ///
    /// Errors: `high` is not what this rank's leader has said (MPI 5.0 §7.6.2); those who say what
    /// it says do not hear of it.
    pub fn merge(self: &Arc<Comm>, high: bool) -> Result<Arc<Comm>> {
        let (local, remote) = self.sides()?;
        let circle = Circle::of_all(local)?;
        let tag = self.next_agreement();
        let mut mine = Vec::new();
        if circle.rank() == 0 {
            put(&mut mine, process().new_context().0);
            put(&mut mine, u64::from(high));
        }
        let (mine, theirs) = self.swap(&circle, tag, mine)?;
        let (mut mine, mut theirs) = (Reader(&mine), Reader(&theirs));
        let context = mine.context()?.min(theirs.context()?);
        let own = high;
        let (high, other) = (mine.number()? != 0, theirs.number()? != 0);
        if own != high {
            return Err(err!(
                Arg,
                "high is {own}, but the leader of this rank's group has said {high}: all ranks of \
                 a group must say the same"
            ));
        }
        let first = if high == other {
            self.group.process(0) < remote.process(0)
        } else {
            !high
        };
        let (low, up) = if first {
            (&self.group, remote)
        } else {
            (remote, &self.group)
        };
        let group = Group::new(
            low.iter().chain(up.iter()).collect::<Vec<_>>(),
            process().me,
        );
        Ok(Arc::new(self.child(context, group)))
    }

    /// Contexts for a duplicate: its own, and its local communicator's.
    pub(super) fn agree_contexts(&self) -> Result<(ContextId, ContextId)> {
        let (mine, theirs) = self.swap_offers(&Group::empty(process().me))?;
        Ok((mine.offered.min(theirs.offered), mine.local))
    }

    pub(super) fn create_inter(self: &Arc<Comm>, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
        let (mine, theirs) = self.swap_offers(group)?;
        if group.rank().is_none() || theirs.group.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.inter_of(&mine, theirs, group.clone()))))
    }

    pub(super) fn split_inter(
        self: &Arc<Comm>,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<Arc<Comm>>> {
        let (local, remote) = self.sides()?;
        let circle = Circle::of_all(local)?;
        let tag = self.next_agreement();
        let gathered = circle.gather(0, Choice { color, key }.bytes())?;
        let mut mine = Vec::new();
        if circle.rank() == 0 {
            // Two contexts for each colour: one offered, one for the local communicator.
            put_framed(
                &mut mine,
                &Choices::read(&gathered, || process().new_context())?.bytes(),
            );
            put_framed(
                &mut mine,
                &Choices::read(&gathered, || process().new_context())?.bytes(),
            );
        }
        let (mine, theirs) = self.swap(&circle, tag, mine)?;
        let Some(color) = color else { return Ok(None) };
        let mut reader = Reader(&mine);
        let (offered, private) = (
            Choices::parse(reader.framed()?)?,
            Choices::parse(reader.framed()?)?,
        );
        let other = Choices::parse(Reader(&theirs).framed()?)?;
        let far = other.members(color, remote);
        if far.is_empty() {
            return Ok(None);
        }
        let context = offered.context(color)?.min(other.context(color)?);
        let me = process().me;
        let near = Group::new(offered.members(color, &self.group), me);
        Ok(Some(Arc::new(self.inter(
            context,
            private.context(color)?,
            near,
            Group::new(far, me),
        ))))
    }

    /// The leaders swap `mine` (which counts at the leader only); all get both sides' words, the
    /// own one first.
    pub(super) fn swap(
        &self,
        circle: &Circle<'_>,
        tag: u32,
        mine: Vec<u8>,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut both = Vec::new();
        if circle.rank() == 0 {
            let theirs =
                circle.exchange(self.context.control(), tag, self.peer(0), mine.clone())?;
            put_framed(&mut both, &mine);
            put_framed(&mut both, &theirs);
        }
        let both = circle.broadcast(0, both)?;
        let mut reader = Reader(&both);
        Ok((reader.framed()?.to_vec(), reader.framed()?.to_vec()))
    }

    fn swap_offers(&self, group: &Group) -> Result<(Side, Side)> {
        let (local, _) = self.sides()?;
        let circle = Circle::of_all(local)?;
        let tag = self.next_agreement();
        let offer = if circle.rank() == 0 {
            Side::offer(group)
        } else {
            Vec::new()
        };
        let (mine, theirs) = self.swap(&circle, tag, offer)?;
        Ok((Side::parse(&mine)?, Side::parse(&theirs)?))
    }

    fn sides(&self) -> Result<(&Arc<Comm>, &Arc<Group>)> {
        match (&self.local, &self.remote) {
            (Some(local), Some(remote)) => Ok((local, remote)),
            _ => Err(err!(Comm, "the communicator is not an intercommunicator")),
        }
    }

    fn inter_of(&self, mine: &Side, theirs: Side, group: Arc<Group>) -> Comm {
        let remote = Group::new(theirs.group, process().me);
        self.inter(mine.offered.min(theirs.offered), mine.local, group, remote)
    }
}
