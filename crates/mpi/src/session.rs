//! Sessions (MPI 5.0 §11.3). Each is independent of other sessions and of the world model.
//!
//! Communicators are made from groups. Groups are made from process sets, which are known by name.
//! This module sends no messages.

use crate::process::{self, Process, ThreadLevel, process};
use crate::pt2pt::BufferPool;
use crate::{Errhandler, ErrhandlerSlot, Group, Identity, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session, from MPI_Session_init to MPI_Session_finalize.
#[derive(Debug)]
pub struct Session {
    /// The handle.
    pub identity: Identity,
    /// Its error handler.
    pub errhandler: ErrhandlerSlot,
    /// The buffer attached to it for buffered sends (MPI_Session_attach_buffer).
    pub buffers: BufferPool,
    level: ThreadLevel,
    is_over: AtomicBool,
}

/// Set once a session has been opened in this process.
static OPENED: AtomicBool = AtomicBool::new(false);

impl Session {
    /// Has a session been opened in this process? If not, every object belongs to the world model.
    #[inline]
    pub fn opened() -> bool {
        OPENED.load(Ordering::Relaxed)
    }

    /// Opens a session (MPI_Session_init). Starts the process if it is the first to use MPI.
    /// Provides the level of thread support that is required, as far as the process allows. Without
    /// a required level it provides the highest.
    ///
    /// Errors: the launcher cannot be reached; the shared segment cannot be mapped.
    pub fn open(wish: Option<ThreadLevel>, errhandler: &Arc<Errhandler>) -> Result<Arc<Session>> {
        // A later session may require any level, and the device's level cannot change once it runs.
        let process = process::start(ThreadLevel::Multiple)?;
        process.acquire()?;
        let limit = process.thread_limit();
        OPENED.store(true, Ordering::Relaxed);
        Ok(Arc::new(Session {
            identity: Identity::none(),
            errhandler: ErrhandlerSlot::new(errhandler),
            buffers: BufferPool::new(),
            level: wish.map_or(limit, |wish| wish.min(limit)),
            is_over: AtomicBool::new(false),
        }))
    }

    /// The level of thread support that was provided.
    pub fn thread_level(&self) -> ThreadLevel {
        self.level
    }

    /// Ends the session (MPI_Session_finalize). Blocks until its buffered messages have left. The
    /// last use of MPI in this process blocks until all messages have left. Later calls do nothing.
    pub fn close(&self) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.buffers.detach();
        process().release();
    }

    /// The group of a process set, as a group of this session (MPI_Group_from_session_pset).
    pub fn group(self: &Arc<Session>, set: ProcessSet) -> Arc<Group> {
        set.group(process()).with_session(Some(self))
    }
}

/// A process set: a named group that exists without a call that makes it (MPI 5.0 §11.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessSet {
    /// All processes of the job.
    World,
    /// The calling process.
    Itself,
    /// The job's processes on this node.
    Shared,
}

impl ProcessSet {
    /// All process sets. Their indices here are their numbers.
    pub const ALL: [ProcessSet; 3] = [ProcessSet::World, ProcessSet::Itself, ProcessSet::Shared];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ProcessSet::World => "mpi://WORLD",
            ProcessSet::Itself => "mpi://SELF",
            ProcessSet::Shared => "mpi://SHARED",
        }
    }

    /// The set with that name. Case does not matter.
    pub fn named(name: &[u8]) -> Option<ProcessSet> {
        ProcessSet::ALL
            .into_iter()
            .find(|set| set.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Number of processes in the set.
    pub fn size(self) -> u32 {
        match self {
            ProcessSet::World => process().size,
            ProcessSet::Itself => 1,
            ProcessSet::Shared => process().node_ranks().len() as u32,
        }
    }

    fn group(self, process: &Process) -> Arc<Group> {
        let me = process.me;
        match self {
            ProcessSet::World => Group::first(process.size, me),
            ProcessSet::Itself => Group::new([me], me),
            ProcessSet::Shared => Group::new(process.node_ranks(), me),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_sets_are_found_by_their_names() {
        for set in ProcessSet::ALL {
            assert_eq!(ProcessSet::named(set.name().as_bytes()), Some(set));
        }
        assert_eq!(
            ProcessSet::named(b"mpi://world"),
            Some(ProcessSet::World),
            "case means nothing"
        );
        for none in ["", "mpi://", "mpi://WORLDS", "WORLD", "mpi:/SELF"] {
            assert_eq!(ProcessSet::named(none.as_bytes()), None);
        }
    }
}
