//! The system calls that guards use: userfaultfd(2), ioctl_userfaultfd(2), madvise(2), futex(2).

use crate::{GuardError, PAGE_BYTES};
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Version of the kernel's interface (linux/userfaultfd.h).
const UFFD_API: u64 = 0xaa;
/// Feature: forks are reported.
const UFFD_FEATURE_EVENT_FORK: u64 = 1 << 1;
/// Features UFFD_FEATURE_EVENT_REMAP, _REMOVE and _UNMAP: changes of the mapping are reported.
const UFFD_FEATURE_EVENTS: u64 = 1 << 2 | 1 << 3 | 1 << 6;
/// Feature: faults report the touched address instead of its page's.
const UFFD_FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
/// Feature: pages can be moved (UFFDIO_MOVE).
const UFFD_FEATURE_MOVE: u64 = 1 << 16;

/// Requests of ioctl_userfaultfd(2).
const IOC_NEW: u64 = 0xaa00;
const IOC_API: u64 = 0xc018_aa3f;
const IOC_REGISTER: u64 = 0xc020_aa00;
const IOC_UNREGISTER: u64 = 0x8010_aa01;
const IOC_WAKE: u64 = 0x8010_aa02;
const IOC_COPY: u64 = 0xc028_aa03;
const IOC_ZEROPAGE: u64 = 0xc020_aa04;
const IOC_MOVE: u64 = 0xc028_aa05;

/// A message as it is read from a userfaultfd.
pub(crate) type Message = [u64; 4];

/// An event of a userfaultfd.
#[derive(Debug)]
pub(crate) enum Event {
    /// A thread has touched a missing page at this address, and waits.
    Fault(usize),
    /// A fork. The descriptor is the child's own userfaultfd.
    Fork(OwnedFd),
    /// mremap has moved `len` bytes.
    Remap { from: usize, to: usize, len: usize },
    /// The contents of these pages are dropped (madvise).
    Remove(Range<usize>),
    /// These pages are no longer mapped.
    Unmap(Range<usize>),
}

/// Events of userfaultfd(2), by linux/userfaultfd.h.
const UFFD_EVENT_PAGEFAULT: u64 = 0x12;
const UFFD_EVENT_FORK: u64 = 0x13;
const UFFD_EVENT_REMAP: u64 = 0x14;
const UFFD_EVENT_REMOVE: u64 = 0x15;
const UFFD_EVENT_UNMAP: u64 = 0x16;

/// A userfaultfd: this process's, or a forked child's.
pub(crate) struct Userfaultfd {
    fd: OwnedFd,
    /// It reports forks.
    pub(crate) reports_forks: bool,
}

impl AsRawFd for Userfaultfd {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// The outcome of moving or copying pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TransferOutcome {
    /// This many bytes were moved, at least a page.
    Bytes(usize),
    /// Try again: an event waits to be read, or a page is in use for a moment.
    Again,
    /// There is a page already.
    Exists,
    /// Not possible.
    Refused,
}

impl Userfaultfd {
    /// Opens this process's userfaultfd.
    pub fn open() -> std::result::Result<Userfaultfd, GuardError> {
        let mut features = UFFD_FEATURE_MOVE
            | UFFD_FEATURE_EXACT_ADDRESS
            | UFFD_FEATURE_EVENTS
            | UFFD_FEATURE_EVENT_FORK;
        loop {
            let fd = new().map_err(|cause| GuardError::System {
                attempted: "asking for a userfaultfd that also sees the system's own accesses \
                                (root, vm.unprivileged_userfaultfd=1, or a readable \
                                /dev/userfaultfd)",
                cause,
            })?;
            let mut api = [UFFD_API, features, 0u64];
            match ioctl(&fd, IOC_API, &raw mut api) {
                Ok(()) => {
                    return Ok(Userfaultfd {
                        fd,
                        reports_forks: features & UFFD_FEATURE_EVENT_FORK != 0,
                    });
                }
                // Reports of forks need CAP_SYS_PTRACE. Without it all guards end before a fork.
                Err(e)
                    if e.raw_os_error() == Some(libc::EPERM)
                        && features & UFFD_FEATURE_EVENT_FORK != 0 =>
                {
                    features &= !UFFD_FEATURE_EVENT_FORK;
                }
                Err(cause) => {
                    return Err(GuardError::System {
                        attempted: "moving pages by userfaultfd (Linux 6.8 or newer)",
                        cause,
                    });
                }
            }
        }
    }

    /// The userfaultfd of a forked child.
    pub fn of_child(fd: OwnedFd) -> Userfaultfd {
        Userfaultfd {
            fd,
            reports_forks: true,
        }
    }

    /// Reports touches of missing pages in this range.
    pub fn register(&self, pages: Range<usize>) -> Result<()> {
        let mut with = [pages.start as u64, pages.len() as u64, 1, 0];
        ioctl(&self.fd, IOC_REGISTER, &raw mut with)
    }

    /// Reports nothing more of this range.
    pub fn unregister(&self, pages: Range<usize>) -> Result<()> {
        let mut with = [pages.start as u64, pages.len() as u64];
        ioctl(&self.fd, IOC_UNREGISTER, &raw mut with)
    }

    /// Wakes the threads that wait for one of these pages.
    pub fn wake(&self, pages: Range<usize>) {
        let mut with = [pages.start as u64, pages.len() as u64];
        let _ = ioctl(&self.fd, IOC_WAKE, &raw mut with);
    }

    /// Moves pages within this process, and wakes the threads that wait for them.
    pub fn move_pages(&self, from: usize, to: usize, len: usize) -> TransferOutcome {
        let mut with = [to as u64, from as u64, len as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_MOVE, &raw mut with);
        outcome(result, with[4], len)
    }

    /// Copies memory of this process into missing pages of the descriptor's process.
    pub fn copy(&self, from: usize, to: usize, len: usize) -> TransferOutcome {
        let mut with = [to as u64, from as u64, len as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_COPY, &raw mut with);
        outcome(result, with[4], len)
    }

    /// Puts a page of zeros where one is missing, as the system would.
    pub fn zero(&self, page: usize) -> TransferOutcome {
        let mut with = [page as u64, PAGE_BYTES as u64, 0, 0];
        let result = ioctl(&self.fd, IOC_ZEROPAGE, &raw mut with);
        outcome(result, with[3], PAGE_BYTES)
    }

    /// Reads the next messages. Returns their number. It is zero if there are none now, or no room.
    /// Allocates nothing.
    pub fn read(&self, messages: &mut [Message]) -> usize {
        let room = size_of_val(messages);
        // SAFETY: the slice has room for `room` bytes.
        let got = unsafe { libc::read(self.as_raw_fd(), messages.as_mut_ptr().cast(), room) };
        usize::try_from(got).unwrap_or(0) / size_of::<Message>()
    }

    /// Decodes a message. To be called once for each message: the event of a fork owns its
    /// descriptor.
    pub fn event(message: &Message) -> Option<Event> {
        let (a, b, c) = (
            message[1] as usize,
            message[2] as usize,
            message[3] as usize,
        );
        Some(match message[0] & 0xff {
            UFFD_EVENT_PAGEFAULT => Event::Fault(b),
            // SAFETY: the system has just made this descriptor for whoever reads the event.
            UFFD_EVENT_FORK => Event::Fork(unsafe { OwnedFd::from_raw_fd(a as u32 as i32) }),
            UFFD_EVENT_REMAP => Event::Remap {
                from: a,
                to: b,
                len: c,
            },
            UFFD_EVENT_REMOVE => Event::Remove(a..b),
            UFFD_EVENT_UNMAP => Event::Unmap(a..b),
            _ => return None,
        })
    }

    /// Reads the next events, if there are any.
    pub fn events(&self) -> Vec<Event> {
        let mut messages = [[0; 4]; 16];
        let count = self.read(&mut messages);
        messages[..count]
            .iter()
            .filter_map(Userfaultfd::event)
            .collect()
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

fn outcome(result: Result<()>, moved: u64, len: usize) -> TransferOutcome {
    match result {
        Ok(()) => TransferOutcome::Bytes(len),
        Err(_) if (moved as i64) > 0 => TransferOutcome::Bytes(moved as usize),
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN) => TransferOutcome::Again,
            Some(libc::EEXIST) => TransferOutcome::Exists,
            _ => TransferOutcome::Refused,
        },
    }
}

/// MADV_POPULATE_WRITE of madvise(2).
const MADV_POPULATE_WRITE: i32 = 23;

/// Makes each of these pages exist, as the process's own and writable (MADV_POPULATE_WRITE).
pub(crate) fn populate(pages: &Range<usize>) -> Result<()> {
    // SAFETY: touches the pages as a write would, and changes nothing.
    match unsafe { libc::madvise(pages.start as *mut _, pages.len(), MADV_POPULATE_WRITE) } {
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

/// Wakes all threads that sleep on the word.
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    let flags = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: only the address is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, i32::MAX) };
}
