//! Processes of other jobs, and the links by which they connect.
//!
//! A *link* is a key that two groups of processes have agreed on, or the ticket in a port's name.
//! Each process has a number of its own in a link; the handshake proves it. A process of another
//! job gets a process number here when the layer above makes it known
//! ([`ForeignProcesses::add_foreign`]), or when it connects to a port. These numbers begin behind
//! those of the job and differ from process to process.

use super::peers::PeerState;
use super::{ConnTransport, PURPOSE, Token, business_card};
use crate::{ForeignProcess, ForeignProcesses, Inbox, Link, ProcId, TransportError};
use ferry_auth::{HandshakeConfig, Identity, JobKey, Session};
use rustix::event::epoll;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

/// What the handshake calls connections by a link.
const PURPOSE_LINK: u16 = PURPOSE + 0x100;

/// Ports that this process has closed and still knows. A choice: who connects to one of the last
/// sixteen is told at once; who connects to an older one tries for a few seconds, as with any
/// wrong key.
const CLOSED_PORTS_MAX: usize = 16;

/// A link with the processes that are known by it.
pub(super) struct KnownLink {
    id: u64,
    pub config: HandshakeConfig,
    is_port: bool,
    by_number: HashMap<u32, ProcId>,
}

/// Links and processes of other jobs.
#[derive(Default)]
pub(super) struct Foreign {
    links: Vec<KnownLink>,
    /// The last ports that were closed, so that who connects to one gets a close notification.
    closed_ports: VecDeque<HandshakeConfig>,
    processes: HashMap<ProcId, ForeignProcess>,
    /// The next process number that was never used.
    next: ProcId,
    /// Process numbers that can be used again.
    unused: Vec<ProcId>,
}

impl Foreign {
    /// For a job of `size` processes.
    pub fn new(size: u32) -> Foreign {
        Foreign {
            next: size,
            ..Foreign::default()
        }
    }

    pub fn process(&self, process: ProcId) -> Option<&ForeignProcess> {
        self.processes.get(&process)
    }

    /// The configurations of all links, and of the ports closed last.
    pub fn configs(&self) -> impl Iterator<Item = &HandshakeConfig> {
        let links = self.links.iter().map(|l| &l.config);
        links.chain(&self.closed_ports)
    }

    /// Returns whether this session was made by a port that is closed.
    pub fn is_of_closed_port(&self, session: &Session) -> bool {
        let mut closed = self.closed_ports.iter();
        closed.any(|config| config.local().job == session.job())
    }

    /// The configuration by which to connect to a process, and the process's number in it.
    pub fn config_of(&self, process: ProcId) -> Option<(&HandshakeConfig, u32)> {
        let process = self.processes.get(&process)?;
        let link = self.links.iter().find(|l| l.id == process.link)?;
        Some((&link.config, process.number))
    }

    fn insert(&mut self, process: ForeignProcess) -> ProcId {
        let new = self.unused.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if let Some(link) = self.links.iter_mut().find(|l| l.id == process.link) {
            link.by_number.insert(process.number, new);
        }
        self.processes.insert(new, process);
        new
    }

    /// The process that has made this session by a link, or by a port that is closed. `None`: the
    /// link is not known any more, or no such process was made known. `host` is for messages.
    pub fn admitted(&mut self, session: &Session, host: String) -> Option<ProcId> {
        if self.is_of_closed_port(session) {
            return Some(self.insert(ForeignProcess {
                link: session.job(),
                number: session.peer(),
                card: Vec::new(),
                same_host: false,
                host,
            }));
        }
        let link = self
            .links
            .iter()
            .find(|l| l.config.local().job == session.job())?;
        if let Some(&process) = link.by_number.get(&session.peer()) {
            return Some(process);
        }
        let id = link.id;
        link.is_port.then(|| {
            self.insert(ForeignProcess {
                link: id,
                number: session.peer(),
                card: Vec::new(),
                same_host: false,
                host,
            })
        })
    }
}

impl ForeignProcesses for ConnTransport {
    fn card(&self) -> Vec<u8> {
        let parts = self.media.iter().map(|m| (m.name(), m.card()));
        business_card::encode(parts)
    }

    fn listen_outside(&mut self) -> Result<(), TransportError> {
        for m in 0..self.media.len() {
            let before = self.media[m].listeners().len();
            self.media[m].listen_outside()?;
            for i in before..self.media[m].listeners().len() {
                self.listen(self.media[m].listeners()[i].as_fd(), Token::Listener(m, i))?;
            }
        }
        Ok(())
    }

    fn serves_other_jobs(&self) -> bool {
        self.media.iter().any(|m| m.serves_other_jobs())
    }

    fn hide_key(&self, number: u64, key: &mut [u8; 32]) {
        self.local.handshake_config.hide(number, key);
    }

    fn add_link(&mut self, link: &Link) {
        let local = Identity {
            job: link.wire,
            process: link.number,
            purpose: PURPOSE_LINK,
            encrypt: link.encrypt,
        };
        self.foreign.links.push(KnownLink {
            id: link.id,
            config: HandshakeConfig::new(&JobKey::from_bytes(&link.key), local),
            is_port: link.is_port,
            by_number: HashMap::new(),
        });
    }

    fn remove_link(&mut self, id: u64) {
        let Some(i) = self.foreign.links.iter().position(|l| l.id == id) else {
            return;
        };
        let link = self.foreign.links.remove(i);
        if link.is_port {
            let closed = &mut self.foreign.closed_ports;
            closed.truncate(CLOSED_PORTS_MAX - 1);
            closed.push_front(link.config);
        }
    }

    fn add_foreign(&mut self, process: ForeignProcess) -> ProcId {
        self.foreign.insert(process)
    }

    fn remove_foreign(&mut self, process: ProcId) {
        let Some(known) = self.foreign.processes.get(&process) else {
            return;
        };
        let (id, number) = (known.link, known.number);
        // What has not been reported of it concerns nobody any more.
        self.faults.retain(|fault| fault.peer() != Some(process));
        if let Some(link) = self.foreign.links.iter_mut().find(|l| l.id == id) {
            link.by_number.remove(&number);
        }
        let Some(i) = self.slot(process) else {
            return self.forget_foreign(process);
        };
        self.peers[i].leaving = true;
        self.slots.any_leaving = true;
        match &mut self.peers[i].state {
            PeerState::Open(conn) => {
                conn.finish();
                self.add_writer(i);
                // Whatever was read by the busy poll is reported by the poll set from now on.
                if self.busy_poll.peer == Some(i) {
                    self.busy_poll.peer = None;
                }
                self.set_interest(i, super::PollInterest::In);
                self.vacate_if_over(i);
            }
            _ => self.vacate(i),
        }
    }

    fn connect_to(&mut self, process: ProcId) {
        if self.slot(process).is_none()
            && let Err(fault) = self.connect(process)
        {
            self.faults.push_back(fault);
        }
    }

    fn is_connected(&self, process: ProcId) -> bool {
        let state = self.slot(process).map(|i| &self.peers[i].state);
        matches!(state, Some(PeerState::Open(_)))
    }

    fn processes_of(&self, id: u64) -> Vec<ProcId> {
        let link = self.foreign.links.iter().find(|l| l.id == id);
        link.map_or(Vec::new(), |l| l.by_number.values().copied().collect())
    }

    fn has_left(&self, process: ProcId) -> bool {
        match self.slot(process).map(|i| &self.peers[i].state) {
            Some(PeerState::Open(conn)) => conn.peer_has_finished(),
            Some(PeerState::Lost(_) | PeerState::Vacant) => true,
            Some(PeerState::Connecting(_) | PeerState::Failing { .. }) => false,
            None => self.foreign.process(process).is_none(),
        }
    }

    fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<(), TransportError> {
        self.listen(fd, Token::Watched)
    }

    fn watched_is_ready(&self) -> bool {
        self.poll_set.watched_is_ready
    }

    fn unwatch(&mut self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.poll_set.epoll, fd);
    }
}

/// Takes what comes from a process that has connected to a closed port.
pub(super) struct Discard;

impl Inbox for Discard {
    fn on_message(&mut self, _from: ProcId, _message: u8, _bytes: &[u8]) -> bool {
        false
    }
}

impl ConnTransport {
    /// Sends a close notification to process `process`, which has just connected to a closed port.
    pub(super) fn dismiss(&mut self, process: ProcId) {
        if let Some(i) = self.slot(process) {
            self.peers[i].is_dismissed = true;
        }
        self.remove_foreign(process);
    }

    /// Vacates the place of peer `i`, whose connection is not needed any more, once both sides have
    /// sent a close notification.
    pub(super) fn vacate_if_over(&mut self, i: usize) {
        if !self.peers[i].leaving {
            return;
        }
        let over = match &self.peers[i].state {
            PeerState::Open(conn) => conn.peer_has_finished() && !conn.is_behind(),
            _ => true,
        };
        if over {
            self.vacate(i);
        }
    }

    /// Closes the connection of peer `i`, and makes its place free for another.
    fn vacate(&mut self, i: usize) {
        let process = self.peers[i].process;
        self.forget(i);
        if self.busy_poll.peer == Some(i) {
            self.busy_poll.peer = None;
        }
        self.outgoing.writers.retain(|&w| w != i);
        self.incoming.streams.retain(|&s| s != i);
        self.outgoing.splice_pipe.forget(process);
        self.peers[i].state = PeerState::Vacant;
        self.peers[i].leaving = false;
        self.peers[i].is_dismissed = false;
        self.slots.by_process[process as usize] = 0;
        self.slots.vacated.push(i);
        self.forget_foreign(process);
    }

    fn forget_foreign(&mut self, process: ProcId) {
        if self.foreign.processes.remove(&process).is_some() {
            self.foreign.unused.push(process);
        }
    }

    /// Which of this process and `process` uses its own connection if both connect at once: the one
    /// with the lower number.
    pub(super) fn comes_before(&self, process: ProcId) -> bool {
        match self.foreign.config_of(process) {
            Some((config, number)) => config.local().process < number,
            None => self.local.me < process,
        }
    }

    fn listen(&self, fd: BorrowedFd<'_>, token: Token) -> Result<(), TransportError> {
        epoll::add(
            &self.poll_set.epoll,
            fd,
            token.data(),
            epoll::EventFlags::IN,
        )
        .map_err(|e| TransportError::Refused {
            attempted: "listening".into(),
            cause: e.into(),
            advice: "raise the limit on open files (ulimit -n)",
        })
    }
}
