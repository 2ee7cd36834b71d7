//! What a process's threads sleep on until something arrives.
//!
//! A process whose transports are all in shared memory sleeps on one word, by futex. If it also has
//! transports with descriptors, one of its sleeping threads waits for those, by epoll, and the
//! others wait for that thread, by futex. A peer that then brings something through shared memory
//! sends a byte to the process's wakeup socket, whose name is on its control page.

use crate::shm::wakeup_word;
use crate::{Sleeper, TransportError};
use ferry_job::clock;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    sendto, socket_with,
};
use rustix::thread::futex;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// What this process's threads sleep on. Lives as long as the process.
pub struct Wakeup {
    word: &'static AtomicU32,
    /// Only this crate writes the word, so that its lowest bit is that of [`wakeup_word`].
    is_wakeup_word: bool,
    /// Set once there are descriptors: when it is made, or by [`Wakeup::add_descriptors`].
    descriptors: OnceLock<Descriptors>,
}

/// What the thread waits for that waits for descriptors.
struct Descriptors {
    epoll: OwnedFd,
    /// Readable when a thread of this process has signaled.
    own: OwnedFd,
    /// Readable when another process of the node has signaled: the wakeup socket. Only if shared
    /// memory is a transport, too.
    remote: OnceLock<OwnedFd>,
}

/// What an event of the epoll descriptor is about: a transport.
const TRANSPORT: u64 = 0;
/// What an event of the epoll descriptor is about: a signal, which must be taken.
const SIGNAL: u64 = 1;

impl Wakeup {
    /// For sleeping on `word` alone. `is_wakeup_word`: only wakeups, and peers in shared memory,
    /// write it.
    pub const fn on_word(word: &'static AtomicU32, is_wakeup_word: bool) -> Wakeup {
        Wakeup {
            word,
            is_wakeup_word,
            descriptors: OnceLock::new(),
        }
    }

    /// For sleeping on `word` and on the transports' descriptors. With a `name` (see
    /// `new_socket_name`), other processes of the node can wake it by `wake_socket`.
    ///
    /// Errors: the limit on open files is reached.
    pub fn with_descriptors<'a>(
        word: &'static AtomicU32,
        name: Option<u64>,
        transports: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Result<Wakeup, TransportError> {
        let wakeup = Wakeup::on_word(word, false);
        wakeup.add_descriptors(name, transports)?;
        Ok(wakeup)
    }

    /// From now on the process's threads sleep on the transports' descriptors, too. Does nothing if
    /// they do already. Threads that sleep now are to be [woken](Wakeup::signal), so that one of
    /// them waits for descriptors.
    ///
    /// Errors: the limit on open files is reached.
    pub fn add_descriptors<'a>(
        &self,
        name: Option<u64>,
        transports: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Result<(), TransportError> {
        let make = || -> rustix::io::Result<Descriptors> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let watch = |fd: BorrowedFd<'_>, about| {
                let data = epoll::EventData::new_u64(about);
                epoll::add(&epoll, fd, data, epoll::EventFlags::IN)
            };
            let own = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            watch(own.as_fd(), SIGNAL)?;
            let remote = OnceLock::new();
            if let Some(name) = name {
                let _ = remote.set(wakeup_socket(&epoll, name)?);
            }
            for fd in transports {
                watch(fd, TRANSPORT)?;
            }
            Ok(Descriptors { epoll, own, remote })
        };
        match make() {
            Ok(descriptors) => {
                if self.is_wakeup_word {
                    wakeup_word::set_polled(self.word, false);
                }
                let _ = self.descriptors.set(descriptors);
                Ok(())
            }
            Err(e) => Err(TransportError::Refused {
                attempted: "making what this process sleeps on".into(),
                cause: e.into(),
                advice: "raise the limit on open files (ulimit -n)",
            }),
        }
    }

    /// From now on other processes of the node can wake it by `wake_socket` of this name, too. For
    /// a process that sleeps on descriptors, and had no wakeup socket.
    ///
    /// Errors: the limit on open files is reached.
    pub fn add_socket(&self, name: u64) -> Result<(), TransportError> {
        let Some(descriptors) = self.descriptors.get() else {
            return Ok(());
        };
        let socket = wakeup_socket(&descriptors.epoll, name);
        let socket = socket.map_err(|e| TransportError::Refused {
            attempted: "making what this process is woken by".into(),
            cause: e.into(),
            advice: "raise the limit on open files (ulimit -n)",
        })?;
        let _ = descriptors.remote.set(socket);
        Ok(())
    }

    /// A number that each signal changes. A thread takes it before it makes sure that there is
    /// nothing to do, and gives it to [`Wakeup::wait`].
    pub fn epoch(&self) -> u32 {
        wakeup_word::epoch(self.word)
    }

    /// The wakeup word's address and the epoll descriptor. The launcher recognises by them that a
    /// thread's system call is a sleep in MPI.
    pub fn sleep_addresses(&self) -> (u64, Option<i32>) {
        let descriptors = self.descriptors.get().map(|d| d.epoll.as_raw_fd());
        (std::ptr::from_ref(self.word) as u64, descriptors)
    }

    /// Returns whether one of the sleeping threads has to [wait for
    /// descriptors](Wakeup::wait_descriptors).
    pub fn has_descriptors(&self) -> bool {
        self.descriptors.get().is_some()
    }

    /// Sleeps until a thread of this process signals, but not longer than `at_most`. Without
    /// descriptors, a peer's signal ends the sleep, too. Does not sleep if there was a signal since
    /// [`Wakeup::epoch`] was `seen`.
    pub fn wait(&self, who: Sleeper, seen: u32, at_most: Option<Duration>) {
        let deadline = at_most.map(|after| {
            let at = Duration::from_nanos(clock::monotonic()).saturating_add(after);
            futex::Timespec {
                tv_sec: at.as_secs() as i64,
                tv_nsec: at.subsec_nanos().into(),
            }
        });
        let flags = futex::Flags::empty();
        let seen = match who {
            Sleeper::Progress => wakeup_word::asleep_at(seen),
            Sleeper::Program => seen,
        };
        let _ = futex::wait_bitset(self.word, flags, seen, deadline.as_ref(), who.bits());
    }

    /// Sleeps until somebody signals or a transport's descriptor has something, but not longer than
    /// `at_most`. For one thread at a time.
    pub fn wait_descriptors(&self, at_most: Option<Duration>) {
        let Some(descriptors) = self.descriptors.get() else {
            return;
        };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 4];
        let at_most = at_most.and_then(|after| after.try_into().ok());
        let Ok((found, _)) = epoll::wait(&descriptors.epoll, &mut events, at_most.as_ref()) else {
            // A signal handler has run: the caller looks again.
            return;
        };
        // Also if none was found in time.
        if found.iter().all(|e| e.data.u64() == TRANSPORT) {
            return;
        }
        let mut bytes = [0; 8];
        let _ = rustix::io::read(&descriptors.own, &mut bytes);
        if let Some(remote) = descriptors.remote.get() {
            while recv(remote, &mut bytes[..], RecvFlags::DONTWAIT).is_ok() {}
        }
    }

    /// Returns whether the word's lowest bit is that of [`wakeup_word`].
    fn uses_polled_bit(&self) -> bool {
        self.is_wakeup_word && self.descriptors.get().is_none()
    }

    /// Returns whether there was a signal since [`Wakeup::epoch`] was `seen`.
    pub fn signaled_since(&self, seen: u32) -> bool {
        wakeup_word::signaled_since(self.word, seen)
    }

    /// Returns whether the progress thread sees a signal without being woken.
    pub fn is_polled(&self) -> bool {
        self.uses_polled_bit() && wakeup_word::is_polled(self.word)
    }

    /// Sets whether the progress thread looks at the wakeup word before it sleeps. False: it is
    /// about to sleep. Does nothing where there are descriptors.
    pub fn set_polled(&self, polled: bool) {
        if self.uses_polled_bit() {
            wakeup_word::set_polled(self.word, polled);
        }
    }

    /// Wakes these of the process's sleeping threads. `watched`: one of them waits for descriptors.
    pub fn signal(&self, who: Sleeper, watched: bool) {
        let for_thread = who == Sleeper::Progress && self.uses_polled_bit();
        if wakeup_word::signal(self.word, for_thread) {
            wake(self.word, who.bits());
        }
        if watched && let Some(descriptors) = self.descriptors.get() {
            let _ = rustix::io::write(&descriptors.own, &1u64.to_ne_bytes());
        }
    }
}

/// Wakes the threads of any process that sleep on `word` with one of the bits `who`.
pub fn wake(word: &AtomicU32, who: NonZeroU32) {
    let _ = futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, who);
}

/// A random name for this process's wakeup socket, which nobody can guess.
///
/// Errors: the system gives no random bytes.
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

/// Wakes the process whose wakeup socket has this name, if one of its threads waits for
/// descriptors.
#[cold]
pub fn wake_socket(name: u64) {
    static FROM: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let from = FROM.get_or_init(|| datagram_socket().ok());
    if let (Some(from), Ok(to)) = (from, address(name)) {
        // If its queue is full, it has been woken already. If nobody is there, it has ended.
        let _ = sendto(from, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to);
    }
}

/// The wakeup socket of this name, watched by `epoll`.
fn wakeup_socket(epoll: &OwnedFd, name: u64) -> rustix::io::Result<OwnedFd> {
    let socket = datagram_socket()?;
    bind(&socket, &address(name)?)?;
    let data = epoll::EventData::new_u64(SIGNAL);
    epoll::add(epoll, &socket, data, epoll::EventFlags::IN)?;
    Ok(socket)
}

fn datagram_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
}

/// The address of a wakeup socket: in the abstract namespace, so that nothing is left in the file
/// system.
fn address(name: u64) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("ferry-{name:016x}").as_bytes())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    static WORD: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_datagram_a_signal_and_a_transport_wake_who_waits_for_descriptors() {
        let name = new_socket_name().unwrap();
        let transport = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let transports = std::iter::once(transport.as_fd());
        let wakeup = Wakeup::with_descriptors(&WORD, Some(name), transports).unwrap();
        let wakes: [&(dyn Fn() + Sync); 2] = [&|| wake_socket(name), &|| {
            wakeup.signal(Sleeper::Program, true)
        }];
        for wake in wakes {
            let start = Instant::now();
            std::thread::scope(|s| {
                s.spawn(|| wakeup.wait_descriptors(None));
                wake();
            });
            // The signal was taken, so the next wait sleeps until the datagram that follows.
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        rustix::io::write(&transport, &1u64.to_ne_bytes()).unwrap();
        wakeup.wait_descriptors(None);
        let seen = wakeup.epoch();
        wakeup.signal(Sleeper::Program, false);
        wakeup.wait(Sleeper::Program, seen, None);
        // Datagrams to sockets that are not there, or are full, do nothing.
        wake_socket(name ^ 2);
        for _ in 0..1000 {
            wake_socket(name);
        }
        wakeup.wait_descriptors(None);
    }
}
