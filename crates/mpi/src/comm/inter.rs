//! Intercommunicators (MPI 5.0 §7.6): their creation, and communicators made from them.
//!
//! The leaders of the two groups exchange what the groups need to know about each other, and
//! broadcast it within their own group. Both leaders offer a context, and both take the smaller
//! one, so no further message is needed.

use super::Comm;
use super::agree::{Agreement, LeaderLink, Reader, put_framed, put_group, put_u64};
use super::create::{Choice, Choices};
use crate::device::ContextId;
use crate::dynamic::establish_communication;
use crate::dynamic::foreign::{self, ProcessName};
use crate::process::process;
use crate::{Group, Result, err};
use std::sync::Arc;

/// The path from one leader to the other.
pub struct PeerLeader<'a> {
    /// A communicator that has both leaders as members.
    pub peer_comm: &'a Arc<Comm>,
    /// The other leader's rank in it.
    pub remote_leader: u32,
}

/// What the leader of one group tells the other's about it.
struct Offer {
    /// The context that its leader offers for the new communicator.
    offered: ContextId,
    /// The context of its own local communicator.
    local: ContextId,
    group: Vec<ProcessName>,
}

impl Offer {
    /// Encodes what a leader offers for a communicator of `group`.
    fn encode(group: &Group) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_u64(&mut bytes, process().new_context().0);
        put_u64(&mut bytes, process().new_context().0);
        put_group(&mut bytes, group);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Offer> {
        let mut reader = Reader(bytes);
        Ok(Offer {
            offered: reader.context()?,
            local: reader.context()?,
            group: reader.processes()?,
        })
    }
}

/// An intercommunicator between `local`'s group and another, whose members make the same call
/// (MPI_Intercomm_create). The member `local_leader` passes `peer_leader`. `tag` distinguishes
/// concurrent calls through the same peer communicator. Collective over both groups.
///
/// Errors: Comm if the groups have common members.
pub fn intercomm_create(
    local: &Arc<Comm>,
    local_leader: u32,
    peer_leader: Option<PeerLeader<'_>>,
    tag: u32,
) -> Result<Arc<Comm>> {
    let agreement = Agreement::of_all(local)?;
    let link = peer_leader.map(|b| {
        // MPI_Comm_create_group uses the tagged context, too. Leaders use the upper half of the
        // tags, so the two never match.
        LeaderLink {
            context: b.peer_comm.context.tagged(),
            tag: tag | 1 << 31,
            process: b.peer_comm.peer(b.remote_leader),
            mine: b.peer_comm.rank(),
            theirs: b.remote_leader,
        }
    });
    create_between(&agreement, local_leader, link, local, &local.group)
}

/// An intercommunicator between `group`, the members of `agreement`, and another group. The member
/// `leader` passes the way to the other leader. The new communicator inherits from
/// `parent`.
pub(super) fn create_between(
    agreement: &Agreement<'_>,
    leader: u32,
    link: Option<LeaderLink>,
    parent: &Comm,
    group: &Arc<Group>,
) -> Result<Arc<Comm>> {
    let mut both = Vec::new();
    if agreement.rank() == leader {
        let Some(link) = &link else {
            return Err(err!(
                Comm,
                "the leader of the local group gave no peer communicator"
            ));
        };
        let mine = Offer::encode(group);
        // A leader that is in this group waits in the group's agreement, and would never answer.
        let theirs = match group.rank_of(link.process) {
            None => agreement.exchange(link, mine.clone())?,
            Some(_) => mine.clone(),
        };
        put_framed(&mut both, &mine);
        put_framed(&mut both, &theirs);
    }
    let both = agreement.broadcast(leader, both)?;
    let mut reader = Reader(&both);
    let (mine, theirs) = (
        Offer::parse(reader.framed()?)?,
        Offer::parse(reader.framed()?)?,
    );
    if let Some(name) = theirs.group.iter().find(|name| mine.group.contains(name)) {
        return Err(err!(
            Comm,
            "process {} of the job is in both the local and the remote group",
            name.rank
        ));
    }
    // Processes of several jobs may not know each other.
    let mut _connected_until_return = None;
    if foreign::span_jobs(mine.group.iter().chain(&theirs.group)) {
        let exchange = |bytes| match &link {
            Some(link) => agreement.exchange(link, bytes),
            None => Err(err!(
                Intern,
                "only the leader exchanges bytes with the other one"
            )),
        };
        let new = establish_communication(agreement, leader, &exchange, false)?;
        _connected_until_return = Some(new);
    }
    Ok(Arc::new(parent.inter_of(&mine, theirs, group.clone())?))
}

impl Comm {
    /// Merges both groups into one communicator (MPI_Intercomm_merge). The side with `high` false
    /// comes first. If both sides pass the same, the side whose leader has the smaller process
    /// number comes first. Collective over both groups.
    ///
    /// Errors: `high` differs from that of this rank's leader (MPI 5.0 §7.6.2). Ranks that agree
    /// with their leader do not get an error.
    pub fn merge(self: &Arc<Comm>, high: bool) -> Result<Arc<Comm>> {
        let (local, remote) = self.sides()?;
        let agreement = Agreement::of_all(local)?;
        let tag = self.next_agreement();
        let mut mine = Vec::new();
        if agreement.rank() == 0 {
            put_u64(&mut mine, process().new_context().0);
            put_u64(&mut mine, u64::from(high));
        }
        let (mine, theirs) = self.exchange(&agreement, tag, mine)?;
        let (mut mine, mut theirs) = (Reader(&mine), Reader(&theirs));
        let context = mine.context()?.min(theirs.context()?);
        let own = high;
        let (high, other) = (mine.u64()? != 0, theirs.u64()? != 0);
        if own != high {
            return Err(err!(
                Arg,
                "high is {own}, but the leader of this rank's group has said {high}: all ranks of \
                 a group must say the same"
            ));
        }
        let first = if high == other {
            foreign::name_of(self.group.process(0)) < foreign::name_of(remote.process(0))
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

    /// Contexts for a duplicate and for its local communicator.
    pub(super) fn agree_contexts(&self) -> Result<(ContextId, ContextId)> {
        let (mine, theirs) = self.exchange_offers(&Group::empty(process().me))?;
        Ok((mine.offered.min(theirs.offered), mine.local))
    }

    pub(super) fn create_inter(self: &Arc<Comm>, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
        let (mine, theirs) = self.exchange_offers(group)?;
        if group.rank().is_none() || theirs.group.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.inter_of(
            &mine,
            theirs,
            group.clone(),
        )?)))
    }

    pub(super) fn split_inter(
        self: &Arc<Comm>,
        color: Option<u32>,
        key: i32,
    ) -> Result<Option<Arc<Comm>>> {
        let (local, remote) = self.sides()?;
        let agreement = Agreement::of_all(local)?;
        let tag = self.next_agreement();
        let gathered = agreement.gather(0, Choice { color, key }.bytes())?;
        let mut mine = Vec::new();
        if agreement.rank() == 0 {
            // Two contexts for each colour: one is offered, one is for the local communicator.
            put_framed(
                &mut mine,
                &Choices::read(&gathered, || process().new_context())?.bytes(),
            );
            put_framed(
                &mut mine,
                &Choices::read(&gathered, || process().new_context())?.bytes(),
            );
        }
        let (mine, theirs) = self.exchange(&agreement, tag, mine)?;
        let Some(color) = color else { return Ok(None) };
        let mut reader = Reader(&mine);
        let (offered, private) = (
            Choices::parse(reader.framed()?)?,
            Choices::parse(reader.framed()?)?,
        );
        let other = Choices::parse(Reader(&theirs).framed()?)?;
        let remote_members = other.members(color, remote);
        if remote_members.is_empty() {
            return Ok(None);
        }
        let context = offered.context(color)?.min(other.context(color)?);
        let me = process().me;
        let local_group = Group::new(offered.members(color, &self.group), me);
        Ok(Some(Arc::new(self.inter(
            context,
            private.context(color)?,
            local_group,
            Group::new(remote_members, me),
        ))))
    }

    /// Exchanges bytes between the leaders. `mine` matters at the leader only. All members get the
    /// bytes of both sides, those of their own side first.
    pub(super) fn exchange(
        &self,
        agreement: &Agreement<'_>,
        tag: u32,
        mine: Vec<u8>,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut both = Vec::new();
        if agreement.rank() == 0 {
            let link = LeaderLink {
                context: self.context.control(),
                tag,
                process: self.peer(0),
                mine: 0,
                theirs: 0,
            };
            let theirs = agreement.exchange(&link, mine.clone())?;
            put_framed(&mut both, &mine);
            put_framed(&mut both, &theirs);
        }
        let both = agreement.broadcast(0, both)?;
        let mut reader = Reader(&both);
        Ok((reader.framed()?.to_vec(), reader.framed()?.to_vec()))
    }

    fn exchange_offers(&self, group: &Group) -> Result<(Offer, Offer)> {
        let (local, _) = self.sides()?;
        let agreement = Agreement::of_all(local)?;
        let tag = self.next_agreement();
        let offer = if agreement.rank() == 0 {
            Offer::encode(group)
        } else {
            Vec::new()
        };
        let (mine, theirs) = self.exchange(&agreement, tag, offer)?;
        Ok((Offer::parse(&mine)?, Offer::parse(&theirs)?))
    }

    fn sides(&self) -> Result<(&Arc<Comm>, &Arc<Group>)> {
        match (&self.local, &self.remote) {
            (Some(local), Some(remote)) => Ok((local, remote)),
            _ => Err(err!(Comm, "the communicator is not an intercommunicator")),
        }
    }

    fn inter_of(&self, mine: &Offer, theirs: Offer, group: Arc<Group>) -> Result<Comm> {
        let remote = Group::new(foreign::processes(&theirs.group)?, process().me);
        let context = mine.offered.min(theirs.offered);
        Ok(self.inter(context, mine.local, group, remote))
    }
}
