//! Guards on a program's memory: whoever touches data that have not come yet waits until they have.
//!
//! A [`Guard`] takes whole pages of the program's away for a while. What is to be in them is
//! written to the guard's shadow, an area of the library's own, and put back piece by piece as it
//! is ready ([`Guard::open`]). A thread that touches a page before that waits, and the
//! guard's owner is told where ([`Owner`]).
//!
//! Two kinds: [`Kind::Move`] moves the pages themselves by userfaultfd (Linux 6.8): the system's
//! own accesses on the program's behalf wait, too, and what the program does to its address space
//! is followed. [`Kind::Protect`] takes the rights to the pages away (mprotect) and waits in a
//! handler of SIGSEGV: system calls on guarded pages fail with EFAULT, so that nobody gets it who
//! has not asked for it.
//!
//! This floor knows addresses and pages; it has not heard of MPI.

mod arena;
mod fork;
mod guard;
mod protect;
mod registry;
mod shadow;
mod system;
mod watch;

pub use arena::{Arena, keep_apart};
pub use guard::{Guard, Owner};
pub use registry::{Kind, available, lasting, settle_before_fork, stop};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Why memory cannot be guarded.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The system does not give what the guard needs.
    #[error("{attempted}: {cause}")]
    System {
        /// What was tried.
        attempted: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// This memory is of a kind that cannot be guarded.
    #[error("this memory cannot be guarded: {0}")]
    Memory(&'static str),
}

impl Refusal {
    pub(crate) fn last(attempted: &'static str) -> Refusal {
        Refusal::System {
            attempted,
            cause: std::io::Error::last_os_error(),
        }
    }
}

/// The pages that lie wholly in `bytes`.
pub fn whole_pages(bytes: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let start = bytes.start.next_multiple_of(PAGE);
    start..(bytes.end / PAGE * PAGE).max(start)
}
