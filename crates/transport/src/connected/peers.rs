//! The state of each peer, from the first connect to the loss of the connection.

use super::ConnTransport;
use super::conn::zero_copy::SplicePipe;
use super::conn::{Broken, Conn, PollInterest};
use super::connect::Connecting;
use crate::{ProcId, Streamed, TransportError};
use ferry_auth::Handshake;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The state of a peer.
pub(super) enum PeerState {
    /// It is being connected to.
    Connecting(Box<Connecting>),
    /// There is a connection.
    Open(Box<Conn>),
    /// The connection has broken. The fault is reported at `until`: the launcher may know the
    /// cause, and has until then to report it first.
    Failing {
        what: String,
        until: Instant,
        /// The number of the connection's medium.
        medium: usize,
        /// The peer's node, in the medium's numbers.
        node: u32,
    },
    /// It cannot be reached any more, for this reason.
    Lost(String),
    /// The place is free for another process.
    Vacant,
}

pub(super) struct Peer {
    pub process: ProcId,
    pub state: PeerState,
    /// The process of another job is not needed any more; its place becomes free once both sides
    /// have sent a close notification.
    pub leaving: bool,
    /// It has connected to a closed port: nobody receives what it sends.
    pub is_dismissed: bool,
}

/// A connection that was accepted and has not yet proved which process it is from.
pub(super) struct PendingAccept {
    pub medium: usize,
    pub socket: OwnedFd,
    pub handshake: Handshake,
}

impl ConnTransport {
    /// The index in `peers` of a process. `None`: it has not been spoken to.
    #[inline]
    pub(super) fn slot(&self, process: ProcId) -> Option<usize> {
        match self.slots.by_process.get(process as usize) {
            None | Some(0) => None,
            Some(&i) => Some(i as usize - 1),
        }
    }

    /// The connection to a process, and its index in `peers`. Connects to the process if there is
    /// no connection. `Ok(None)`: there is none yet.
    #[inline]
    pub(super) fn conn(
        &mut self,
        to: ProcId,
    ) -> Result<Option<(usize, &mut Conn)>, TransportError> {
        let Some(i) = self.slot(to) else {
            self.connect(to)?;
            return Ok(None);
        };
        match &self.peers[i].state {
            PeerState::Open(_) => {}
            PeerState::Connecting(_) | PeerState::Failing { .. } => return Ok(None),
            PeerState::Lost(what) => return Err(self.lost(to, what.clone())),
            PeerState::Vacant => return Err(self.lost(to, "it has left".into())),
        }
        match &mut self.peers[i].state {
            PeerState::Open(conn) => Ok(Some((i, conn))),
            _ => Ok(None),
        }
    }

    /// The error that reports the loss of `peer`.
    pub(super) fn lost(&self, peer: ProcId, what: String) -> TransportError {
        TransportError::Lost {
            peer,
            host: match self.foreign.process(peer) {
                Some(process) => process.host.clone(),
                None => self.local.nodes.host_of(peer).into(),
            },
            what,
        }
    }

    /// Puts peer `i` on the list of those for which something waits for room.
    pub(super) fn add_writer(&mut self, i: usize) {
        if !self.outgoing.writers.contains(&i) {
            self.outgoing.writers.push(i);
        }
        if self.armed {
            self.set_interest(i, PollInterest::InOut);
        }
    }

    /// Sends a part of a stream's body to `to` by `send`, which returns how many bytes were taken.
    /// `len` bytes of the body are left.
    pub(super) fn stream_by(
        &mut self,
        to: ProcId,
        len: usize,
        send: impl FnOnce(&mut Conn, &mut SplicePipe) -> Result<usize, Broken>,
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
                under_way: false,
            });
        };
        let taken = send(conn, &mut self.outgoing.splice_pipe).unwrap_or(0);
        let between = !conn.in_stream();
        conn.wants_room = taken < len;
        if conn.wants_room || conn.is_behind() {
            self.add_writer(i);
        }
        Ok(Streamed {
            taken,
            between,
            under_way: false,
        })
    }
}
