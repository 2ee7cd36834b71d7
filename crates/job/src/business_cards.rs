//! Business cards: what ranks publish so that others can reach them.
//!
//! A business card is what a medium must know of a peer before it can connect to it, such as its
//! addresses. Each rank publishes its own once. Others ask for it when they first need it, so that
//! no rank has to know all others.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::error::JobError;
use crate::messages::{MEDIUM_NAME_MAX_BYTES, PACKET_MAX_BYTES};
use crate::{ToLauncher, ToRank};

/// Longest business card. A page; addresses of all interfaces of a host take some hundred bytes.
pub const CARD_MAX_BYTES: usize = 4096;

/// Where ranks publish their business cards and ask for those of others.
pub trait Directory: Send {
    /// Puts this rank's card for a medium ("tcp"), at most [`CARD_MAX_BYTES`] long. To be called
    /// before [`publish`](Directory::publish).
    fn put(&mut self, medium: &str, card: &[u8]) -> Result<(), JobError>;
    /// Makes what was put visible to others. Under another launcher this is collective over the job
    /// and may block.
    fn publish(&mut self) -> Result<(), JobError>;
    /// A rank's card. `Ok(None)` if it is not known yet: ask again when [`fd`](Directory::fd) is
    /// readable and the answers have been [received](Directory::receive_answers).
    fn get(&mut self, medium: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError>;
    /// Receives all answers, to all questions. Only this empties [`fd`](Directory::fd). After it,
    /// the caller must ask again for every card that it waits for.
    fn receive_answers(&mut self) -> Result<(), JobError> {
        Ok(())
    }
    /// Prints a line in the job's log: mpiexec shows it with the rank before it. Under another
    /// launcher it is lost.
    fn log(&mut self, _line: &str) {}
    /// Readable when an answer has come. `None` if `get` always answers at once.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Checks the name of a medium and the length of its card.
pub(crate) fn check_put(medium: &str, card: &[u8]) -> Result<(), JobError> {
    if medium.is_empty() || medium.len() > MEDIUM_NAME_MAX_BYTES || card.len() > CARD_MAX_BYTES {
        return Err(JobError::Launcher(format!(
            "the business card for {medium:?} has {} bytes; at most {CARD_MAX_BYTES} are possible",
            card.len()
        )));
    }
    Ok(())
}

/// The directory of mpiexec, reached over the rank's socket.
#[derive(Debug)]
pub(crate) struct LauncherDirectory {
    socket: Arc<OwnedFd>,
    requested: HashSet<(String, u32)>,
    received: HashMap<(String, u32), Vec<u8>>,
}

impl LauncherDirectory {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> LauncherDirectory {
        LauncherDirectory {
            socket,
            requested: HashSet::new(),
            received: HashMap::new(),
        }
    }

    fn send(&self, notice: &ToLauncher) -> Result<(), JobError> {
        let packet = notice.encode();
        loop {
            return match send(&self.socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => Err(disconnected(e)),
            };
        }
    }
}

fn disconnected(cause: Errno) -> JobError {
    JobError::Refused {
        attempted: "speaking to mpiexec".into(),
        cause: cause.into(),
        advice: "it has probably been killed; its own host may say why",
    }
}

impl Directory for LauncherDirectory {
    fn put(&mut self, medium: &str, card: &[u8]) -> Result<(), JobError> {
        check_put(medium, card)?;
        self.send(&ToLauncher::Put {
            medium: medium.into(),
            card: card.into(),
        })
    }

    fn publish(&mut self) -> Result<(), JobError> {
        Ok(())
    }

    fn get(&mut self, medium: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError> {
        let name = (medium.to_string(), rank);
        if let Some(card) = self.received.remove(&name) {
            return Ok(Some(card));
        }
        if !self.requested.contains(&name) {
            self.send(&ToLauncher::Get {
                medium: medium.into(),
                rank,
            })?;
            self.requested.insert(name);
        }
        Ok(None)
    }

    fn receive_answers(&mut self) -> Result<(), JobError> {
        let mut bytes = vec![0; PACKET_MAX_BYTES];
        loop {
            match recv(&self.socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(disconnected(Errno::CONNRESET)),
                Ok((n, _)) => {
                    if let Some(ToRank::Card { medium, rank, card }) = ToRank::decode(&bytes[..n]) {
                        let name = (medium, rank);
                        // Only cards that were asked for are kept. This bounds the memory.
                        if self.requested.remove(&name) {
                            self.received.insert(name, card);
                        }
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(disconnected(e)),
            }
        }
    }

    fn log(&mut self, line: &str) {
        // An error is ignored: the next message tells of it.
        let _ = self.send(&ToLauncher::Log { text: line.into() });
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// The launcher's side: published cards, and who waits for others. Askers are numbers of the
/// caller's choice.
#[derive(Debug, Default)]
pub struct CardStore {
    known: HashMap<(String, u32), Vec<u8>>,
    waiting: HashMap<(String, u32), Vec<usize>>,
}

impl CardStore {
    /// Stores a card. Returns who waits for it. A second card of the same rank is ignored.
    pub fn put(&mut self, medium: &str, rank: u32, card: Vec<u8>) -> Vec<usize> {
        let name = (medium.to_string(), rank);
        let waiting = self.waiting.remove(&name).unwrap_or_default();
        self.known.entry(name).or_insert(card);
        waiting
    }

    /// A card, if it is there. If not, `asker` waits for it; the error is `true` for the first
    /// asker.
    pub fn get(&mut self, medium: &str, rank: u32, asker: usize) -> Result<&[u8], bool> {
        let name = (medium.to_string(), rank);
        match self.known.get(&name) {
            Some(card) => Ok(card),
            None => {
                let waiting = self.waiting.entry(name).or_default();
                if !waiting.contains(&asker) {
                    waiting.push(asker);
                }
                Err(waiting.len() == 1)
            }
        }
    }
}
