//! Sessions (MPI 5.0 §11.3): ways into MPI that know nothing of each other, nor of the world model.
//!
//! Communicators come from groups, and groups from process sets, which are known by name. Nothing
//! here talks to other processes.

use crate::process::{self, Process, ThreadLevel, process};
use crate::pt2pt::BufferPool;
use crate::{Errhandler, ErrhandlerPlace, Group, Identity, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session, from MPI_Session_init to MPI_Session_finalize.
#[derive(Debug)]
pub struct Session {
    /// The handle.
    pub identity: Identity,
    /// What an error on it does.
    pub errhandler: ErrhandlerPlace,
    /// The buffer attached to it for buffered sends (MPI_Session_attach_buffer).
    pub buffers: BufferPool,
    level: ThreadLevel,
    is_over: AtomicBool,
}

/// A session has been opened in this process.
static OPENED: AtomicBool = AtomicBool::new(false);

impl Session {
    /// Has any session been opened in this process? Otherwise all comes from the world model.
    #[inline]
    pub fn opened() -> bool {
        OPENED.load(Ordering::Relaxed)
    }

    /// A new session (MPI_Session_init); starts the process if it is the first to use MPI. Grants
    /// the level of thread support that is asked for as far as the world model allows, which
    /// may have been there before; without a wish, the highest.
    ///
    /// Errors: the launcher cannot be spoken to; the shared segment cannot be mapped.
    pub fn open(wish: Option<ThreadLevel>, errhandler: &Arc<Errhandler>) -> Result<Arc<Session>> {
        // Whoever comes later may ask for any level, and the device cannot change its ways under
        // others' feet.
        let process = process::start(ThreadLevel::Multiple)?;
        process.begin()?;
        let limit = process.thread_limit();
        OPENED.store(true, Ordering::Relaxed);
        Ok(Arc::new(Session {
            identity: Identity::none(),
            errhandler: ErrhandlerPlace::new(errhandler),
            buffers: BufferPool::new(),
            level: wish.map_or(limit, |wish| wish.min(limit)),
            is_over: AtomicBool::new(false),
        }))
    }

    /// The level of thread support that it was granted.
    pub fn thread_level(&self) -> ThreadLevel {
        self.level
    }

    /// Ends it (MPI_Session_finalize). Its buffered messages leave first, and with the last use of
    /// MPI in this process all others: blocks until then. Later calls do nothing.
    pub fn close(&self) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.buffers.detach();
        process().end();
    }

    /// The group of a process set, as a group of this session (MPI_Group_from_session_pset).
    pub fn group(self: &Arc<Session>, set: ProcessSet) -> Arc<Group> {
        set.group(process()).derived_from(Some(self))
    }
}

/// A process set: a named group that there is without anybody's making it (MPI 5.0 §11.3.2).
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
    /// All of them; their places here are their numbers.
    pub const ALL: [ProcessSet; 3] = [ProcessSet::World, ProcessSet::Itself, ProcessSet::Shared];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ProcessSet::World => "mpi://WORLD",
            ProcessSet::Itself => "mpi://SELF",
            ProcessSet::Shared => "mpi://SHARED",
        }
    }

    /// The set of that name; upper and lower case are the same.
    pub fn named(name: &[u8]) -> Option<ProcessSet> {
        ProcessSet::ALL
            .into_iter()
            .find(|set| set.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// How many processes are in it.
    pub fn size(self) -> u32 {
        match self {
            ProcessSet::World => process().size,
            ProcessSet::Itself => 1,
            ProcessSet::Shared => process().rank_info.local_ranks.len() as u32,
        }
    }

    fn group(self, process: &Process) -> Arc<Group> {
        let me = process.me;
        match self {
            ProcessSet::World => Group::first(process.size, me),
            ProcessSet::Itself => Group::new([me], me),
            ProcessSet::Shared => Group::new(process.rank_info.local_ranks.clone(), me),
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
