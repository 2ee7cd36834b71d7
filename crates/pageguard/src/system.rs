//! The system calls behind guards: userfaultfd(2), ioctl_userfaultfd(2), and a few on memory.

use crate::{PAGE, Refusal};
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const API: u64 = 0xaa;
const EVENT_FORK: u64 = 1 << 1;
const EVENTS: u64 = 1 << 2 | 1 << 3 | 1 << 6; // REMAP, REMOVE, UNMAP
const EXACT: u64 = 1 << 11; // the address that was touched, not its page's
const MOVE: u64 = 1 << 16;

const IOC_NEW: u64 = 0xaa00;
const IOC_API: u64 = 0xc018_aa3f;
const IOC_REGISTER: u64 = 0xc020_aa00;
const IOC_UNREGISTER: u64 = 0x8010_aa01;
const IOC_WAKE: u64 = 0x8010_aa02;
const IOC_COPY: u64 = 0xc028_aa03;
const IOC_ZEROPAGE: u64 = 0xc020_aa04;
const IOC_MOVE: u64 = 0xc028_aa05;

/// What is read from a descriptor at a time.
pub(crate) type Message = [u64; 4];

/// What a userfaultfd tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody has touched a missing page, and waits.
    Fault(usize),
    /// A fork: the child's own descriptor.
    Fork(OwnedFd),
    /// mremap has moved so many bytes.
    Remap { from: usize, to: usize, len: usize },
    /// What these held is dropped (madvise).
    Remove(Range<usize>),
    /// These are no longer mapped.
    Unmap(Range<usize>),
}

/// A userfaultfd: this process's, or a forked child's.
pub(crate) struct Faults {
    fd: OwnedFd,
    /// It tells of forks.
    pub(crate) forks: bool,
}

impl AsRawFd for Faults {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// How a move or copy went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Went {
    /// So many bytes, at least a page.
    Bytes(usize),
    /// Not now: an event waits to be read, or a page is in use for a moment.
    Later,
    /// There is a page already.
    There,
    /// Not here.
    No,
}

impl Faults {
    /// This process's.
    pub fn open() -> std::result::Result<Faults, Refusal> {
        let mut wanted = MOVE | EXACT | EVENTS | EVENT_FORK;
        loop {
            let fd = new().map_err(|cause| Refusal::System {
                attempted: "asking for a userfaultfd that also sees the system's own accesses \
                                (root, vm.unprivileged_userfaultfd=1, or a readable \
                                /dev/userfaultfd)",
                cause,
            })?;
            let mut api = [API, wanted, 0u64];
            match ioctl(&fd, IOC_API, &raw mut api) {
                Ok(()) => {
                    return Ok(Faults {
                        fd,
                        forks: wanted & EVENT_FORK != 0,
                    });
                }
                // Without the right to follow children, the program's forks are waited for.
                Err(e) if e.raw_os_error() == Some(libc::EPERM) && wanted & EVENT_FORK != 0 => {
                    wanted &= !EVENT_FORK;
                }
                Err(cause) => {
                    return Err(Refusal::System {
                        attempted: "moving pages by userfaultfd (Linux 6.8 or newer)",
                        cause,
                    });
                }
            }
        }
    }

    /// A forked child's.
    pub fn of_child(fd: OwnedFd) -> Faults {
        Faults { fd, forks: true }
    }

    pub fn register(&self, pages: Range<usize>) -> Result<()> {
        let mut with = [pages.start as u64, pages.len() as u64, 1, 0];
        ioctl(&self.fd, IOC_REGISTER, &raw mut with)
    }

    pub fn unregister(&self, pages: Range<usize>) -> Result<()> {
        let mut with = [pages.start as u64, pages.len() as u64];
        ioctl(&self.fd, IOC_UNREGISTER, &raw mut with)
    }

    /// Wakes whoever waits for one of these pages.
    pub fn wake(&self, pages: Range<usize>) {
        let mut with = [pages.start as u64, pages.len() as u64];
        let _ = ioctl(&self.fd, IOC_WAKE, &raw mut with);
    }

    /// Moves pages within this process, wakes whoever waits for them.
    pub fn shift(&self, from: usize, to: usize, len: usize) -> Went {
        let mut with = [to as u64, from as u64, len as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_MOVE, &raw mut with);
        went(result, with[4], len)
    }

    /// Puts a copy of this process's memory into missing pages of the process that the descriptor
    /// is of.
    pub fn copy(&self, from: usize, to: usize, len: usize) -> Went {
        let mut with = [to as u64, from as u64, len as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_COPY, &raw mut with);
        went(result, with[4], len)
    }

    /// A page of zeros where one is missing, as if nobody watched it.
    pub fn zero(&self, page: usize) -> Went {
        let mut with = [page as u64, PAGE as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_ZEROPAGE, &raw mut with);
        went(result, with[3], PAGE)
    }

    /// Reads the next events into `messages`. Returns how many; none if there are none now, or no
    /// room. Allocates nothing.
    pub fn read(&self, messages: &mut [Message]) -> usize {
        let room = size_of_val(messages);
        // SAFETY: the slice has room for so many bytes.
        let got = unsafe { libc::read(self.as_raw_fd(), messages.as_mut_ptr().cast(), room) };
        usize::try_from(got).unwrap_or(0) / size_of::<Message>()
    }

    /// What a message says. Once only for each: with a fork's goes its descriptor.
    pub fn event(message: &Message) -> Option<Event> {
        let (a, b, c) = (
            message[1] as usize,
            message[2] as usize,
            message[3] as usize,
        );
        Some(match message[0] & 0xff {
            0x12 => Event::Fault(b),
            // SAFETY: the system has just made this descriptor for whoever reads the event.
            0x13 => Event::Fork(unsafe { OwnedFd::from_raw_fd(a as u32 as i32) }),
            0x14 => Event::Remap {
                from: a,
                to: b,
                len: c,
            },
            0x15 => Event::Remove(a..b),
            0x16 => Event::Unmap(a..b),
            _ => return None,
        })
    }

    /// The next events; none if there are none now.
    pub fn events(&self) -> Vec<Event> {
        let mut messages = [[0; 4]; 16];
        let count = self.read(&mut messages);
        messages[..count].iter().filter_map(Faults::event).collect()
    }
}

fn new() -> Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a new descriptor, owned by nobody else.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd >= 0 {
        // SAFETY: the call has just made this descriptor, and nobody else owns it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    }
    let cause = Error::last_os_error();
    let Ok(device) = std::fs::File::open("/dev/userfaultfd") else {
        return Err(cause);
    };
    // SAFETY: the request takes flags and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), IOC_NEW, flags) };
    if fd < 0 {
        return Err(cause);
    }
    // SAFETY: the request has just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ioctl<T>(fd: &OwnedFd, request: u64, with: *mut T) -> Result<()> {
    // SAFETY: each request gets the structure that it is for, which outlives the call.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, with) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn went(result: Result<()>, moved: u64, len: usize) -> Went {
    match result {
        Ok(()) => Went::Bytes(len),
        Err(_) if (moved as i64) > 0 => Went::Bytes(moved as usize),
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN) => Went::Later,
            Some(libc::EEXIST) => Went::There,
            _ => Went::No,
        },
    }
}

/// Makes all these pages be there, each the process's own.
pub(crate) fn populate(pages: &Range<usize>) -> Result<()> {
    // SAFETY: touches the pages as a write would, and changes nothing.
    match unsafe { libc::madvise(pages.start as *mut _, pages.len(), 23) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Sleeps while the word is `seen`. Safe in signal handlers.
pub(crate) fn futex_wait(word: &std::sync::atomic::AtomicU32, seen: u32) {
    let flags = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; no timeout is given.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            flags,
            seen,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

/// Wakes all who sleep on the word.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    let flags = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: only the address is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, i32::MAX) };
}
