//! This process's part of the world model: what exists between MPI_Init and MPI_Finalize (MPI 5.0 §11.2).

use crate::{Comm, ProcId};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Levels of thread support (MPI 5.0 §11.6), least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum ThreadLevel {
    Single,
    Funneled,
    Serialized,
    Multiple,
}

/// What a started process has.
pub struct Process {
    /// Its number in the job.
    pub me: ProcId,
    /// Processes in the job.
    pub size: u32,
    /// MPI_COMM_WORLD.
    pub world: Arc<Comm>,
    /// MPI_COMM_SELF.
    pub itself: Arc<Comm>,
    /// What was provided at initialisation.
    pub thread_level: ThreadLevel,
    /// MPI_APPNUM.
    pub appnum: u32,
    next_context: AtomicU32,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// This process. Panics before initialisation: the abi floor checks first.
#[inline]
pub fn process() -> &'static Process {
    PROCESS.get().expect("MPI is initialised")
}

/// This process, if MPI has been initialised.
#[inline]
pub fn started() -> Option<&'static Process> {
    PROCESS.get()
}

impl Process {
    /// A context never used before in this job; this process leads the communicator's creation.
    pub fn new_context(&self) -> crate::device::ContextId {
        crate::device::ContextId::new(self.me, self.next_context.fetch_add(1, Ordering::Relaxed))
    }
}
