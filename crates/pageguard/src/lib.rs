//! Page guards. A thread that touches a guarded page waits until the page's data have arrived.
//!
//! ```text
//!   program's thread          watching thread              owner (overlapped collective)
//!        │ touches a page          │                            │
//!        ├── fault ───────────────►│── Owner::touched ─────────►│ hurries
//!        │ waits                   │                            │ data land in the shadow
//!        │◄── page is back ────────┼────────── Guard::open ─────┤
//!        ▼                         ▼                            ▼
//!   guard     one guard and its shadow      registry   what is guarded at the moment
//!   system    userfaultfd                   protect    mprotect and SIGSEGV
//!   watch     the watching thread           fork       children that still wait for data
//! ```
//!
//! A [`Guard`] takes whole pages away from the program for a while. Their data are written to the
//! guard's shadow, an area of the library. [`Guard::open`] puts them back piece by piece when they
//! are ready. A thread that touches a page before that waits. The guard's [`Owner`] gets the
//! address.
//!
//! There are two kinds:
//!
//! - [`Kind::Move`] moves the pages themselves by userfaultfd (Linux 6.8). System calls on the
//!   program's behalf wait, too. Changes of the program's address space are followed.
//! - [`Kind::Protect`] takes the rights to the pages away by mprotect, and waits in a handler of
//!   SIGSEGV. System calls on guarded pages fail with EFAULT, so this kind is used
//!   only on request.
//!
//! This crate knows addresses and pages, and nothing of MPI.
//!
//! # Example
//! ```
//! use ferry_pageguard::{Guard, Kind, Owner, PAGE_BYTES, whole_pages};
//! use std::alloc::{Layout, alloc_zeroed};
//! use std::sync::Arc;
//!
//! struct Nobody;
//! impl Owner for Nobody {
//!     fn on_touch(&self, _: &Guard, _: usize) {}
//! }
//!
//! // SAFETY: the size is not zero.
//! let layout = Layout::from_size_align(4 * PAGE_BYTES, PAGE_BYTES).unwrap();
//! let buffer = unsafe { alloc_zeroed(layout) };
//! let span = buffer.addr()..buffer.addr() + 4 * PAGE_BYTES;
//! let pages = whole_pages(span.clone());
//! // Not every system gives what a guard needs.
//! if let Ok(guard) = Guard::begin(Kind::Protect, &span, vec![pages], Arc::new(Nobody)) {
//!     let shadow = buffer.wrapping_add(guard.delta());
//!     // SAFETY: the shadow of a guarded page is the library's.
//!     unsafe { shadow.write(7) };
//!     guard.end();
//!     // SAFETY: the buffer is readable.
//!     assert_eq!(unsafe { buffer.read() }, 7);
//! }
//! ```

mod arena;
mod fork;
mod guard;
mod protect;
mod registry;
mod shadow;
mod system;
mod watch;

pub use arena::{Arena, use_arena};
pub use guard::{Guard, Owner};
pub use registry::{Kind, enable, set_before_fork, stop, survives_fork};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// The error of memory that cannot be guarded.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The system does not give what the guard needs.
    #[error("{attempted}: {cause}")]
    System {
        /// The step that failed.
        attempted: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The memory is of a kind that cannot be guarded, or a limit is reached.
    #[error("this memory cannot be guarded: {0}")]
    Unsupported(&'static str),
}

impl GuardError {
    pub(crate) fn last_os_error(attempted: &'static str) -> GuardError {
        GuardError::System {
            attempted,
            cause: std::io::Error::last_os_error(),
        }
    }
}

/// The pages that lie entirely in `bytes`.
pub fn whole_pages(bytes: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let start = bytes.start.next_multiple_of(PAGE_BYTES);
    start..(bytes.end / PAGE_BYTES * PAGE_BYTES).max(start)
}
