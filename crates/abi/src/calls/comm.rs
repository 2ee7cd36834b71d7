//! Communicators (MPI 5.0 §7.4 to §7.6, §7.8).

use super::group::number_of;
use crate::prelude::*;
use ferry_mpi::comm::{self, Hints, PeerLeader, SplitType};
use ferry_mpi::dynamic::foreign;

pub fn comm_size(comm: CommRef, size: Out<i32>) -> Result<()> {
    size.set(comm.size() as i32);
    Ok(())
}

pub fn comm_rank(comm: CommRef, rank: Out<i32>) -> Result<()> {
    rank.set(comm.rank() as i32);
    Ok(())
}

pub fn comm_compare(comm1: CommRef, comm2: CommRef, result: Out<i32>) -> Result<()> {
    comm1
        .group
        .check_same_origin(&comm2.group)
        .map_err(|mismatch| err!(Comm, "one communicator {mismatch}"))?;
    result.set(number_of(comm1.compare(comm2)));
    Ok(())
}

pub fn comm_test_inter(comm: CommRef, flag: OutFlag) -> Result<()> {
    flag.set(comm.is_inter());
    Ok(())
}

pub fn comm_remote_size(comm: CommRef, size: Out<i32>) -> Result<()> {
    size.set(comm.remote_group().size() as i32);
    Ok(())
}

// A group that is asked for is a new object: the program frees it by itself.

pub fn comm_group(comm: CommRef, group: New<Group>) -> Result<()> {
    group.set(comm.group.duplicate());
    Ok(())
}

pub fn comm_remote_group(comm: CommRef, group: New<Group>) -> Result<()> {
    group.set(comm.remote_group().duplicate());
    Ok(())
}

pub fn comm_dup(comm: CommRef, newcomm: New<Comm>) -> Result<()> {
    newcomm.set(comm.duplicate(&Hints::default())?);
    Ok(())
}

pub fn comm_dup_with_info(comm: CommRef, info: Option<InfoRef>, newcomm: New<Comm>) -> Result<()> {
    newcomm.set(comm.duplicate(&hints(info))?);
    Ok(())
}

fn idup(comm: CommRef, hints: Hints, newcomm: New<Comm>, request: Out<Handle>) -> Result<()> {
    // The program gets its handle now; it must not use it before completion (MPI 5.0 §7.4.2).
    let reserved = handle::reserve(comm.clone());
    let ready = Box::new(move |duplicate| handle::fill(reserved, duplicate));
    match comm.idup(hints, ready) {
        Ok(started) => {
            newcomm.set_handle(reserved);
            request.set(handle::insert(started));
            Ok(())
        }
        Err(e) => {
            drop(handle::remove::<Comm>(reserved));
            Err(e)
        }
    }
}

pub fn comm_idup(comm: CommRef, newcomm: New<Comm>, request: Out<Handle>) -> Result<()> {
    idup(comm, Hints::default(), newcomm, request)
}

pub fn comm_idup_with_info(
    comm: CommRef,
    info: Option<InfoRef>,
    newcomm: New<Comm>,
    request: Out<Handle>,
) -> Result<()> {
    idup(comm, hints(info), newcomm, request)
}

pub fn comm_create(comm: CommRef, group: GroupRef, newcomm: New<Comm>) -> Result<()> {
    newcomm.set_or_null(comm.create(group)?);
    Ok(())
}

pub fn comm_create_group(
    comm: CommRef,
    group: GroupRef,
    tag: u32,
    newcomm: New<Comm>,
) -> Result<()> {
    newcomm.set_or_null(comm.create_group(group, tag)?);
    Ok(())
}

pub fn comm_split(comm: CommRef, color: i32, key: i32, newcomm: New<Comm>) -> Result<()> {
    let color = match color {
        constants::MPI_UNDEFINED => None,
        c if c >= 0 => Some(c as u32),
        c => {
            return Err(err!(
                Arg,
                "color is {c}: it has to be MPI_UNDEFINED or not negative"
            ));
        }
    };
    newcomm.set_or_null(comm.split(color, key)?);
    Ok(())
}

pub fn comm_split_type(
    comm: CommRef,
    split_type: i32,
    key: i32,
    info: Option<InfoRef>,
    newcomm: New<Comm>,
) -> Result<()> {
    let how = match split_type {
        constants::MPI_UNDEFINED => None,
        constants::MPI_COMM_TYPE_SHARED => Some(SplitType::Shared),
        constants::MPI_COMM_TYPE_HW_GUIDED => Some(SplitType::HardwareGuided),
        constants::MPI_COMM_TYPE_HW_UNGUIDED => Some(SplitType::HardwareUnguided),
        constants::MPI_COMM_TYPE_RESOURCE_GUIDED => Some(SplitType::ResourceGuided),
        t => {
            return Err(err!(
                Arg,
                "split_type is {t}, which is no MPI_COMM_TYPE_ constant"
            ));
        }
    };
    let hints = hints(info);
    hints.check()?;
    let (new, kind) = comm.split_type(how, key, &hints)?;
    if let Some(new) = &new {
        new.set_hints(&hints)?;
    }
    if let (Some(kind), Some(info)) = (kind, info) {
        info.set(b"mpi_hw_resource_type", kind.as_bytes());
    }
    newcomm.set_or_null(new);
    Ok(())
}

pub fn intercomm_create(
    local_comm: CommRef,
    local_leader: i32,
    peer_comm: Handle,
    remote_leader: i32,
    tag: u32,
    newintercomm: New<Comm>,
) -> Result<()> {
    if !(0..local_comm.size() as i32).contains(&local_leader) {
        let size = local_comm.size();
        return Err(err!(
            Rank,
            "local_leader is {local_leader}, but local_comm has {size} ranks"
        ));
    }
    // What follows counts at the leader only.
    let peer_leader = if local_leader as u32 == local_comm.rank() {
        let peer_comm = args::comm(peer_comm, "peer_comm")?;
        local_comm.group.check_origin(&peer_comm.group)?;
        match args::dest(remote_leader, "remote_leader", peer_comm)? {
            Dest::Rank(remote_leader) => Some(PeerLeader {
                peer_comm,
                remote_leader,
            }),
            Dest::ProcNull => return Err(err!(Rank, "remote_leader is MPI_PROC_NULL")),
        }
    } else {
        None
    };
    newintercomm.set(comm::intercomm_create(
        local_comm,
        local_leader as u32,
        peer_leader,
        tag,
    )?);
    Ok(())
}

pub fn intercomm_merge(intercomm: CommRef, high: bool, newintracomm: New<Comm>) -> Result<()> {
    newintracomm.set(intercomm.merge(high)?);
    Ok(())
}

pub fn comm_free(comm: InOutHandle<Comm>) -> Result<()> {
    deletable(&comm)?;
    comm.object().free()?;
    drop(comm.free()?);
    foreign::release_unused();
    Ok(())
}

pub fn comm_disconnect(comm: InOutHandle<Comm>) -> Result<()> {
    deletable(&comm)?;
    comm.object().disconnect()?;
    drop(comm.free()?);
    foreign::release_unused();
    Ok(())
}

fn deletable(comm: &InOutHandle<Comm>) -> Result<()> {
    if comm.is_predefined() {
        let name = String::from_utf8_lossy(&comm.object().name()).into_owned();
        return Err(err!(
            Comm,
            "comm is predefined ({name}) and cannot be freed"
        ));
    }
    Ok(())
}

pub fn comm_set_name(comm: CommRef, comm_name: &CStr) -> Result<()> {
    comm.rename(comm_name.to_bytes());
    Ok(())
}

pub fn comm_get_name(comm: Handle, comm_name: OutText, resultlen: Out<i32>) -> Result<()> {
    // The null handle has a name, too (MPI 5.0 §7.8).
    let name = match comm {
        constants::MPI_COMM_NULL => b"MPI_COMM_NULL".to_vec(),
        comm => args::comm(comm, "comm")?.name(),
    };
    resultlen.set(comm_name.set(&name));
    Ok(())
}

pub fn comm_set_info(comm: CommRef, info: Option<InfoRef>) -> Result<()> {
    comm.set_hints(&hints(info))
}

pub fn comm_get_info(comm: CommRef, info_used: New<Info>) -> Result<()> {
    info_used.set(Info::of(comm.hints().0));
    Ok(())
}

pub fn hints(info: Option<InfoRef>) -> Hints {
    info.map(|info| Hints::from(&**info)).unwrap_or_default()
}
