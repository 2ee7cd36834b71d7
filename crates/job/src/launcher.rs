//! The launcher's side of the sockets.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};

use crate::client::{JobError, host_name};
use crate::notice::PACKET_MAX;
use crate::{Nodes, Notice, Reply, Segment, Welcome, new_key};

/// A job's ranks on this node, as their launcher has them.
#[derive(Debug)]
pub struct NodeJob {
    /// The node's segment.
    pub segment: Segment,
    terms: JobTerms,
    local_ranks: Vec<u32>,
    cores: u32,
}

/// What all ranks of a job are told alike.
#[derive(Clone, Debug)]
pub struct JobTerms {
    /// A number that tells the job from others.
    pub job: u64,
    /// Its ranks.
    pub size: u32,
    /// Its secret.
    pub key: [u8; 32],
    /// Its nodes.
    pub nodes: Nodes,
}

/// The launcher's end of a rank's socket.
#[derive(Debug)]
pub struct Line {
    socket: OwnedFd,
    /// Replies that the rank has had no room for yet.
    waiting: VecDeque<Vec<u8>>,
}

/// What came through a [`Line`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The rank said something.
    Notice(Notice),
    /// Nothing is there now.
    Nothing,
    /// The rank's end is closed: nothing will come any more.
    Gone,
}

impl NodeJob {
    /// A job of `size` ranks that are all on this node, which has `cores` cores for it; with a new
    /// key.
    pub fn new(job: u64, size: u32, cores: u32) -> Result<NodeJob, JobError> {
        let terms = JobTerms {
            job,
            size,
            key: new_key().map_err(|cause| JobError::Refused {
                attempted: "making the job's key (getrandom)".into(),
                cause,
                advice: "Ferry needs the kernel's random numbers (Linux 3.17)",
            })?,
            nodes: Nodes::one(&host_name(), size),
        };
        NodeJob::part(terms, 0, cores)
    }

    /// The part of a job that is on its node `node`, which has `cores` cores for it.
    pub fn part(terms: JobTerms, node: usize, cores: u32) -> Result<NodeJob, JobError> {
        let local_ranks = terms.nodes.ranks_of(node);
        Ok(NodeJob {
            segment: Segment::create(local_ranks.len() as u32)?,
            terms,
            local_ranks,
            cores,
        })
    }

    /// The job's ranks on this node, ascending.
    pub fn local_ranks(&self) -> &[u32] {
        &self.local_ranks
    }

    /// Tells the ranks of another number of cores than this host's: of the machine that they are
    /// on, in its own terms.
    pub fn set_cores(&mut self, cores: u32) {
        self.cores = cores.max(1);
    }

    /// What all ranks of the job are told.
    pub fn terms(&self) -> &JobTerms {
        &self.terms
    }

    /// Makes the socket of a local rank and puts its welcome there. Returns the launcher's end and
    /// the rank's, both close-on-exec; the rank must inherit its end under the number in
    /// [`LAUNCH_FD`](crate::LAUNCH_FD).
    pub fn welcome(&self, local_rank: u32, appnum: u32) -> Result<(Line, OwnedFd), JobError> {
        let refused = |cause: Errno| JobError::Refused {
            attempted: format!("making the socket of rank {local_rank}"),
            cause: cause.into(),
            advice: "raise RLIMIT_NOFILE (ulimit -n), or start fewer ranks",
        };
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(refused)?;
        let welcome = Welcome {
            rank: self.local_ranks[local_rank as usize],
            size: self.terms.size,
            local_rank,
            local_ranks: self.local_ranks.clone(),
            appnum,
            job: self.terms.job,
            cores: self.cores,
            segment_len: self.segment.layout.total(),
            key: self.terms.key,
            nodes: self.terms.nodes.clone(),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let mut fds = vec![self.segment.fd.as_fd()];
        fds.extend(self.segment.machine.as_ref().map(|m| m.as_fd()));
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(
            &ours,
            &[IoSlice::new(&welcome.encode())],
            &mut ancillary,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )
        .map_err(refused)?;
        let waiting = VecDeque::new();
        Ok((
            Line {
                socket: ours,
                waiting,
            },
            theirs,
        ))
    }
}

impl Line {
    /// What the rank has said. Never blocks.
    pub fn hear(&self) -> Heard {
        let mut bytes = vec![0; PACKET_MAX];
        loop {
            return match recv(&self.socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => Heard::Gone,
                Ok((n, _)) => match Notice::decode(&bytes[..n]) {
                    Some(notice) => Heard::Notice(notice),
                    None => continue,
                },
                // A reset is told once, before the packets that came ahead of it: the rank ended
                // with a word of ours unread.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Err(Errno::AGAIN) => Heard::Nothing,
                Err(_) => Heard::Gone,
            };
        }
    }

    /// Tells the rank that its notice was taken.
    pub fn acknowledge(&mut self) {
        self.reply(&Reply::Taken);
    }

    /// Sends a reply, or keeps it until [`flush`](Line::flush) finds room. Never blocks.
    pub fn reply(&mut self, reply: &Reply) {
        self.waiting.push_back(reply.encode());
        self.flush();
    }

    /// Sends what waits; `true` when nothing waits any more. Otherwise come again when the socket
    /// is writable.
    pub fn flush(&mut self) -> bool {
        while let Some(packet) = self.waiting.front() {
            match send(
                &self.socket,
                packet,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Err(Errno::AGAIN | Errno::NOBUFS) => return false,
                Err(Errno::INTR) => {}
                // A rank that has gone needs no answer.
                Ok(_) | Err(_) => {
                    self.waiting.pop_front();
                }
            }
        }
        true
    }

    /// For polling.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cards;
    use crate::client::{join, join_through};

    use std::os::fd::IntoRawFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_rank_finds_its_place_in_one_go() {
        let job = NodeJob::new(42, 3, 2).unwrap();
        let (line, theirs) = job.welcome(1, 7).unwrap();
        let place = join_through(theirs.into_raw_fd()).unwrap();
        assert_eq!(
            (place.welcome.rank, place.welcome.size, place.welcome.appnum),
            (1, 3, 7)
        );
        assert_eq!((place.welcome.job, place.welcome.cores), (42, 2));
        place.status.tag.store(5, Ordering::Relaxed);
        assert_eq!(
            job.segment.status(1).unwrap().tag.load(Ordering::Relaxed),
            5
        );
        assert_eq!(line.hear(), Heard::Nothing);
        drop(place);
        assert_eq!(line.hear(), Heard::Gone);
    }

    #[test]
    fn an_abort_is_heard() {
        let job = NodeJob::new(1, 1, 1).unwrap();
        let (mut line, theirs) = job.welcome(0, 0).unwrap();
        let place = join_through(theirs.into_raw_fd()).unwrap();
        line.acknowledge();
        place.client.unwrap().abort(9, "enough");
        assert_eq!(
            line.hear(),
            Heard::Notice(Notice::Abort {
                code: 9,
                text: "enough".into()
            })
        );
    }

    #[test]
    fn a_card_comes_when_it_has_been_put() {
        let job = NodeJob::new(1, 2, 1).unwrap();
        let (mut line, theirs) = job.welcome(0, 0).unwrap();
        let mut place = join_through(theirs.into_raw_fd()).unwrap();
        assert_eq!(place.welcome.key, job.terms().key);
        let directory = place.directory.as_mut().unwrap();
        directory.put("tcp", b"me").unwrap();
        assert!(directory.put("tcp", &[0; 5000]).is_err());
        directory.publish().unwrap();
        assert_eq!(directory.get("tcp", 1).unwrap(), None);
        assert_eq!(directory.get("tcp", 1).unwrap(), None, "asked once only");
        let (wire, rank) = ("tcp".to_string(), 1);
        let card = b"me".to_vec();
        let put = Notice::Put {
            wire: wire.clone(),
            card,
        };
        assert_eq!(line.hear(), Heard::Notice(put));
        let get = Notice::Get {
            wire: wire.clone(),
            rank,
        };
        assert_eq!(line.hear(), Heard::Notice(get));
        assert_eq!(line.hear(), Heard::Nothing);
        let mut cards = Cards::default();
        assert_eq!(cards.get("tcp", 1, 7), Err(true));
        assert_eq!(cards.get("tcp", 1, 8), Err(false));
        assert_eq!(cards.put("tcp", 1, b"you".to_vec()), [7, 8]);
        let card = cards.get("tcp", 1, 7).unwrap().to_vec();
        line.reply(&Reply::Card { wire, rank, card });
        let none = directory.get("tcp", 0).unwrap();
        assert_eq!(none, None, "asked for only now");
        assert_eq!(
            directory.get("tcp", 1).unwrap(),
            None,
            "another's question takes no answers away: the descriptor still tells of them"
        );
        directory.hear().unwrap();
        assert_eq!(directory.get("tcp", 1).unwrap().unwrap(), b"you");
    }

    #[test]
    fn a_rank_that_does_not_listen_blocks_nobody() {
        let job = NodeJob::new(1, 1, 1).unwrap();
        let (mut line, theirs) = job.welcome(0, 0).unwrap();
        for rank in 0..1000 {
            let card = vec![1; crate::CARD_MAX];
            let wire = "tcp".into();
            line.reply(&Reply::Card { wire, rank, card });
        }
        assert!(!line.flush());
        drop(theirs);
        assert!(line.flush());
    }

    #[test]
    fn a_second_process_of_a_rank_is_told_so() {
        let job = NodeJob::new(1, 1, 1).unwrap();
        let (_line, theirs) = job.welcome(0, 0).unwrap();
        let twin = theirs.try_clone().unwrap();
        join_through(theirs.into_raw_fd()).unwrap();
        let said = join_through(twin.into_raw_fd()).unwrap_err().to_string();
        assert!(said.contains("taken already"), "{said}");
    }

    #[test]
    fn a_launcher_that_has_gone_is_no_job_of_one() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        drop(ours);
        let said = join_through(theirs.into_raw_fd()).unwrap_err().to_string();
        assert!(said.contains("mpiexec has gone"), "{said}");
        let said = join_through(987_654).unwrap_err().to_string();
        assert!(said.contains("closed"), "{said}");
        let null = std::fs::File::open("/dev/null").unwrap();
        let said = join_through(null.into_raw_fd()).unwrap_err().to_string();
        assert!(said.contains("something else"), "{said}");
    }

    #[test]
    fn a_packet_of_nonsense_is_said_to_be_one() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        send(
            &ours,
            b"hello there, this is no welcome",
            SendFlags::empty(),
        )
        .unwrap();
        let said = join_through(theirs.into_raw_fd()).unwrap_err().to_string();
        assert!(said.contains("does not begin as a Ferry welcome"), "{said}");
    }

    #[test]
    fn without_a_launcher_it_is_a_job_of_one() {
        let place = join().unwrap();
        assert_eq!((place.welcome.rank, place.welcome.size), (0, 1));
        assert!(place.segment.is_none() && place.client.is_none());
    }
}
