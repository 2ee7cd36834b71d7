//! Where a process's threads sleep until something comes.
//!
//! A process whose transports are all in shared memory sleeps by futex on one word. One that also
//! has transports with descriptors has one of its sleeping threads wait for those, by epoll, and
//! the others by futex for the first. Whoever then brings something through shared memory sends a
//! byte to a socket, whose name stands in the process's control page.

use crate::shm::wakeup_word;
use crate::{Sleeper, TransportError};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    sendto, socket_with,
};
use rustix::thread::futex;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Where this process's threads sleep. Lives as long as the process.
pub struct Wakeup {
    word: &'static AtomicU32,
    /// Only this crate writes the word, so that its lowest bit means what it says.
    own: bool,
    descriptors: Option<Descriptors>,
}

/// What a thread waits for that sleeps until a descriptor has something.
struct Descriptors {
    epoll: OwnedFd,
    /// Rung by this process's own threads.
    own: OwnedFd,
    /// Rung by the node's other processes; only if shared memory is a transport, too.
    remote: Option<OwnedFd>,
}

impl Wakeup {
    /// For sleeping on `word` alone; `own`: nobody but wakeups and peers in shared memory writes
    /// it.
    pub fn on_word(word: &'static AtomicU32, own: bool) -> Wakeup {
        Wakeup {
            word,
            own,
            descriptors: None,
        }
    }

    /// For sleeping on `word` and on descriptors. With a `name` (see `new_socket_name`) other
    /// processes of the node can wake it by `wake_socket`.
    ///
    /// Errors: no descriptors are left.
    pub fn with_descriptors<'a>(
        word: &'static AtomicU32,
        name: Option<u64>,
        wires: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Result<Wakeup, TransportError> {
        let make = || -> rustix::io::Result<Descriptors> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let listen = |fd: BorrowedFd<'_>| {
                epoll::add(
                    &epoll,
                    fd,
                    epoll::EventData::new_u64(0),
                    epoll::EventFlags::IN,
                )
            };
            let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(
                &epoll,
                &own,
                epoll::EventData::new_u64(1),
                epoll::EventFlags::IN,
            )?;
            let remote = match name {
                Some(name) => {
                    let socket = datagrams()?;
                    bind(&socket, &address(name)?)?;
                    epoll::add(
                        &epoll,
                        &socket,
                        epoll::EventData::new_u64(1),
                        epoll::EventFlags::IN,
                    )?;
                    Some(socket)
                }
                None => None,
            };
            for fd in wires {
                listen(fd)?;
            }
            Ok(Descriptors { epoll, own, remote })
        };
        match make() {
            Ok(descriptors) => Ok(Wakeup {
                word,
                own: false,
                descriptors: Some(descriptors),
            }),
            Err(e) => Err(TransportError::Refused {
                attempted: "making what this process sleeps on".into(),
                cause: e.into(),
                advice: "raise the limit on open files (ulimit -n)",
            }),
        }
    }

    /// How often it has been rung: taken before a thread makes sure that there is nothing to do,
    /// and given to [`Wakeup::wait`].
    pub fn epoch(&self) -> u32 {
        wakeup_word::epoch(self.word)
    }

    /// What its sleepers' system calls name, for who looks at the process from outside: the word's
    /// address and the epoll descriptor of who watches.
    pub fn place(&self) -> (u64, Option<i32>) {
        let descriptors = self.descriptors.as_ref().map(|d| d.epoll.as_raw_fd());
        (std::ptr::from_ref(self.word) as u64, descriptors)
    }

    /// Returns whether one of the sleeping threads has to [wait for
    /// descriptors](Wakeup::wait_descriptors).
    pub fn has_descriptors(&self) -> bool {
        self.descriptors.is_some()
    }

    /// Sleeps until a thread of this process, or where there is no descriptors a peer, rings; not
    /// at all if that has happened since `seen`. Not longer than `at_most`.
    pub fn wait(&self, who: Sleeper, seen: u32, at_most: Option<Duration>) {
        let deadline = at_most.map(|after| {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let nanos = now.tv_nsec + i64::from(after.subsec_nanos());
            futex::Timespec {
                tv_sec: now.tv_sec + after.as_secs() as i64 + nanos / 1_000_000_000,
                tv_nsec: nanos % 1_000_000_000,
            }
        });
        let flags = futex::Flags::empty();
        let seen = match who {
            Sleeper::Progress => wakeup_word::asleep_at(seen),
            Sleeper::Program => seen,
        };
        let _ = futex::wait_bitset(self.word, flags, seen, deadline.as_ref(), who.bits());
    }

    /// Sleeps until somebody rings or a transport's descriptor has something. For one thread at a
    /// time.
    pub fn wait_descriptors(&self) {
        let Some(descriptors) = &self.descriptors else {
            return;
        };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 4];
        let Ok((found, _)) = epoll::wait(&descriptors.epoll, &mut events, None) else {
            // Interrupted by a signal: look again.
            return;
        };
        if found.iter().all(|e| e.data.u64() == 0) {
            return;
        }
        let mut bytes = [0; 8];
        let _ = rustix::io::read(&descriptors.own, &mut bytes);
        if let Some(remote) = &descriptors.remote {
            while recv(remote, &mut bytes[..], RecvFlags::DONTWAIT).is_ok() {}
        }
    }

    /// Returns whether it was signaled since it stood at `seen`.
    pub fn signaled_since(&self, seen: u32) -> bool {
        wakeup_word::signaled_since(self.word, seen)
    }

    /// Returns whether the progress thread sees a signal without being woken.
    pub fn is_polled(&self) -> bool {
        self.own && wakeup_word::is_polled(self.word)
    }

    /// Says that the progress thread looks at it from now on before it sleeps, or is about to
    /// sleep. Only for a wakeup word without descriptors.
    pub fn set_polled(&self, polled: bool) {
        if self.own {
            wakeup_word::set_polled(self.word, polled);
        }
    }

    /// Wakes those of this process's sleeping threads; `watched`: one of them watches.
    pub fn signal(&self, who: Sleeper, watched: bool) {
        let for_thread = who == Sleeper::Progress && self.own;
        if wakeup_word::signal(self.word, for_thread) {
            crate::shm::wake(self.word, who.bits());
        }
        if watched && let Some(descriptors) = &self.descriptors {
            let _ = rustix::io::write(&descriptors.own, &1u64.to_ne_bytes());
        }
    }
}

/// A name that nobody can guess for the socket at which this process can be woken.
pub fn new_socket_name() -> Result<u64, TransportError> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes) | 1),
        other => Err(TransportError::Refused {
            attempted: "asking the system for random bytes".into(),
            cause: other.err().unwrap_or(rustix::io::Errno::IO).into(),
            advice: "Linux has had them since 3.17; a sandbox may forbid them",
        }),
    }
}

/// Wakes the process whose socket has this name, if it sleeps with its descriptors watched.
#[cold]
pub fn wake_socket(name: u64) {
    static FROM: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let from = FROM.get_or_init(|| datagrams().ok());
    if let (Some(from), Ok(to)) = (from, address(name)) {
        // A full queue means that it has been woken already; nobody there, that it has ended.
        let _ = sendto(from, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to);
    }
}

fn datagrams() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// In the abstract namespace: nothing is left in the file system.
fn address(name: u64) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("ferry-{name:016x}").as_bytes())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    static WORD: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_knock_a_ring_and_a_wire_wake_the_watcher() {
        let name = new_socket_name().unwrap();
        let wire = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let wires = std::iter::once(std::os::fd::AsFd::as_fd(&wire));
        let wakeup = Wakeup::with_descriptors(&WORD, Some(name), wires).unwrap();
        let wakes: [&(dyn Fn() + Sync); 2] = [&|| wake_socket(name), &|| {
            wakeup.signal(Sleeper::Program, true)
        }];
        for wake in wakes {
            let start = Instant::now();
            std::thread::scope(|s| {
                s.spawn(|| wakeup.wait_descriptors());
                wake();
            });
            // Taken out: the next watch sleeps again (until the datagram that follows).
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        rustix::io::write(&wire, &1u64.to_ne_bytes()).unwrap();
        wakeup.wait_descriptors();
        let seen = wakeup.epoch();
        wakeup.signal(Sleeper::Program, false);
        wakeup.wait(Sleeper::Program, seen, None);
        // Datagrams to sockets that are not there, or are full, do nothing.
        wake_socket(name ^ 2);
        for _ in 0..1000 {
            wake_socket(name);
        }
        wakeup.wait_descriptors();
    }
}
