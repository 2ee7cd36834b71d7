//! Communicators made from groups, without a parent (MPI 5.0 §7.4.2, §7.6.2).
//!
//! Messages about them travel in a context of their own. The program's string tag distinguishes
//! concurrent calls.

use super::Comm;
use super::agree::{Agreement, LeaderLink, Reader, put_u64};
use super::inter::create_between;
use crate::device::{ContextId, ProcId};
use crate::process::process;
use crate::{Group, Result};
use std::sync::Arc;

/// The tagged context of MPI_COMM_SELF. It is free, because a single process needs no agreement.
fn context() -> ContextId {
    ContextId::SELF.tagged()
}

/// Maps the string tag to the lower half of the tags (FNV-1a hash).
fn tag_of(text: &[u8]) -> u32 {
    let hash = text.iter().fold(0x811c_9dc5u32, |h, &b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    hash >> 1
}

/// A communicator of `group`, whose members make the same call (MPI_Comm_create_from_group). `None`
/// if the group is empty. Blocks until all members have called it.
///
/// Errors: Other if a member is lost.
pub fn create_from_group(group: &Arc<Group>, tag: &[u8]) -> Result<Option<Arc<Comm>>> {
    if group.size() == 0 {
        return Ok(None);
    }
    let agreement = Agreement::new(&process().world, context(), tag_of(tag), group)?;
    let mut bytes = Vec::new();
    if agreement.rank() == 0 {
        put_u64(&mut bytes, process().new_context().0);
    }
    let context = Reader(&agreement.broadcast(0, bytes)?).context()?;
    Ok(Some(Arc::new(Comm::intra(context, group.clone()))))
}

/// An intercommunicator between `group` and another, whose members make the same call
/// (MPI_Intercomm_create_from_groups). The member `leader` passes the process of the other leader.
/// Blocks until all members of both groups have called it.
///
/// Errors: Comm if the groups have common members; Other if a member is lost.
pub fn intercomm_create_from_groups(
    group: &Arc<Group>,
    leader: u32,
    other: Option<ProcId>,
    tag: &[u8],
) -> Result<Arc<Comm>> {
    let world = &process().world;
    let agreement = Agreement::new(world, context(), tag_of(tag), group)?;
    let rank_of = |process| world.group.rank_of(process).unwrap_or(0);
    let link = other.map(|other| LeaderLink {
        context: context(),
        tag: tag_of(tag) | 1 << 31,
        process: other,
        mine: world.rank(),
        theirs: rank_of(other),
    });
    create_between(&agreement, leader, link, world, group)
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_become_tags_of_the_lower_half() {
        let tags = ["", "a", "b", "org.example.comm", "org.example.comn"]
            .map(|t| super::tag_of(t.as_bytes()));
        assert!(tags.iter().all(|t| *t < 1 << 31));
        for (i, a) in tags.iter().enumerate() {
            assert!(tags[..i].iter().all(|b| a != b));
        }
    }
}
