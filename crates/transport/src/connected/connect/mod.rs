//! Connection establishment: how two processes come to have one connection.
//!
//! The process that first has something to send looks up the other's business card, tries its
//! addresses in turn, and makes the handshake of `ferry-auth`. The other one then sends the frame
//! `Open`. Nothing but the handshake travels before that frame, so a connection that is given up
//! loses nothing.
//!
//! Two processes that connect to each other at the same time use the connection of the one with
//! the lower number. That one keeps the other's connection aside until its own has succeeded or
//! failed. The other one gives up its own as soon as it has accepted.

pub(super) mod business_card;

mod accept;
mod connecting;

pub use connecting::Connecting;

use super::ConnTransport;
use super::conn::{Broken, Conn, Path, Seal, frame};
use super::peers::{Peer, PeerState};
use super::poll::PollInterest;
use crate::ProcId;
use ferry_auth::{Handshake, HandshakeConfig, Rejected, Session, Step};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long a lost peer is kept back before it is reported. The launcher may know why the process
/// has ended, and may say so first. A choice: a second is longer than any launcher needs.
const LAUNCHER_GRACE: Duration = Duration::from_millis(1000);

impl ConnTransport {
    fn add(&mut self, process: ProcId, state: PeerState) -> usize {
        let new = Peer {
            process,
            state,
            leaving: false,
            is_dismissed: false,
        };
        let i = match self.slots.vacant.pop() {
            Some(i) => {
                self.peers[i] = new;
                i
            }
            None => {
                self.peers.push(new);
                self.peers.len() - 1
            }
        };
        if self.slots.by_process.len() <= process as usize {
            self.slots.by_process.resize(process as usize + 1, 0);
        }
        self.slots.by_process[process as usize] = i as u32 + 1;
        i
    }

    /// Makes an accepted connection the one that both use, and tells the peer so.
    fn establish(&mut self, i: usize, medium: usize, socket: OwnedFd, session: Session) {
        let path = path(&*self.media[medium], medium, &socket);
        let process = self.peers[i].process;
        let mut conn = Box::new(Conn::new(process, path, socket, sealed(session)));
        self.forget(i);
        // If that fails, reading says why.
        let _ = conn.send_empty(frame::Kind::Open);
        self.peers[i].state = PeerState::Open(conn);
        self.set_interest(i, PollInterest::In);
        self.set_timer();
    }

    /// Closes the connection to peer `i`, which has broken.
    #[cold]
    pub(super) fn broken(&mut self, i: usize, broken: Broken) {
        let PeerState::Open(conn) = &self.peers[i].state else {
            return;
        };
        if self.busy_poll.peer == Some(i) {
            self.busy_poll.peer = None;
        }
        let leaving = conn.peer_has_finished();
        self.outgoing.splice_pipe.forget(conn.peer);
        conn.give_up();
        if self.peers[i].leaving {
            self.peers[i].state = PeerState::Lost(String::new());
            return self.vacate_if_over(i);
        }
        let PeerState::Open(conn) = &self.peers[i].state else {
            return;
        };
        self.peers[i].state = if leaving {
            PeerState::Lost("it has left the job".into())
        } else {
            PeerState::Failing {
                what: describe(&broken),
                until: Instant::now() + LAUNCHER_GRACE,
                medium: conn.path.medium,
                node: conn.path.node,
            }
        };
        self.set_timer();
    }
}

/// Why a connection has broken, for users.
fn describe(broken: &Broken) -> String {
    match broken {
        Broken::Closed => {
            "it has closed the connection without a close notification: it has probably died".into()
        }
        Broken::System(Errno::CONNRESET | Errno::PIPE) => {
            "its system has reset the connection: it has probably died".into()
        }
        Broken::System(Errno::TIMEDOUT) => {
            "its host does not answer any more (FERRY_TCP_TIMEOUT)".into()
        }
        Broken::System(e) => e.to_string(),
        Broken::Malformed(what) => format!("it sent {what}"),
    }
}

/// The path of a connection that has just been made.
fn path(of: &dyn super::Medium, medium: usize, socket: &OwnedFd) -> Path {
    Path {
        medium,
        node: of.node(socket),
        ops: of.socket_ops(),
    }
}

/// The keys of an encrypted connection. `None`: it is not encrypted.
fn sealed(session: Session) -> Option<Box<Seal>> {
    session
        .encrypt()
        .then(|| Box::new(Seal::new(session.records())))
}

/// Sends a message of the handshake whole. A new connection has room for it.
fn send_whole(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::AGAIN),
        Err(e) => Err(e),
    }
}

/// Reads what has arrived of a handshake and answers it. `Ok(None)`: more is to come.
fn handshake_step(
    socket: &OwnedFd,
    handshake: &mut Handshake,
    configs: &[&HandshakeConfig],
) -> Result<Option<Session>, Rejected> {
    let mut space = [0; ferry_auth::HELLO_BYTES];
    loop {
        // No more than the handshake lacks: what follows it belongs to the connection.
        let missing = handshake.missing_bytes().min(space.len());
        let n = match recv(socket, &mut space[..missing], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Rejected::Closed),
            Ok((n, _)) => n,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(_) => return Err(Rejected::Closed),
        };
        match handshake.feed_any(configs, &mut &space[..n])? {
            Step::More => {}
            Step::Send(message) => send_whole(socket, &message).map_err(|_| Rejected::Closed)?,
            Step::Done(session, message) => {
                if !message.is_empty() {
                    send_whole(socket, &message).map_err(|_| Rejected::Closed)?;
                }
                return Ok(Some(session));
            }
        }
    }
}
