//! Glue of chapter session.

use super::comm::hints;
use crate::prelude::*;
use ferry_mpi::comm;

pub fn comm_create_from_group(
    group: &'static Arc<Group>,
    stringtag: &CStr,
    info: Option<&'static Arc<Info>>,
    errhandler: &'static Arc<Errhandler>,
    newcomm: New<Comm>,
) -> Result<()> {
    let new = comm::create_from_group(group, stringtag.to_bytes())?;
    if let Some(new) = &new {
        new.set_hints(&hints(info));
        new.errhandler.set(errhandler);
    }
    newcomm.set_or_null(new);
    Ok(())
}

pub fn intercomm_create_from_groups(
    local_group: &'static Arc<Group>,
    local_leader: i32,
    remote_group: &'static Arc<Group>,
    remote_leader: i32,
    stringtag: &CStr,
    info: Option<&'static Arc<Info>>,
    errhandler: &'static Arc<Errhandler>,
    newintercomm: New<Comm>,
) -> Result<()> {
    let leader = |rank: i32, group: &Group, name: &str| match u32::try_from(rank) {
        Ok(rank) if rank < group.size() => Ok(rank),
        _ => Err(err!(Rank, "{name} is {rank}, but the group has {} processes", group.size())),
    };
    let near = leader(local_leader, local_group, "local_leader")?;
    // The other group counts at the leader only.
    let other = match local_group.rank() {
        Some(rank) if rank == near => Some(remote_group.process(leader(remote_leader, remote_group, "remote_leader")?)),
        _ => None,
    };
    let new = comm::intercomm_create_from_groups(local_group, near, other, stringtag.to_bytes())?;
    new.set_hints(&hints(info));
    new.errhandler.set(errhandler);
    newintercomm.set(new);
    Ok(())
}
