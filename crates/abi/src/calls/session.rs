//! Sessions (MPI 5.0 §11.3), and communicators made from groups alone (§7.4.2, §7.6.2).

use super::comm::hints;
use super::pt2pt::{attach, detach};
use super::{env, errhandler as handlers};
use crate::entry;
use crate::prelude::*;
use ferry_mpi::comm;
use ferry_mpi::errhandler::Target;
use ferry_mpi::pt2pt::{self, PoolOwner};
use ferry_mpi::session::ProcessSet;

pub fn session_init(
    info: Option<InfoRef>,
    errhandler: ErrhandlerRef,
    session: New<Session>,
) -> Result<()> {
    handlers::check(errhandler, Target::Session)?;
    let wish = match info.and_then(|i| i.text("thread_level")) {
        None => None,
        Some(text) => Some(env::level_named(text.trim()).ok_or_else(|| {
            err!(
                InfoValue,
                "thread_level is {text:?}, which is no level of thread support"
            )
        })?),
    };
    let new = Session::open(wish, errhandler)?;
    entry::session_begins();
    session.set(new);
    Ok(())
}

pub fn session_finalize(session: InOutHandle<Session>) -> Result<()> {
    session.free()?.close();
    entry::session_ends();
    Ok(())
}

pub fn session_get_info(session: SessionRef, info_used: New<Info>) -> Result<()> {
    info_used.set(Info::of([
        ("thread_level", env::name_of(session.thread_level())),
        ("mpi_memory_alloc_kinds", "mpi,system"),
    ]));
    Ok(())
}

pub fn session_get_num_psets(
    _session: SessionRef,
    _info: Option<InfoRef>,
    npset_names: Out<i32>,
) -> Result<()> {
    npset_names.set(ProcessSet::ALL.len() as i32);
    Ok(())
}

/// `pset_len`: on entry the size of the buffer, on return the size needed, both with the final
/// null.
pub fn session_get_nth_pset(
    _session: SessionRef,
    _info: Option<InfoRef>,
    n: i32,
    pset_len: &mut i32,
    pset_name: *mut c_char,
) -> Result<()> {
    let room = usize::try_from(*pset_len)
        .map_err(|_| err!(Arg, "pset_len is {pset_len}, which is negative"))?;
    let set = usize::try_from(n)
        .ok()
        .and_then(|n| ProcessSet::ALL.get(n))
        .ok_or_else(|| {
            err!(
                Arg,
                "n is {n}, but there are {} process sets",
                ProcessSet::ALL.len()
            )
        })?;
    let name = set.name();
    if room > 0 {
        // SAFETY: the program's room is as large as it says.
        unsafe { OutText::new(pset_name, room, "pset_name") }?.set(name);
    }
    *pset_len = name.len() as i32 + 1;
    Ok(())
}

fn set_named(name: &CStr) -> Result<ProcessSet> {
    ProcessSet::named(name.to_bytes())
        .ok_or_else(|| err!(Arg, "pset_name is {name:?}, which is no process set"))
}

pub fn session_get_pset_info(
    _session: SessionRef,
    pset_name: &CStr,
    info: New<Info>,
) -> Result<()> {
    let set = set_named(pset_name)?;
    info.set(Info::of([("mpi_size", set.size().to_string())]));
    Ok(())
}

pub fn group_from_session_pset(
    session: SessionRef,
    pset_name: &CStr,
    newgroup: New<Group>,
) -> Result<()> {
    // Unchanged if there is no such set (MPI 5.0 §11.3.2).
    newgroup.set_handle(constants::MPI_GROUP_NULL);
    newgroup.set(session.group(set_named(pset_name)?));
    Ok(())
}

pub fn session_attach_buffer(session: SessionRef, buffer: *mut c_void, size: i64) -> Result<()> {
    attach(&session.buffers, buffer, size)
}

pub fn session_detach_buffer(
    session: SessionRef,
    buffer_addr: OutPointer,
    size: OutCount,
) -> Result<()> {
    detach(&session.buffers, buffer_addr, size)
}

pub fn session_flush_buffer(session: SessionRef) -> Result<()> {
    session.buffers.flush();
    Ok(())
}

pub fn session_iflush_buffer(session: SessionRef, request: Out<Handle>) -> Result<()> {
    let owner = PoolOwner::Session(session.clone());
    request.set(handle::insert(pt2pt::iflush(owner)));
    Ok(())
}

pub fn comm_create_from_group(
    group: GroupRef,
    stringtag: &CStr,
    info: Option<InfoRef>,
    errhandler: ErrhandlerRef,
    newcomm: New<Comm>,
) -> Result<()> {
    handlers::check(errhandler, Target::Comm)?;
    let hints = hints(info);
    hints.check()?;
    let new = comm::create_from_group(group, stringtag.to_bytes())?;
    if let Some(new) = &new {
        new.set_hints(&hints)?;
        new.errhandler.set(errhandler);
    }
    newcomm.set_or_null(new);
    Ok(())
}

pub fn intercomm_create_from_groups(
    local_group: GroupRef,
    local_leader: i32,
    remote_group: GroupRef,
    remote_leader: i32,
    stringtag: &CStr,
    info: Option<InfoRef>,
    errhandler: ErrhandlerRef,
    newintercomm: New<Comm>,
) -> Result<()> {
    handlers::check(errhandler, Target::Comm)?;
    let leader = |rank: i32, group: &Group, name: &str| match u32::try_from(rank) {
        Ok(rank) if rank < group.size() => Ok(rank),
        _ => Err(err!(
            Rank,
            "{name} is {rank}, but the group has {} processes",
            group.size()
        )),
    };
    let near = leader(local_leader, local_group, "local_leader")?;
    // The other group matters at the leader only.
    let other = match local_group.rank() {
        Some(rank) if rank == near => {
            local_group.check_origin(remote_group)?;
            Some(remote_group.process(leader(remote_leader, remote_group, "remote_leader")?))
        }
        _ => None,
    };
    let hints = hints(info);
    hints.check()?;
    let new = comm::intercomm_create_from_groups(local_group, near, other, stringtag.to_bytes())?;
    new.set_hints(&hints)?;
    new.errhandler.set(errhandler);
    newintercomm.set(new);
    Ok(())
}
