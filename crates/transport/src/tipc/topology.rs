//! The client of TIPC's topology server: the kernel reports who publishes or withdraws a name, and
//! which nodes are joined to this one.
//!
//! Subscriptions and events have the form of linux/tipc.h (`struct tipc_subscr`, `struct
//! tipc_event`), in the machine's own byte order.

use super::address::{Id, Name};
use super::socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes of a subscription (linux/tipc.h).
const SUBSCRIPTION_BYTES: usize = 28;
/// Bytes of an event (linux/tipc.h).
const EVENT_BYTES: usize = 48;
/// Filter: an event for each port that publishes or withdraws (TIPC_SUB_PORTS).
const EACH_PORT: u32 = 1;
/// Filter: an event for the first port that publishes and the last that withdraws
/// (TIPC_SUB_SERVICE).
const FIRST_AND_LAST: u32 = 2;
/// Filter: cancels the subscription (TIPC_SUB_CANCEL).
const CANCEL: u32 = 4;
/// Time-out of a subscription that has none, milliseconds (TIPC_WAIT_FOREVER).
const FOREVER_MS: u32 = u32::MAX;
/// The service type of nodes (TIPC_NODE_STATE). Their instances are their addresses.
const NODES_KIND: u32 = 0;
/// The name of the topology server itself (TIPC_TOP_SRV).
const SERVER: Name = Name {
    kind: 1,
    instance: 1,
};
/// Seconds that the kernel may take to report the nodes. A choice: it takes microseconds.
const OPEN_TIMEOUT_SECONDS: i64 = 5;

/// What a subscription is about. Comes back with each of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The nodes of the cluster.
    Nodes,
    /// The server itself, whose event comes after all that it knew before.
    Server,
    /// A process of the job.
    Process(u32),
}

impl Subject {
    fn handle(self) -> u64 {
        match self {
            Subject::Nodes => u64::MAX,
            Subject::Server => u64::MAX - 1,
            Subject::Process(p) => p.into(),
        }
    }
    fn of(handle: u64) -> Option<Subject> {
        match handle {
            u64::MAX => Some(Subject::Nodes),
            0xffff_ffff_ffff_fffe => Some(Subject::Server),
            _ => u32::try_from(handle).ok().map(Subject::Process),
        }
    }
}

/// What has happened to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A port has published it.
    Published(Id),
    /// A port has withdrawn it, or the port or its node has died.
    Withdrawn(Id),
    /// The subscription has timed out.
    TimedOut,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What the subscription was about.
    pub subject: Subject,
    /// What has happened.
    pub change: Change,
    /// The name.
    pub name: Name,
}

/// Encodes a subscription. `range`: service type, lowest and highest instance. `timeout`: in
/// milliseconds.
fn subscription(
    subject: Subject,
    range: [u32; 3],
    timeout: u32,
    filter: u32,
) -> [u8; SUBSCRIPTION_BYTES] {
    let mut out = [0; SUBSCRIPTION_BYTES];
    let [kind, lower, upper] = range;
    for (at, word) in out
        .chunks_exact_mut(4)
        .zip([kind, lower, upper, timeout, filter])
    {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    out[20..].copy_from_slice(&subject.handle().to_ne_bytes());
    out
}

/// Decodes an event.
///
/// Errors: what is wrong with it.
fn parse(bytes: &[u8]) -> Result<Event, &'static str> {
    let bytes: &[u8; EVENT_BYTES] = bytes.try_into().map_err(|_| "an event of another length")?;
    let word = |n: usize| {
        let at = 4 * n;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let id = Id {
        port: word(3),
        node: word(4),
    };
    let change = match word(0) {
        1 => Change::Published(id),
        2 => Change::Withdrawn(id),
        3 => Change::TimedOut,
        _ => return Err("an event of an unknown kind"),
    };
    let mut handle = [0; 8];
    handle.copy_from_slice(&bytes[EVENT_BYTES - 8..]);
    let subject = Subject::of(u64::from_ne_bytes(handle));
    let subject = subject.ok_or("an event for a subscription that was not made")?;
    // Of a range, the part that was found. Only the nodes are asked for as a range, and each is
    // found alone.
    let (lower, upper, asked) = (word(1), word(2), [word(5), word(6), word(7)]);
    if lower > upper || (change != Change::TimedOut && (upper < asked[1] || lower > asked[2])) {
        return Err("an event of an impossible range");
    }
    let instance = match change {
        Change::TimedOut => asked[1],
        _ => lower,
    };
    Ok(Event {
        subject,
        change,
        name: Name {
            kind: asked[0],
            instance,
        },
    })
}

/// A connection to the topology server.
pub struct Topology {
    socket: OwnedFd,
}

impl Topology {
    /// Subscribes to all nodes. Returns those that are joined to this one now. Blocks until the
    /// kernel has reported them.
    pub fn open() -> rustix::io::Result<(Topology, Vec<u32>)> {
        let topology = Topology {
            socket: socket::topology()?,
        };
        let all = [NODES_KIND, 0, u32::MAX];
        topology.tell(&subscription(Subject::Nodes, all, FOREVER_MS, EACH_PORT))?;
        // The server's own name is always published. Its event comes after those of the nodes.
        let own = [SERVER.kind, SERVER.instance, SERVER.instance];
        topology.tell(&subscription(
            Subject::Server,
            own,
            FOREVER_MS,
            FIRST_AND_LAST,
        ))?;
        let mut nodes = Vec::new();
        let limit = Timespec {
            tv_sec: OPEN_TIMEOUT_SECONDS,
            tv_nsec: 0,
        };
        loop {
            match topology.next()? {
                None => {
                    let mut fds = [PollFd::new(&topology.socket, PollFlags::IN)];
                    match poll(&mut fds, Some(&limit)) {
                        Ok(0) => return Err(Errno::TIMEDOUT),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(e) => return Err(e),
                    }
                }
                Some(Event {
                    subject,
                    change,
                    name,
                }) => match (subject, change) {
                    (Subject::Server, _) => return Ok((topology, nodes)),
                    (Subject::Nodes, Change::Published(_)) => nodes.push(name.instance),
                    (Subject::Nodes, _) => nodes.retain(|&n| n != name.instance),
                    _ => {}
                },
            }
        }
    }

    /// Readable when there are events.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }

    /// Sends a subscription.
    fn tell(&self, subscription: &[u8; SUBSCRIPTION_BYTES]) -> rustix::io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, subscription, flags)? {
            SUBSCRIPTION_BYTES => Ok(()),
            _ => Err(Errno::AGAIN),
        }
    }

    /// Subscribes to the name of `process`. An event comes, too, if nobody has published it within
    /// `timeout`.
    pub fn watch(&self, process: u32, name: Name, timeout: Duration) -> rustix::io::Result<()> {
        self.tell(&of_process(process, name, timeout, EACH_PORT))
    }

    /// Cancels the subscription that [`Topology::watch`] has made with the same arguments.
    pub fn unwatch(&self, process: u32, name: Name, timeout: Duration) -> rustix::io::Result<()> {
        self.tell(&of_process(process, name, timeout, EACH_PORT | CANCEL))
    }

    /// The next event, if there is one.
    ///
    /// Errors: [`Errno::BADMSG`] for an event that makes no sense; the kernel sends none.
    pub fn next(&self) -> rustix::io::Result<Option<Event>> {
        let mut bytes = [0; EVENT_BYTES + 1];
        loop {
            return match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => Err(Errno::CONNRESET),
                Ok((n, _)) => match parse(&bytes[..n]) {
                    Ok(event) => Ok(Some(event)),
                    Err(_) => Err(Errno::BADMSG),
                },
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(e) => Err(e),
            };
        }
    }
}

/// A subscription to the name of `process`.
fn of_process(
    process: u32,
    name: Name,
    timeout: Duration,
    filter: u32,
) -> [u8; SUBSCRIPTION_BYTES] {
    let range = [name.kind, name.instance, name.instance];
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(FOREVER_MS - 1);
    subscription(Subject::Process(process), range, millis, filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fuzz::fuzz;

    fn event(kind: u32, found: [u32; 2], subject: Subject) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [kind, found[0], found[1], 77, 0x0100_1002] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(subscription(subject, [18888, 3, 3], 1000, EACH_PORT));
        out
    }

    #[test]
    fn events_are_read_as_the_kernel_writes_them() {
        let id = Id {
            port: 77,
            node: 0x0100_1002,
        };
        let name = Name {
            kind: 18888,
            instance: 3,
        };
        for (kind, change) in [
            (1, Change::Published(id)),
            (2, Change::Withdrawn(id)),
            (3, Change::TimedOut),
        ] {
            let subject = Subject::Process(9);
            assert_eq!(
                parse(&event(kind, [3, 3], subject)),
                Ok(Event {
                    subject,
                    change,
                    name
                })
            );
        }
        assert!(parse(&event(4, [3, 3], Subject::Nodes)).is_err());
        assert!(parse(&event(1, [4, 4], Subject::Nodes)).is_err());
        assert!(parse(&event(1, [3, 3], Subject::Nodes)[1..]).is_err());
        for subject in [Subject::Nodes, Subject::Server, Subject::Process(u32::MAX)] {
            assert_eq!(Subject::of(subject.handle()), Some(subject));
        }
        assert_eq!(Subject::of(1 << 40), None);
    }

    #[test]
    fn fuzz_topology_events() {
        let seeds = [
            event(1, [3, 3], Subject::Process(1)),
            event(2, [3, 3], Subject::Nodes),
            event(3, [3, 3], Subject::Server),
        ];
        fuzz("topology events", &seeds, |bytes| match parse(bytes) {
            Ok(event) => {
                assert_eq!(bytes.len(), EVENT_BYTES);
                assert!(Subject::of(event.subject.handle()) == Some(event.subject));
                true
            }
            Err(_) => false,
        });
    }
}
