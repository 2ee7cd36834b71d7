//! Where ranks leave what others need to reach them.
//!
//! A card is what a wire wants to be told about a peer before it first speaks to it, say its
//! addresses. Each rank leaves its own once; others ask for it when they first need it, so that
//! nobody has to know everybody.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::client::JobError;
use crate::notice::{PACKET_MAX, WIRE_NAME_MAX};
use crate::{Notice, Reply};

/// Longest card, bytes.
pub const CARD_MAX: usize = 4096;

/// Where ranks leave what others need to reach them.
pub trait Directory: Send {
    /// Leaves this rank's card for a wire ("tcp"); at most [`CARD_MAX`] bytes; before
    /// [`publish`](Directory::publish).
    fn put(&mut self, wire: &str, card: &[u8]) -> Result<(), JobError>;
    /// Makes what was put visible to others. Under a foreign launcher collective over the job; may
    /// block for that.
    fn publish(&mut self) -> Result<(), JobError>;
    /// A rank's card. `Ok(None)`: not known yet; ask again when [`fd`](Directory::fd) has been
    /// readable and the answers have been [taken](Directory::hear).
    fn get(&mut self, wire: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError>;
    /// Takes all answers that have come, whoever has asked. Only this empties
    /// [`fd`](Directory::fd): whoever calls it has to ask again for every card that is awaited,
    /// or an answer lies here and nothing tells of it.
    fn hear(&mut self) -> Result<(), JobError> {
        Ok(())
    }
    /// A line for the job's log, which mpiexec shows with the rank in front of it. Under a foreign
    /// launcher it is lost.
    fn say(&mut self, _line: &str) {}
    /// Readable when an answer has come; `None` if `get` always answers at once.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Checks what a wire wants to put.
pub(crate) fn check_put(wire: &str, card: &[u8]) -> Result<(), JobError> {
    if wire.is_empty() || wire.len() > WIRE_NAME_MAX || card.len() > CARD_MAX {
        return Err(JobError::Launcher(format!(
            "the wire {wire:?} wants to leave a card of {} bytes; {CARD_MAX} are the most",
            card.len()
        )));
    }
    Ok(())
}

/// The directory that mpiexec keeps, spoken to over the rank's socket.
#[derive(Debug)]
pub(crate) struct LauncherDirectory {
    socket: Arc<OwnedFd>,
    asked: HashSet<(String, u32)>,
    come: HashMap<(String, u32), Vec<u8>>,
}

impl LauncherDirectory {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> LauncherDirectory {
        LauncherDirectory {
            socket,
            asked: HashSet::new(),
            come: HashMap::new(),
        }
    }

    fn tell(&self, notice: &Notice) -> Result<(), JobError> {
        let packet = notice.encode();
        loop {
            return match send(&self.socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => Err(gone(e)),
            };
        }
    }
}

fn gone(cause: Errno) -> JobError {
    JobError::Refused {
        attempted: "speaking to mpiexec".into(),
        cause: cause.into(),
        advice: "it has probably been killed; its own host may say why",
    }
}

impl Directory for LauncherDirectory {
    fn put(&mut self, wire: &str, card: &[u8]) -> Result<(), JobError> {
        check_put(wire, card)?;
        self.tell(&Notice::Put {
            wire: wire.into(),
            card: card.into(),
        })
    }

    fn publish(&mut self) -> Result<(), JobError> {
        Ok(())
    }

    fn get(&mut self, wire: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError> {
        let name = (wire.to_string(), rank);
        if let Some(card) = self.come.remove(&name) {
            return Ok(Some(card));
        }
        if !self.asked.contains(&name) {
            self.tell(&Notice::Get {
                wire: wire.into(),
                rank,
            })?;
            self.asked.insert(name);
        }
        Ok(None)
    }

    fn hear(&mut self) -> Result<(), JobError> {
        let mut bytes = vec![0; PACKET_MAX];
        loop {
            match recv(&self.socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(gone(Errno::CONNRESET)),
                Ok((n, _)) => {
                    if let Some(Reply::Card { wire, rank, card }) = Reply::decode(&bytes[..n]) {
                        let name = (wire, rank);
                        // Only what was asked for: the memory this takes is bounded by what this
                        // rank wants.
                        if self.asked.remove(&name) {
                            self.come.insert(name, card);
                        }
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(gone(e)),
            }
        }
    }

    fn say(&mut self, line: &str) {
        // A log line that cannot be sent is not worth an error: the next real message says what is
        // wrong.
        let _ = self.tell(&Notice::Say { text: line.into() });
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// The launcher's side: cards that have come, and who waits for those that have not. Askers are
/// numbers of the caller's choice.
#[derive(Debug, Default)]
pub struct Cards {
    known: HashMap<(String, u32), Vec<u8>>,
    waiting: HashMap<(String, u32), Vec<usize>>,
}

impl Cards {
    /// A card has come; returns who waits for it. Of two from the same rank the first holds.
    pub fn put(&mut self, wire: &str, rank: u32, card: Vec<u8>) -> Vec<usize> {
        let name = (wire.to_string(), rank);
        let waiting = self.waiting.remove(&name).unwrap_or_default();
        self.known.entry(name).or_insert(card);
        waiting
    }

    /// A card, if it has come. If not, `asker` waits for it; `true` then says that it is the first
    /// to.
    pub fn get(&mut self, wire: &str, rank: u32, asker: usize) -> Result<&[u8], bool> {
        let name = (wire.to_string(), rank);
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
