//! How two processes come to have one connection.
//!
//! Whoever first has something to say asks the directory for the other's card, tries its addresses
//! in turn, and proves itself by the auth's handshake. The called one then says the opening word,
//! or does not: two processes that call each other at the same time use the call of the one with
//! the lower number. That one holds the other's call back until its own has succeeded or
//! failed; the other gives up its own as soon as it is called. Nothing but the handshake travels
//! before the opening word, so nothing is lost with a call that is given up.

pub(super) mod business_card;

mod accept;
mod calling;

pub use calling::Connecting;

use super::Connected;
use super::conn::{Broken, Conn, Path, Seal, frame};
use super::peers::{Peer, PeerState};
use super::poll::PollInterest;
use crate::ProcId;
use ferry_auth::{Handshake, HandshakeConfig, Rejected, Session, Step};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the launcher, who may know why a process has ended, may take to say so first.
const GRACE: Duration = Duration::from_millis(1000);
impl Connected {
    fn add(&mut self, process: ProcId, state: PeerState) -> usize {
        self.peers.push(Peer { process, state });
        self.index[process as usize] = self.peers.len() as u32;
        self.peers.len() - 1
    }

    /// This call is the connection that both use.
    fn adopt(&mut self, i: usize, medium: usize, socket: OwnedFd, session: Session) {
        let path = path(&*self.media[medium], medium, &socket);
        let process = self.peers[i].process;
        let mut conn = Box::new(Conn::new(process, path, socket, sealed(session)));
        self.forget(i);
        // Should that fail, reading says why.
        let _ = conn.say(frame::Kind::Open);
        self.peers[i].state = PeerState::Open(conn);
        self.set_interest(i, PollInterest::In);
        self.set_timer();
    }

    /// The connection to peer `i` is over.
    #[cold]
    pub(super) fn broken(&mut self, i: usize, broken: Broken) {
        let PeerState::Open(conn) = &self.peers[i].state else {
            return;
        };
        if self.busy_polled == Some(i) {
            self.busy_polled = None;
        }
        let leaving = conn.leaving;
        self.splice_pipe.forget(conn.peer);
        conn.give_up();
        self.peers[i].state = if leaving {
            PeerState::Lost("it has left the job".into())
        } else {
            PeerState::Failing {
                what: describe(&broken),
                until: Instant::now() + GRACE,
                medium: conn.path.medium,
                node: conn.path.node,
            }
        };
        self.set_timer();
    }
}

/// What a broken connection is called.
fn describe(broken: &Broken) -> String {
    match broken {
        Broken::Closed => {
            "it has closed the connection without a farewell: it has probably died".into()
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

/// Over what a connection goes that has just been made.
fn path(of: &dyn super::Medium, medium: usize, socket: &OwnedFd) -> Path {
    Path {
        medium,
        node: of.node(socket),
        ops: of.socket_ops(),
    }
}

fn sealed(session: Session) -> Option<Box<Seal>> {
    session
        .encrypt()
        .then(|| Box::new(Seal::new(session.records())))
}

/// Sends a message of the handshake; a fresh connection has room for it.
fn send_whole(socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::AGAIN),
        Err(e) => Err(e),
    }
}

/// Takes what the other side of a handshake has said. `Ok(None)`: more is to come.
fn handshake_step(
    socket: &OwnedFd,
    handshake: &mut Handshake,
    config: &HandshakeConfig,
) -> Result<Option<Session>, Rejected> {
    let mut space = [0; ferry_auth::HELLO_BYTES];
    loop {
        // Never more than the handshake wants: what follows it belongs to the connection.
        let wants = handshake.missing_bytes().min(space.len());
        let n = match recv(socket, &mut space[..wants], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Rejected::Closed),
            Ok((n, _)) => n,
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => continue,
            Err(_) => return Err(Rejected::Closed),
        };
        match handshake.feed(config, &mut &space[..n])? {
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
