//! TIPC as a medium for connections: service names in place of hosts and ports, and events from the
//! kernel when a name or a node comes or goes.
//!
//! After Zhao and Zhang, "MPICH2 over TIPC" (docs/transports/tipc.md). A rank's address is a name
//! {service type, instance}, which its listener publishes. The first message of a connection sets
//! it up. What is longer than a packet is divided, with its length in front of each part. How
//! connections carry messages is in [`crate::connected`].

mod address;
mod socket;
mod topology;

pub use address::{Id, Name, Port};

use crate::connected::{
    ConnTransport, ConnectStart, FRAME_HEAD_MAX_BYTES, FRAME_HEADER_BYTES, Medium, MediumEvent,
    PeerAddress, SocketOps,
};
use crate::{ProcId, TransportError};
use ferry_job::{Directory, RankInfo, settings};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use topology::{Change, Event, Subject, Topology};

/// The transport's name in FERRY_TRANSPORTS and in reports.
pub const NAME: &str = "tipc";
/// The service type of ranks without FERRY_TIPC_TYPE. A choice: any number above the system's own.
pub const DEFAULT_KIND: u32 = 18_888;
/// Lowest service type that is not the system's own.
const KIND_MIN: u32 = ferry_job::settings::TIPC_TYPE_MIN;
/// Longest message that TIPC carries, bytes (TIPC_MAX_USER_MSG_SIZE, linux/tipc.h).
const MESSAGE_MAX_BYTES: usize = 66_000;
/// How long a process may be tried in vain. A choice: links notice the loss of a node within
/// seconds.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the name of a process may take to reach this node, if its node is joined to this one. A
/// choice: the name was published before the card, and spreads in milliseconds.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the loss of a node explains why a connection to it has broken. A choice: the kernel
/// breaks connections together with the links, but a process that stood still itself hears of both
/// later.
const LOSS_EXPLAINS: Duration = Duration::from_secs(5);
/// How long a link may be silent, and how to change that. For messages.
const TOLERANCE: &str = "1.5 seconds unless set: `tipc bearer set tolerance MILLISECONDS media \
                         eth device …`, on both nodes";

/// The user's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// FERRY_TIPC_TYPE: the service type of the job's ranks.
    pub kind: u32,
}

impl Settings {
    /// Reads them from the environment.
    pub fn from_environment() -> Settings {
        let kind = settings::TIPC_TYPE.whole();
        Settings {
            kind: kind.map_or(DEFAULT_KIND, |kind| kind as u32),
        }
    }
}

/// A process that is being connected to, whose name the topology server watches.
struct PendingConnect {
    port: Port,
    /// The process's port has published its name.
    published: bool,
}

/// TIPC as a medium for connections.
pub struct Tipc {
    own: Port,
    listener: [OwnedFd; 1],
    topology: Topology,
    /// Nodes that are joined to this one.
    nodes: HashSet<u32>,
    /// Nodes that were lost, and when that was last reported. They may have come back since.
    lost: HashMap<u32, Instant>,
    pending: HashMap<ProcId, PendingConnect>,
}

impl Tipc {
    /// Listens, publishes this rank's name, and asks the topology server for the nodes.
    ///
    /// Errors: the system has no TIPC, or refuses.
    pub fn listen(rank_info: &RankInfo, settings: &Settings) -> Result<Tipc, TransportError> {
        let name = Name::of_rank(settings.kind, rank_info.job, rank_info.size, rank_info.rank);
        let refused = |attempted: String| {
            move |e: Errno| TransportError::Refused {
                attempted,
                cause: e.into(),
                advice: match e {
                    Errno::AFNOSUPPORT => {
                        "this system has no TIPC: as root, `modprobe tipc`, then enable a bearer \
                         (`tipc bearer enable media eth device eth0`), on every node; or leave \
                        tipc out of FERRY_TRANSPORTS"
                    }
                    Errno::MFILE | Errno::NFILE => "raise the limit on open files (ulimit -n)",
                    _ => "leave tipc out of FERRY_TRANSPORTS to do without",
                },
            }
        };
        let publish = refused(format!("publishing the TIPC name {name}"));
        let (listener, id) = socket::listener(name).map_err(publish)?;
        let asking = refused("asking TIPC's topology server".into());
        let (topology, nodes) = Topology::open().map_err(asking)?;
        Ok(Tipc {
            own: Port { name, id },
            listener: [listener],
            topology,
            nodes: nodes.into_iter().filter(|&n| n != id.node).collect(),
            lost: HashMap::new(),
            pending: HashMap::new(),
        })
    }

    /// Opens a transport of TIPC alone. Under a foreign launcher, blocks until all ranks have
    /// opened theirs.
    ///
    /// Errors: the system has no TIPC, or it or the launcher refuses.
    pub fn open(
        rank_info: &RankInfo,
        directory: Box<dyn Directory>,
        settings: &Settings,
        encrypt: bool,
    ) -> Result<ConnTransport, TransportError> {
        let tipc = Tipc::listen(rank_info, settings)?;
        let media: Vec<Box<dyn Medium>> = vec![Box::new(tipc)];
        ConnTransport::open(rank_info, directory, media, TIMEOUT, encrypt)
    }

    /// Returns whether a bearer joins this node to another one.
    pub fn is_joined(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns whether `node` is this node or joined to it.
    fn is_joined_to(&self, node: u32) -> bool {
        node == self.own.id.node || self.nodes.contains(&node)
    }

    /// Takes an event of the topology server. Returns what it means for pending connects.
    fn on_event(&mut self, event: Event) -> Vec<MediumEvent> {
        match (event.subject, event.change) {
            (Subject::Nodes, Change::Published(_)) if event.name.instance != self.own.id.node => {
                self.nodes.insert(event.name.instance);
                Vec::new()
            }
            (Subject::Nodes, Change::Withdrawn(_)) => {
                let node = event.name.instance;
                self.nodes.remove(&node);
                self.lost.insert(node, Instant::now());
                let of_node = self.pending.iter().filter(|(_, c)| c.port.id.node == node);
                let gone = |(&p, _)| MediumEvent::Unreachable(p, no_link(node));
                of_node.map(gone).collect()
            }
            (Subject::Process(process), change) => {
                let Some(pending) = self.pending.get_mut(&process) else {
                    return Vec::new();
                };
                let port = pending.port;
                match change {
                    Change::Published(id) if id == port.id => {
                        pending.published = true;
                        vec![MediumEvent::Reachable(process)]
                    }
                    Change::Withdrawn(id) if id == port.id => {
                        pending.published = false;
                        vec![MediumEvent::Unreachable(
                            process,
                            "it has ended (its name is withdrawn)".into(),
                        )]
                    }
                    Change::TimedOut if !pending.published => {
                        self.pending.remove(&process);
                        let seconds = NAME_TIMEOUT.as_secs();
                        vec![MediumEvent::Unreachable(
                            process,
                            format!("its name has not come here in {seconds} seconds"),
                        )]
                    }
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }
}

/// The message where no link leads to `node`.
fn no_link(node: u32) -> String {
    format!(
        "no TIPC link leads to its node {node:x}: enable a bearer on both (`tipc bearer enable …`) \
         and see `tipc link list`"
    )
}

impl Medium for Tipc {
    fn name(&self) -> &'static str {
        NAME
    }
    fn card(&self) -> Vec<u8> {
        self.own.encode().to_vec()
    }
    fn listeners(&self) -> &[OwnedFd] {
        &self.listener
    }
    fn accept(&self, listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
        socket::accept(listener)
    }
    fn addresses(&self, card: &[u8], _same_host: bool) -> Result<Vec<PeerAddress>, &'static str> {
        let port = Port::decode(card).ok_or("makes no sense")?;
        Ok(vec![PeerAddress::Tipc(port)])
    }
    fn connect(
        &mut self,
        process: ProcId,
        at: &PeerAddress,
        hello: &[u8],
    ) -> Result<ConnectStart, String> {
        let PeerAddress::Tipc(port) = *at else {
            return Err("it is no address of TIPC".into());
        };
        if !self.is_joined_to(port.id.node) {
            return Err(no_link(port.id.node));
        }
        match self.pending.get(&process) {
            Some(pending) if pending.published => {
                let socket = socket::start_connect(port.id, hello).map_err(|e| e.to_string())?;
                Ok(ConnectStart::HelloSent(socket))
            }
            Some(_) => Ok(ConnectStart::Deferred),
            None => {
                let asked = self.topology.watch(process, port.name, NAME_TIMEOUT);
                asked.map_err(|e| format!("the topology server cannot be asked: {e}"))?;
                self.pending.insert(
                    process,
                    PendingConnect {
                        port,
                        published: false,
                    },
                );
                Ok(ConnectStart::Deferred)
            }
        }
    }
    fn connected(&self, _socket: &OwnedFd) -> Option<Result<(), Errno>> {
        None
    }
    fn forget(&mut self, process: ProcId) {
        if let Some(pending) = self.pending.remove(&process) {
            // Events of a subscription that could not be cancelled are ignored.
            let _ = self
                .topology
                .unwatch(process, pending.port.name, NAME_TIMEOUT);
        }
    }
    fn peer_address(&self, socket: &OwnedFd) -> Option<String> {
        let id = socket::peer(socket).ok()?;
        Some(format!("TIPC {id}"))
    }
    fn node(&self, socket: &OwnedFd) -> u32 {
        socket::peer(socket).map_or(0, |id| id.node)
    }
    fn cause_of_loss(&self, node: u32) -> Option<String> {
        let since = self.lost.get(&node)?.elapsed();
        if !self.is_joined_to(node) {
            Some(format!(
                "no TIPC link leads to its node {node:x} any more: the node is down, or nothing \
                 was heard of it for longer than its links' tolerance ({TOLERANCE})"
            ))
        } else if since < LOSS_EXPLAINS {
            Some(format!(
                "all TIPC links to its node {node:x} were lost, {:.1} seconds ago, and every \
                 connection with them; they are up again. That node, this one, or the network \
                stood still for longer than the links' tolerance ({TOLERANCE})",
                since.as_secs_f64()
            ))
        } else {
            None
        }
    }
    fn local_address(&self) -> String {
        let others = self.nodes.len();
        format!(
            "This is TIPC node {:x}, joined to {others} other{}",
            self.own.id.node,
            if others == 1 { "" } else { "s" }
        )
    }
    fn socket_ops(&self) -> &'static dyn SocketOps {
        &TipcOps
    }
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.topology.fd().as_fd())
    }
    fn events(&mut self) -> Result<Vec<MediumEvent>, TransportError> {
        let mut all = Vec::new();
        loop {
            match self.topology.next() {
                Ok(Some(event)) => all.extend(self.on_event(event)),
                Ok(None) => return Ok(all),
                Err(e) => {
                    return Err(TransportError::Refused {
                        attempted: "listening to TIPC's topology server".into(),
                        cause: e.into(),
                        advice: "was the tipc module taken out of the kernel?",
                    });
                }
            }
        }
    }
}

/// Operations on the socket of an open TIPC connection. What the node has taken reaches the other
/// node even if this process ends. Links watch each other, so there are no figures to ask for.
struct TipcOps;

impl SocketOps for TipcOps {
    /// One frame is one message of TIPC.
    fn stream_max(&self) -> usize {
        MESSAGE_MAX_BYTES - FRAME_HEADER_BYTES - FRAME_HEAD_MAX_BYTES
    }
}
