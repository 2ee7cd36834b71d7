//! The jobs that came of one mpiexec: the one that it was called for, and those that their ranks
//! have started (MPI_Comm_spawn). Their launchers are a tree. One whose job sleeps, with the jobs
//! below it, tells the launcher above; the one at the root knows when all of them hang.
//!
//! ```text
//! launcher ── S sent received finished report ──▶ the one above    its jobs sleep, all of them
//!          ── M ─────────────────────────────────▶                 one of them moves
//! ```

use crate::hang::Traffic;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::io;
use std::os::fd::OwnedFd;

/// Longest report, bytes. Longer ones are cut.
const REPORT_MAX_BYTES: usize = 48 << 10;
/// Bytes of a message before the report.
const HEAD_BYTES: usize = 18;

/// The launcher that has started this one.
pub(super) struct Upstream {
    socket: OwnedFd,
    family: u64,
    /// The head of what it was told last. Empty: nothing.
    told: Vec<u8>,
}

/// A launcher that this one has started.
struct Downstream {
    socket: OwnedFd,
    /// What it says of its jobs, if all of them sleep.
    sleeping: Option<Sleeping>,
}

/// Jobs that sleep.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sleeping {
    pub traffic: Traffic,
    /// Who waits for whom in each.
    pub report: String,
}

/// The launchers that this one knows of its family.
pub(super) struct Family {
    number: u64,
    upstream: Option<Upstream>,
    downstream: Vec<Downstream>,
    /// A job of the family has ended.
    has_ended: bool,
}

impl Upstream {
    pub fn new(socket: OwnedFd, family: u64) -> Upstream {
        Upstream {
            socket,
            family,
            told: Vec::new(),
        }
    }
}

impl Sleeping {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut end = self.report.len().min(REPORT_MAX_BYTES);
        while !self.report.is_char_boundary(end) {
            end -= 1;
        }
        let mut out = vec![b'S'];
        out.extend(self.traffic.sent.to_le_bytes());
        out.extend(self.traffic.received.to_le_bytes());
        out.push(u8::from(self.traffic.has_finished));
        out.extend(&self.report.as_bytes()[..end]);
        out
    }

    /// `None`: a job moves.
    pub(super) fn decode(message: &[u8]) -> Option<Sleeping> {
        let (head, report) = message.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        (head[0] == b'S').then(|| Sleeping {
            traffic: Traffic {
                sent: word(1),
                received: word(9),
                has_finished: head[17] != 0,
            },
            report: String::from_utf8_lossy(report).into_owned(),
        })
    }

    pub(super) fn with(self, other: &Sleeping) -> Sleeping {
        Sleeping {
            traffic: self.traffic.with(other.traffic),
            report: self.report + &other.report,
        }
    }
}

impl Family {
    /// That of job `id`: the family of the launcher above, or one of its own.
    pub fn new(id: u64, upstream: Option<Upstream>) -> Family {
        Family {
            number: upstream.as_ref().map_or(id, |u| u.family),
            upstream,
            downstream: Vec::new(),
            has_ended: false,
        }
    }

    /// The id of its first job.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Has another launcher started this one?
    pub fn is_below(&self) -> bool {
        self.upstream.is_some()
    }

    /// The socket for a launcher that is about to be started.
    pub fn downstream(&mut self) -> io::Result<OwnedFd> {
        let kind = SocketType::SEQPACKET;
        let (near, far) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        self.downstream.push(Downstream {
            socket: near,
            sleeping: None,
        });
        Ok(far)
    }

    /// The jobs of the launchers below, if there are any and all of them sleep. Those that no rank
    /// of the family knows any more do not count.
    pub fn sleeping_below(&mut self) -> Option<Sleeping> {
        let before = self.downstream.len();
        self.downstream.retain_mut(Downstream::read);
        self.has_ended |= self.downstream.len() < before;
        let mut all = Sleeping::default();
        all.traffic.has_finished = self.has_ended;
        for below in &self.downstream {
            all = all.with(below.sleeping.as_ref()?);
        }
        Some(all)
    }

    /// Are there launchers below?
    pub fn has_below(&self) -> bool {
        !self.downstream.is_empty()
    }

    /// Tells the launcher above whether the jobs here and below sleep, if that is news.
    pub fn tell(&mut self, sleeping: Option<&Sleeping>) {
        let Some(upstream) = &mut self.upstream else {
            return;
        };
        let message = sleeping.map_or_else(|| vec![b'M'], Sleeping::encode);
        // How long they sleep is no news.
        let head = &message[..message.len().min(HEAD_BYTES)];
        let is_news = match upstream.told.is_empty() {
            true => sleeping.is_some(),
            false => upstream.told != head,
        };
        // What is not sent now is sent by the next check.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if is_news && send(&upstream.socket, &message, flags).is_ok() {
            upstream.told = head.to_vec();
        }
    }
}

impl Downstream {
    /// Reads what the launcher says. Returns false if it has ended.
    fn read(&mut self) -> bool {
        let mut buffer = vec![0; HEAD_BYTES + REPORT_MAX_BYTES];
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((n, _)) => self.sleeping = Sleeping::decode(&buffer[..n]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(sent: u64, received: u64) -> Sleeping {
        Sleeping {
            traffic: Traffic {
                sent,
                received,
                has_finished: false,
            },
            report: format!("job with {sent} messages\n"),
        }
    }

    #[test]
    fn a_family_sleeps_when_all_its_jobs_do() {
        let mut root = Family::new(7, None);
        assert!(!root.has_below() && root.sleeping_below() == Some(Sleeping::default()));
        let mut below: Vec<Family> = (0..2u64)
            .map(|n| {
                let upstream = Upstream::new(root.downstream().unwrap(), root.number());
                Family::new(100 + n, Some(upstream))
            })
            .collect();
        assert!(below.iter().all(|f| f.number() == 7 && f.is_below()));
        assert_eq!(root.sleeping_below(), None);
        below[0].tell(Some(&sleeping(3, 1)));
        assert_eq!(root.sleeping_below(), None);
        below[1].tell(Some(&sleeping(1, 3)));
        let all = root.sleeping_below().unwrap();
        assert_eq!(all, sleeping(3, 1).with(&sleeping(1, 3)));
        assert!(!all.traffic.is_under_way());
        below[0].tell(None);
        assert_eq!(root.sleeping_below(), None);
        drop(below.remove(0));
        let rest = root.sleeping_below().unwrap();
        assert!(rest.traffic.has_finished && rest.report == sleeping(1, 3).report);
        assert_eq!(Sleeping::decode(b"S"), None);
    }
}
