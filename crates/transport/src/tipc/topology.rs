//! The topology server: the kernel says who publishes a name and who withdraws one, and which nodes
//! are joined to this one.
//!
//! Subscriptions and events have the form of linux/tipc.h, in the machine's own byte order.

use super::address::{Id, Name};
use super::socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes of a subscription and of an event.
const SUBSCRIPTION: usize = 28;
const EVENT: usize = 48;
/// Filters: an event for each port, an event for the first and the last, no more events.
const PORTS: u32 = 1;
const SERVICE: u32 = 2;
const CANCEL: u32 = 4;
const FOREVER: u32 = u32::MAX;
/// The type of nodes, whose instances are their addresses, and the name of the topology server
/// itself.
const NODES: u32 = 0;
const SERVER: Name = Name {
    kind: 1,
    instance: 1,
};
/// How long the kernel may take to tell which nodes there are.
const PATIENCE: i64 = 5;

/// What a subscription is for; comes back with each of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The nodes of the cluster.
    Nodes,
    /// That all which was known before has been said.
    Before,
    /// A process of the job.
    Process(u32),
}

impl About {
    fn handle(self) -> u64 {
        match self {
            About::Nodes => u64::MAX,
            About::Before => u64::MAX - 1,
            About::Process(p) => p.into(),
        }
    }
    fn of(handle: u64) -> Option<About> {
        match handle {
            u64::MAX => Some(About::Nodes),
            0xffff_ffff_ffff_fffe => Some(About::Before),
            _ => u32::try_from(handle).ok().map(About::Process),
        }
    }
}

/// What has happened to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A port has published it.
    Published(Id),
    /// A port has withdrawn it, or has died, or its node has.
    Withdrawn(Id),
    /// Nobody has published it in the time that the subscription gave.
    PollThrottle,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What the subscription was for.
    pub about: About,
    /// What has happened.
    pub what: What,
    /// The name.
    pub name: Name,
}

/// A subscription as it travels.
fn subscription(about: About, range: [u32; 3], timeout: u32, filter: u32) -> [u8; SUBSCRIPTION] {
    let mut out = [0; SUBSCRIPTION];
    let [kind, lower, upper] = range;
    for (at, word) in out
        .chunks_exact_mut(4)
        .zip([kind, lower, upper, timeout, filter])
    {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    out[20..].copy_from_slice(&about.handle().to_ne_bytes());
    out
}

/// Reads an event.
///
/// Errors: what is wrong with it.
fn parse(bytes: &[u8]) -> Result<Event, &'static str> {
    let bytes: &[u8; EVENT] = bytes.try_into().map_err(|_| "an event of another length")?;
    let word = |n: usize| {
        let at = 4 * n;
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let id = Id {
        port: word(3),
        node: word(4),
    };
    let what = match word(0) {
        1 => What::Published(id),
        2 => What::Withdrawn(id),
        3 => What::PollThrottle,
        _ => return Err("an event of an unknown kind"),
    };
    let mut handle = [0; 8];
    handle.copy_from_slice(&bytes[EVENT - 8..]);
    let about = About::of(u64::from_ne_bytes(handle));
    let about = about.ok_or("an event for a subscription that was not made")?;
    // For ranges the found part; only the nodes are asked for as a range, and each is found alone.
    let (lower, upper, asked) = (word(1), word(2), [word(5), word(6), word(7)]);
    if lower > upper || (what != What::PollThrottle && (upper < asked[1] || lower > asked[2])) {
        return Err("an event of an impossible range");
    }
    let instance = match what {
        What::PollThrottle => asked[1],
        _ => lower,
    };
    Ok(Event {
        about,
        what,
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
    /// Asks for all nodes; returns those that are joined to this one now. Blocks until the kernel
    /// has said so.
    pub fn open() -> rustix::io::Result<(Topology, Vec<u32>)> {
        let topology = Topology {
            socket: socket::topology()?,
        };
        let all = [NODES, 0, u32::MAX];
        topology.tell(&subscription(About::Nodes, all, FOREVER, PORTS))?;
        // The server's own name always stands: when that is said, all before has been.
        let own = [SERVER.kind, SERVER.instance, SERVER.instance];
        topology.tell(&subscription(About::Before, own, FOREVER, SERVICE))?;
        let mut nodes = Vec::new();
        let limit = Timespec {
            tv_sec: PATIENCE,
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
                Some(Event { about, what, name }) => match (about, what) {
                    (About::Before, _) => return Ok((topology, nodes)),
                    (About::Nodes, What::Published(_)) => nodes.push(name.instance),
                    (About::Nodes, _) => nodes.retain(|&n| n != name.instance),
                    _ => {}
                },
            }
        }
    }

    /// Readable when there are events.
    pub fn fd(&self) -> &OwnedFd {
        &self.socket
    }

    fn tell(&self, subscription: &[u8; SUBSCRIPTION]) -> rustix::io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, subscription, flags)? {
            SUBSCRIPTION => Ok(()),
            _ => Err(Errno::AGAIN),
        }
    }

    /// Asks who publishes and withdraws the name of `process`; and to be told if nobody has in this
    /// time.
    pub fn watch(&self, process: u32, name: Name, patience: Duration) -> rustix::io::Result<()> {
        self.tell(&of_process(process, name, patience, PORTS))
    }

    /// Takes back what [`Topology::watch`] has asked with the same words.
    pub fn leave(&self, process: u32, name: Name, patience: Duration) -> rustix::io::Result<()> {
        self.tell(&of_process(process, name, patience, PORTS | CANCEL))
    }

    /// The next event, if there is one. What makes no sense is an error of its own: the kernel does
    /// not say such things.
    pub fn next(&self) -> rustix::io::Result<Option<Event>> {
        let mut bytes = [0; EVENT + 1];
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

fn of_process(process: u32, name: Name, patience: Duration, filter: u32) -> [u8; SUBSCRIPTION] {
    let range = [name.kind, name.instance, name.instance];
    let millis = u32::try_from(patience.as_millis()).unwrap_or(FOREVER - 1);
    subscription(About::Process(process), range, millis, filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fuzz::fuzz;

    fn event(kind: u32, found: [u32; 2], about: About) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [kind, found[0], found[1], 77, 0x0100_1002] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(subscription(about, [18888, 3, 3], 1000, PORTS));
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
        for (kind, what) in [
            (1, What::Published(id)),
            (2, What::Withdrawn(id)),
            (3, What::PollThrottle),
        ] {
            let about = About::Process(9);
            assert_eq!(
                parse(&event(kind, [3, 3], about)),
                Ok(Event { about, what, name })
            );
        }
        assert!(parse(&event(4, [3, 3], About::Nodes)).is_err());
        assert!(parse(&event(1, [4, 4], About::Nodes)).is_err());
        assert!(parse(&event(1, [3, 3], About::Nodes)[1..]).is_err());
        for about in [About::Nodes, About::Before, About::Process(u32::MAX)] {
            assert_eq!(About::of(about.handle()), Some(about));
        }
        assert_eq!(About::of(1 << 40), None);
    }

    #[test]
    fn fuzz_topology_events() {
        let seeds = [
            event(1, [3, 3], About::Process(1)),
            event(2, [3, 3], About::Nodes),
            event(3, [3, 3], About::Before),
        ];
        fuzz("topology events", &seeds, |bytes| match parse(bytes) {
            Ok(event) => {
                assert_eq!(bytes.len(), EVENT);
                assert!(About::of(event.about.handle()) == Some(event.about));
                true
            }
            Err(_) => false,
        });
    }
}
