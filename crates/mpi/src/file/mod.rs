//! Files (MPI 5.0 chapter 14).
//!
//! ```text
//! open, hints              MPI_File_open … MPI_File_close; size, sync
//! view, representation     what of the file a process sees, and how data are represented there
//! position, shared         the individual and the shared file pointer
//! access                   independent reads and writes
//! sieve_exclusion          sieving writes beside others
//! background               their non-blocking forms
//! collective               collective reads and writes, in two phases
//! ordered, split           in the order of the ranks; begin and end
//! ```
//!
//! Layouts, system calls and plans are those of crate `ferry_io`, which knows no MPI. Here are the
//! standard's rules, the messages between ranks, and the errors.

mod access;
mod agree;
mod background;
mod collective;
mod error;
mod hints;
mod open;
mod ordered;
mod position;
mod representation;
mod shared;
mod sieve_exclusion;
mod size;
mod split;
mod view;

pub use collective::AccessArguments;
pub use open::{OpenMode, default_errhandler};
pub use position::{Position, Whence};
pub use representation::{RepresentationFunctions, register};
pub use split::SplitCollective;
pub use view::{ViewArguments, ViewDescription};

use crate::device::WaitingFor;
use crate::{Comm, ErrhandlerSlot, Group, Identity, Result};
use collective::RankViews;
use ferry_io::store::StoredFile;
use shared::SharedPointer;
use sieve_exclusion::SieveExclusion;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use view::FileView;

/// An open file.
///
/// Active operations keep it alive ([`Arc`]) after the program has closed it.
pub struct File {
    /// The handle.
    pub identity: Identity,
    /// Its error handler.
    pub errhandler: ErrhandlerSlot,
    /// A communicator of its own over the group that has opened it.
    comm: Arc<Comm>,
    path: PathBuf,
    mode: OpenMode,
    stored: Arc<dyn StoredFile>,
    view: RwLock<Arc<FileView>>,
    /// The view's displacement plus 1, if it is one of bytes, as they are in memory, from there on.
    /// 0: it is another one.
    plain_view: AtomicU64,
    /// The individual file pointer, in etypes of the view.
    position: Mutex<u64>,
    shared: SharedPointer,
    sieve_exclusion: Arc<SieveExclusion>,
    atomic: AtomicBool,
    hints: Mutex<hints::Hints>,
    split: Mutex<Option<split::ActiveSplit>>,
    /// Collective transfers started. It is the tag of the next one's messages.
    transfers: AtomicU32,
    /// The other ranks' views, as far as this process needs them.
    rank_views: Mutex<RankViews>,
}

impl File {
    /// Its path, as the program gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it was opened.
    pub fn mode(&self) -> &OpenMode {
        &self.mode
    }

    /// The processes that have opened it (MPI_File_get_group).
    pub fn group(&self) -> &Arc<Group> {
        &self.comm.group
    }

    /// Are accesses atomic (MPI 5.0 §14.6.1)?
    pub fn is_atomic(&self) -> bool {
        self.atomic.load(Ordering::Relaxed)
    }

    /// Sets whether accesses are atomic (MPI_File_set_atomicity). Collective; blocks until all
    /// ranks have called it.
    ///
    /// Errors: NotSame if the ranks pass different values.
    pub fn set_atomic(&self, atomic: bool) -> Result<()> {
        let difference =
            || format!("flag is {atomic}, but not on all ranks: atomicity is the same for all");
        let values = [u64::from(atomic)];
        agree::on_same_values_then(&self.comm, Ok(()), values, difference, || Ok(()))?;
        self.atomic.store(atomic, Ordering::Relaxed);
        Ok(())
    }

    fn view(&self) -> Arc<FileView> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        view.clone()
    }

    fn hints(&self) -> MutexGuard<'_, hints::Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_hints(&self, hints: hints::Hints) {
        self.sieve_exclusion
            .set_asked(hints.asks_for_sieving_writes());
        *self.hints() = hints;
    }

    /// What a wait within a call on the file shows in mpiexec's report of a hang.
    fn waiting_for(&self) -> WaitingFor<'_> {
        WaitingFor {
            context: self.comm.context,
            peer: ferry_job::PEER_SEVERAL,
            tag: -1,
            details: Some(&*self.comm),
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .field("ranks", &self.comm.size())
            .finish_non_exhaustive()
    }
}
