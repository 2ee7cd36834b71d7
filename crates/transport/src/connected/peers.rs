//! How this process stands to each of its peers.

use super::Connected;
use super::conn::zero_copy::SplicePipe;
use super::conn::{Broken, Conn};
use super::connect::Connecting;
use crate::{ProcId, Streamed, TransportError};
use ferry_auth::Handshake;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// How this process stands to another.
pub(super) enum PeerState {
    /// It is being called.
    Connecting(Box<Connecting>),
    /// There is a connection.
    Open(Box<Conn>),
    /// The connection has broken; the fault is told when the launcher, who may know more, has had
    /// time to say it first.
    Failing {
        what: String,
        until: Instant,
        /// The medium over which it went, and what that calls the other node.
        medium: usize,
        node: u32,
    },
    /// It cannot be spoken to any more; why.
    Lost(String),
}

pub(super) struct Peer {
    pub process: ProcId,
    pub state: PeerState,
}

/// A connection that has come and not yet proved whose it is.
pub(super) struct PendingAccept {
    pub medium: usize,
    pub socket: OwnedFd,
    pub handshake: Handshake,
}

impl Connected {
    #[inline]
    pub(super) fn slot(&self, process: ProcId) -> Option<usize> {
        match self.index.get(process as usize) {
            None | Some(0) => None,
            Some(&i) => Some(i as usize - 1),
        }
    }

    /// The connection to a process, begun if there is none. `Ok(None)`: not yet.
    #[inline]
    pub(super) fn conn(
        &mut self,
        to: ProcId,
    ) -> Result<Option<(usize, &mut Conn)>, TransportError> {
        let Some(i) = self.slot(to) else {
            self.call(to)?;
            return Ok(None);
        };
        match &self.peers[i].state {
            PeerState::Open(_) => {}
            PeerState::Connecting(_) | PeerState::Failing { .. } => return Ok(None),
            PeerState::Lost(what) => return Err(self.lost(to, what.clone())),
        }
        match &mut self.peers[i].state {
            PeerState::Open(conn) => Ok(Some((i, conn))),
            _ => Ok(None),
        }
    }

    pub(super) fn lost(&self, peer: ProcId, what: String) -> TransportError {
        TransportError::Lost {
            peer,
            host: self.nodes.host_of(peer).into(),
            what,
        }
    }

    /// Puts peer `i` on the list of those that want to write.
    pub(super) fn note_writer(&mut self, i: usize) {
        if !self.writers.contains(&i) {
            self.writers.push(i);
        }
    }

    /// Has `give` put as much as it can of a stream's body, of which `len` bytes are left, into the
    /// connection to `to`.
    pub(super) fn pass_on(
        &mut self,
        to: ProcId,
        len: usize,
        give: impl FnOnce(&mut Conn, &mut SplicePipe) -> Result<usize, Broken>,
    ) -> Result<Streamed, TransportError> {
        let found = self.conn(to)?.map(|(i, _)| i);
        let open = found.and_then(|i| match &mut self.peers[i].state {
            PeerState::Open(conn) => Some((i, conn)),
            _ => None,
        });
        let Some((i, conn)) = open else {
            return Ok(Streamed {
                taken: 0,
                between: true,
            });
        };
        let taken = give(conn, &mut self.splice_pipe).unwrap_or(0);
        let between = !conn.in_stream();
        conn.wants_room = taken < len;
        if conn.wants_room || conn.is_behind() {
            self.note_writer(i);
        }
        Ok(Streamed { taken, between })
    }
}
