//! How the lowest rank of a node hands its memory segment to the others where no launcher of
//! Ferry's passes it.
//!
//! Through a socket with a random abstract name that only the job's store tells. Both ends ask the
//! kernel who the other is and accept nobody but their own user; who knocks also has to know the
//! job's key.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, recvmsg, send, sendmsg, socket_with, sockopt,
};

use super::{fresh, launcher_error};
use crate::PROTOCOL;
use crate::client::JobError;
use crate::segment::Segment;

/// All ranks of a node are in MPI_Init when it begins: they come at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who is let in has so long to say who it is.
const WORD: Duration = Duration::from_secs(2);
/// Key, local rank, protocol.
const KNOCK: usize = 32 + 4 + 4;

/// The lowest rank's open door.
pub(super) struct Giver {
    door: OwnedFd,
    name: [u8; 22],
}

fn refused(attempted: &str) -> impl Fn(Errno) -> JobError + '_ {
    move |cause| JobError::Refused {
        attempted: attempted.into(),
        cause: cause.into(),
        advice: "the ranks of a node share memory through it; are they in containers of their own?",
    }
}

fn new_socket() -> Result<OwnedFd, JobError> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(refused("making a unix socket"))
}

/// Does the other end belong to this process's user?
fn is_own(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Waits until a descriptor is readable; `false` if it takes too long.
fn readable(fd: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Ok(n) => return n > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

impl Giver {
    /// Opens the door; others may come from now on.
    pub(super) fn open() -> Result<Giver, JobError> {
        let mut name = *b"ferry-................";
        let random = fresh()?;
        for (letter, byte) in name[6..].iter_mut().zip(random) {
            *letter = b'a' + byte % 26;
        }
        let door = new_socket()?;
        let address =
            SocketAddrUnix::new_abstract_name(&name).map_err(refused("a socket's name"))?;
        bind(&door, &address).map_err(refused("binding a unix socket"))?;
        listen(&door, 4096).map_err(refused("listening at a unix socket"))?;
        Ok(Giver { door, name })
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Gives the segment to the other ranks of the node, all `ranks` but the lowest. Blocks until
    /// all have it.
    pub(super) fn give(
        &self,
        segment: &Segment,
        key: &[u8; 32],
        ranks: u32,
    ) -> Result<(), JobError> {
        let mut here = vec![false; ranks as usize];
        here[0] = true;
        let until = Instant::now() + PATIENCE;
        while here.contains(&false) {
            if !readable(&self.door, until) {
                let missing = here.iter().filter(|h| !**h).count();
                return Err(launcher_error(format!(
                    "{missing} of the {ranks} ranks that the launcher says are on this node have \
                     not come for its shared memory in {} s; are they in containers or network \
                     namespaces of their own?",
                    PATIENCE.as_secs()
                )));
            }
            let Ok(guest) = accept_with(&self.door, SocketFlags::CLOEXEC) else {
                continue;
            };
            if !is_own(&guest) || !readable(&guest, Instant::now() + WORD) {
                continue;
            }
            let mut said = [0u8; KNOCK + 1];
            let Ok((n, _)) = recv(&guest, said.as_mut_slice(), RecvFlags::DONTWAIT) else {
                continue;
            };
            let Some(rank) = read_knock(&said[..n], key).filter(|&r| r < ranks) else {
                continue;
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let fds = [segment.fd.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if sendmsg(&guest, &[IoSlice::new(b"here")], &mut ancillary, flags).is_ok() {
                here[rank as usize] = true;
            }
        }
        Ok(())
    }
}

fn knock(key: &[u8; 32], local_rank: u32) -> Vec<u8> {
    let (rank, protocol) = (local_rank.to_le_bytes(), PROTOCOL.to_le_bytes());
    [&key[..], &rank, &protocol].concat()
}

/// The local rank of a guest who knows the key.
fn read_knock(said: &[u8], key: &[u8; 32]) -> Option<u32> {
    let (their_key, rest) = said.split_first_chunk::<32>()?;
    let (rank, protocol) = rest.split_first_chunk::<4>()?;
    // All bytes are looked at, so that the time it takes tells nothing.
    let different = their_key.iter().zip(key).fold(0, |d, (a, b)| d | (a ^ b));
    (std::hint::black_box(different) == 0 && protocol == PROTOCOL.to_le_bytes())
        .then(|| u32::from_le_bytes(*rank))
}

/// Gets the node's segment from its lowest rank.
pub(super) fn take(door: &[u8], key: &[u8; 32], local_rank: u32) -> Result<OwnedFd, JobError> {
    let what = "getting the node's shared memory from its lowest rank";
    let socket = new_socket()?;
    let address = SocketAddrUnix::new_abstract_name(door).map_err(refused(what))?;
    connect(&socket, &address).map_err(refused(what))?;
    if !is_own(&socket) {
        return Err(launcher_error(format!(
            "{what}: it belongs to another user"
        )));
    }
    send(&socket, &knock(key, local_rank), SendFlags::NOSIGNAL).map_err(refused(what))?;
    if !readable(&socket, Instant::now() + PATIENCE) {
        return Err(launcher_error(format!("{what}: it does not answer")));
    }
    let mut word = [0u8; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut word)],
        &mut ancillary,
        RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(refused(what))?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(launcher_error(format!(
        "{what}: it has refused; do all ranks run the same version of Ferry?"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_goes_to_those_who_know_the_key() {
        let giver = Giver::open().unwrap();
        let name = giver.name;
        let (key, wrong) = ([5u8; 32], [6u8; 32]);
        let guests = std::thread::spawn(move || {
            let refused = take(&name, &wrong, 1).is_err();
            let out_of_range = take(&name, &key, 9).is_err();
            let first = take(&name, &key, 1).unwrap();
            let second = take(&name, &key, 2).unwrap();
            (refused, out_of_range, first, second)
        });
        let segment = Segment::create(3).unwrap();
        giver.give(&segment, &key, 3).unwrap();
        let (refused, out_of_range, first, _) = guests.join().unwrap();
        assert!(refused && out_of_range);
        let opened = Segment::open(first, 3, segment.layout.total()).unwrap();
        assert_eq!(opened.statuses().len(), 3);
    }

    #[test]
    fn fuzz_knocks() {
        let key = [7u8; 32];
        let seeds = [knock(&key, 3), knock(&[8; 32], 3)];
        ferry_fuzz::fuzz("knocks", &seeds, |bytes| {
            let read = read_knock(bytes, &key);
            assert!(read.is_none() || bytes.starts_with(&key));
            read.is_some()
        });
    }
}
