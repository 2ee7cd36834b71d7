//! The lowest rank of a node hands the node's segment to the others, under launchers that do not
//! pass it.
//!
//! It goes through a socket with a random abstract name, which only the job's store tells. Both
//! ends ask the kernel for the peer's user and accept only their own. The client must also know the
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

use super::encoding::random_bytes;
use super::kvs::launcher_error;
use crate::PROTOCOL;
use crate::error::JobError;
use crate::segment::Segment;

/// How long ranks wait for each other here. All are in MPI_Init when it begins, so only a lost rank
/// takes longer.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take to send its request. It sends it right after it has connected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a request: key, local rank, protocol version.
const REQUEST_BYTES: usize = 32 + 4 + 4;

/// The listening socket of the lowest rank.
pub(super) struct SegmentServer {
    socket: OwnedFd,
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

/// Does the peer belong to this process's user?
fn is_own(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Waits until a descriptor is readable. `false` after the timeout.
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

impl SegmentServer {
    /// Opens the listening socket.
    pub(super) fn open() -> Result<SegmentServer, JobError> {
        let mut name = *b"ferry-................";
        let random = random_bytes()?;
        for (letter, byte) in name[6..].iter_mut().zip(random) {
            *letter = b'a' + byte % 26;
        }
        let socket = new_socket()?;
        let address =
            SocketAddrUnix::new_abstract_name(&name).map_err(refused("a socket's name"))?;
        bind(&socket, &address).map_err(refused("binding a unix socket"))?;
        listen(&socket, 4096).map_err(refused("listening at a unix socket"))?;
        Ok(SegmentServer { socket, name })
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Sends the segment to the other ranks of the node, `ranks` with the lowest. Blocks until all
    /// have it.
    pub(super) fn serve(
        &self,
        segment: &Segment,
        key: &[u8; 32],
        ranks: u32,
    ) -> Result<(), JobError> {
        let mut here = vec![false; ranks as usize];
        here[0] = true;
        let until = Instant::now() + HANDOVER_TIMEOUT;
        while here.contains(&false) {
            if !readable(&self.socket, until) {
                let missing = here.iter().filter(|h| !**h).count();
                return Err(launcher_error(format!(
                    "{missing} of the {ranks} ranks that the launcher says are on this node have \
                     not come for its shared memory in {} s; are they in containers or network \
                     namespaces of their own?",
                    HANDOVER_TIMEOUT.as_secs()
                )));
            }
            let Ok(peer) = accept_with(&self.socket, SocketFlags::CLOEXEC) else {
                continue;
            };
            if !is_own(&peer) || !readable(&peer, Instant::now() + REQUEST_TIMEOUT) {
                continue;
            }
            let mut request = [0u8; REQUEST_BYTES + 1];
            let Ok((n, _)) = recv(&peer, request.as_mut_slice(), RecvFlags::DONTWAIT) else {
                continue;
            };
            let Some(rank) = decode_request(&request[..n], key).filter(|&r| r < ranks) else {
                continue;
            };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let fds = [segment.fd.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if sendmsg(&peer, &[IoSlice::new(b"here")], &mut ancillary, flags).is_ok() {
                here[rank as usize] = true;
            }
        }
        Ok(())
    }
}

fn encode_request(key: &[u8; 32], local_rank: u32) -> Vec<u8> {
    let (rank, protocol) = (local_rank.to_le_bytes(), PROTOCOL.to_le_bytes());
    [&key[..], &rank, &protocol].concat()
}

/// The local rank in a request with the right key.
fn decode_request(request: &[u8], key: &[u8; 32]) -> Option<u32> {
    let (their_key, rest) = request.split_first_chunk::<32>()?;
    let (rank, protocol) = rest.split_first_chunk::<4>()?;
    // Compares all bytes, so that the time it takes tells nothing.
    let different = their_key.iter().zip(key).fold(0, |d, (a, b)| d | (a ^ b));
    (std::hint::black_box(different) == 0 && protocol == PROTOCOL.to_le_bytes())
        .then(|| u32::from_le_bytes(*rank))
}

/// Fetches the node's segment from its lowest rank.
pub(super) fn fetch(name: &[u8], key: &[u8; 32], local_rank: u32) -> Result<OwnedFd, JobError> {
    let what = "getting the node's shared memory from its lowest rank";
    let socket = new_socket()?;
    let address = SocketAddrUnix::new_abstract_name(name).map_err(refused(what))?;
    connect(&socket, &address).map_err(refused(what))?;
    if !is_own(&socket) {
        return Err(launcher_error(format!(
            "{what}: it belongs to another user"
        )));
    }
    send(
        &socket,
        &encode_request(key, local_rank),
        SendFlags::NOSIGNAL,
    )
    .map_err(refused(what))?;
    if !readable(&socket, Instant::now() + HANDOVER_TIMEOUT) {
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
        let server = SegmentServer::open().unwrap();
        let name = server.name;
        let (key, wrong) = ([5u8; 32], [6u8; 32]);
        let clients = std::thread::spawn(move || {
            let refused = fetch(&name, &wrong, 1).is_err();
            let out_of_range = fetch(&name, &key, 9).is_err();
            let first = fetch(&name, &key, 1).unwrap();
            let second = fetch(&name, &key, 2).unwrap();
            (refused, out_of_range, first, second)
        });
        let segment = Segment::create(3).unwrap();
        server.serve(&segment, &key, 3).unwrap();
        let (refused, out_of_range, first, _) = clients.join().unwrap();
        assert!(refused && out_of_range);
        let opened = Segment::open(first, 3, None).unwrap();
        assert_eq!(opened.statuses().len(), 3);
    }

    #[test]
    fn fuzz_requests_for_the_segment() {
        let key = [7u8; 32];
        let seeds = [encode_request(&key, 3), encode_request(&[8; 32], 3)];
        ferry_fuzz::fuzz("requests for the segment", &seeds, |bytes| {
            let read = decode_request(bytes, &key);
            assert!(read.is_none() || bytes.starts_with(&key));
            read.is_some()
        });
    }
}
