//! How a rank finds its job.

use std::env;
use std::fmt::Display;
use std::io::{IoSliceMut, Result as IoResult};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketType, recvmsg, sockopt,
};

use crate::business_cards::LauncherDirectory;
use crate::error::JobError;
use crate::job_context::{JobContext, host_name};
use crate::other_launcher;
use crate::watched::tell_started;
use crate::{Client, Cores, RankInfo, Segment, new_key};

/// Environment variable that names the descriptor of the rank's socket.
pub const LAUNCH_FD: &str = "FERRY_LAUNCH_FD";

/// Finds this process's job. Under mpiexec it reads the rank info from the socket that
/// `FERRY_LAUNCH_FD` names, which does not block. Under another launcher (PMI, PMIx) it is
/// collective over the job, and blocks until all ranks are here. Without a launcher it makes a job
/// of one rank.
///
/// To be called once: the rank info is taken out of the socket, and the socket belongs to the
/// context from then on.
///
/// # Errors
/// [`JobError::Launcher`] if the environment names a launcher that cannot be reached. Such a
/// process was meant to be a rank; as a job of its own it would do the wrong thing.
pub fn join() -> Result<JobContext, JobError> {
    match env::var_os(LAUNCH_FD) {
        None => match other_launcher::find() {
            None => Ok(alone()),
            Some(found) => {
                tell_started();
                found.and_then(other_launcher::join)
            }
        },
        Some(value) => match value
            .to_str()
            .and_then(|v| v.trim().parse::<RawFd>().ok())
            .filter(|&fd| fd >= 0)
        {
            Some(fd) => join_through(fd),
            None => Err(JobError::Launcher(format!(
                "{LAUNCH_FD} is {value:?}, which is no file descriptor number; start the program \
                 with mpiexec, or unset {LAUNCH_FD}"
            ))),
        },
    }
}

/// A job of one rank.
fn alone() -> JobContext {
    // Other jobs know the process by the number, so it is random if the system has random numbers.
    let random = new_key().unwrap_or_default();
    let random = u64::from_le_bytes(std::array::from_fn(|i| random[i]));
    let cores = Cores::counted().usable() as u32;
    let rank_info = RankInfo {
        job: random ^ u64::from(std::process::id()),
        cores,
        universe: cores.max(1),
        ..RankInfo::on_one_host(0, 1, &host_name())
    };
    JobContext {
        rank_info,
        segment: None,
        status: Box::leak(Box::default()),
        client: None,
        directory: None,
    }
}

/// Joins the job whose launcher is at the other end of the socket `number`.
pub(crate) fn join_through(number: RawFd) -> Result<JobContext, JobError> {
    let socket = launcher_socket(number)?;
    let (rank_info, fds) = receive_rank_info(socket.as_fd(), number)?;
    let mut fds = fds.into_iter();
    let (Some(fd), machine) = (fds.next(), fds.next()) else {
        return Err(unreachable_launcher(
            number,
            "the node's memory segment did not come with the welcome; is RLIMIT_NOFILE (ulimit -n) \
             reached in this process?",
        ));
    };
    let mut segment = Segment::open(
        fd,
        rank_info.local_ranks.len() as u32,
        Some(rank_info.segment_len),
    )?;
    segment.machine = machine;
    segment.interfaces.extend(fds);
    let status = segment
        .status(rank_info.local_rank)
        .ok_or_else(|| unreachable_launcher(number, "its welcome contradicts the segment"))?;
    let socket = Arc::new(socket);
    Ok(JobContext {
        rank_info,
        segment: Some(segment),
        status,
        directory: Some(Box::new(LauncherDirectory::new(socket.clone()))),
        client: Some(Client::of_mpiexec(socket)),
    })
}

fn unreachable_launcher(number: RawFd, why: impl Display) -> JobError {
    JobError::Launcher(format!(
        "this program was started by mpiexec ({LAUNCH_FD}={number}), but its launcher cannot be \
         spoken to: {why}"
    ))
}

/// Takes the socket to the launcher.
fn launcher_socket(number: RawFd) -> Result<OwnedFd, JobError> {
    // Not ours until it is known to be a socket. The variable may have outlived the descriptor, and
    // the number may be another file's.
    // SAFETY: only a number so far; fcntl and getsockopt on a closed one say EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    match sockopt::socket_type(borrowed) {
        Ok(SocketType::SEQPACKET) => {}
        Ok(_) | Err(Errno::NOTSOCK) => {
            return Err(unreachable_launcher(
                number,
                "the descriptor is something else now. Was this program started by a rank of an \
                 MPI job? Use mpiexec for it too, or unset FERRY_LAUNCH_FD",
            ));
        }
        Err(Errno::BADF) => {
            return Err(unreachable_launcher(
                number,
                "the descriptor is closed. Does a wrapper close its descriptors, or was this \
                 program started by a rank that is in MPI itself? Use mpiexec for it too, or unset \
                 FERRY_LAUNCH_FD",
            ));
        }
        Err(e) => return Err(unreachable_launcher(number, e)),
    }
    fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(|e| unreachable_launcher(number, e))?;
    // SAFETY: open, a socket, and passed by mpiexec to this process for nobody else to use.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Receives the rank info, and the descriptors that come with it.
fn receive_rank_info(
    socket: BorrowedFd<'_>,
    number: RawFd,
) -> Result<(RankInfo, Vec<OwnedFd>), JobError> {
    let received = receive_packet(socket).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::AGAIN) => unreachable_launcher(
            number,
            "its welcome has been taken already; another process of this rank has initialised MPI. \
             Only one process for each rank that mpiexec starts can",
        ),
        Some(Errno::CONNRESET) => unreachable_launcher(number, "mpiexec has gone"),
        _ => unreachable_launcher(number, e),
    });
    let (bytes, fds) = received?;
    if bytes.is_empty() {
        return Err(unreachable_launcher(number, "mpiexec has gone"));
    }
    let rank_info = RankInfo::decode(&bytes).map_err(|e| {
        unreachable_launcher(number, format_args!("its welcome cannot be read: {e}"))
    })?;
    Ok((rank_info, fds))
}

/// Receives the packet and the descriptors that came with it: the segment, the memory of a modelled
/// machine, and a network interface on it.
fn receive_packet(socket: BorrowedFd<'_>) -> IoResult<(Vec<u8>, Vec<OwnedFd>)> {
    loop {
        // The packet's length is asked first: it grows with the ranks of the node.
        let needed = rustix::net::recv(
            socket,
            &mut [0u8; 1],
            RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT,
        )?
        .1;
        let mut bytes = vec![0u8; needed];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            flags,
        ) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut found = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                found.extend(fds);
            }
        }
        bytes.truncate(if got.flags.contains(ReturnFlags::TRUNC) {
            0
        } else {
            got.bytes
        });
        return Ok((bytes, found));
    }
}
