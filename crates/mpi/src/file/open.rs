//! Opening, closing and deleting files (MPI 5.0 §14.2.1 to §14.2.3).
//!
//! ```text
//! 1. when all ranks have come, rank 0 opens the file, creating it if asked, and tells how it went
//! 2. the other ranks open it, without creating it
//! 3. all ranks learn whether all have succeeded
//! ```

use super::agree::{self, failure_of, put_failure};
use super::hints::Hints;
use super::shared::{PointerPlacement, SharedPointer};
use super::sieve_exclusion::{OtherOpens, SieveExclusion};
use super::{File, FileView, RankViews};
use crate::comm::agree::{Agreement, Reader, put_u64};
use crate::process::process;
use crate::{Comm, Errhandler, ErrhandlerSlot, Identity, Info, Result, err};
use ferry_io::store::{self, PosixStore, Store, StoredFile};
use ferry_io::transfer;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How a file is opened (the amode of MPI_File_open).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenMode {
    /// The program's number for it, which must be the same on all ranks.
    pub amode: i32,
    /// Reading is allowed.
    pub read: bool,
    /// Writing is allowed.
    pub write: bool,
    /// The file is created if it is missing.
    pub create: bool,
    /// It must be missing.
    pub exclusive: bool,
    /// File pointers start at its end.
    pub append: bool,
    /// It is deleted when it is closed.
    pub delete_on_close: bool,
    /// It is only accessed by the shared pointer or in order.
    pub sequential: bool,
}

impl OpenMode {
    /// Checks the combination.
    ///
    /// Errors: Amode.
    fn check(&self) -> Result<()> {
        if !self.read && !self.write {
            return Err(err!(
                Amode,
                "amode is {}, which is no combination of modes with one of MPI_MODE_RDONLY, \
                 MPI_MODE_WRONLY and MPI_MODE_RDWR",
                self.amode
            ));
        }
        if !self.write && (self.create || self.exclusive) {
            return Err(err!(
                Amode,
                "amode is {}: MPI_MODE_RDONLY excludes MPI_MODE_CREATE and MPI_MODE_EXCL",
                self.amode
            ));
        }
        if self.sequential && self.read && self.write {
            return Err(err!(
                Amode,
                "amode is {}: MPI_MODE_RDWR excludes MPI_MODE_SEQUENTIAL",
                self.amode
            ));
        }
        Ok(())
    }

    /// The mode of the first open, and of the others'.
    fn of_store(&self, first: bool, permissions: u32) -> store::OpenMode {
        store::OpenMode {
            read: self.read,
            write: self.write,
            create: self.create && first,
            exclusive: self.exclusive && first,
            permissions,
        }
    }
}

/// The path in a file name: without the prefix that ROMIO's users put before it to choose a
/// driver ("ufs:", "nfs:").
fn path_of(name: &Path) -> PathBuf {
    let text = name.to_string_lossy();
    for prefix in [
        "ufs:", "nfs:", "testfs:", "xfs:", "lustre:", "panfs:", "gpfs:",
    ] {
        if let Some(rest) = text.strip_prefix(prefix) {
            return PathBuf::from(rest);
        }
    }
    name.to_owned()
}

/// The handler that new files get: that of MPI_FILE_NULL (MPI 5.0 §14.7).
pub fn default_errhandler() -> &'static ErrhandlerSlot {
    static SLOT: std::sync::OnceLock<ErrhandlerSlot> = std::sync::OnceLock::new();
    SLOT.get_or_init(|| ErrhandlerSlot::new(Errhandler::returning()))
}

/// What the ranks know of the file after step 1.
struct FirstOpen {
    context: crate::device::ContextId,
    shared: PointerPlacement,
    others: OtherOpens,
    bytes: u64,
    stored: Option<Arc<dyn StoredFile>>,
}

/// A rank's arguments of MPI_File_open.
struct Opening {
    path: PathBuf,
    mode: OpenMode,
    hints: Hints,
}

impl Opening {
    fn new(name: &Path, mode: OpenMode, info: Option<&Info>) -> Result<Opening> {
        Ok(Opening {
            path: path_of(name),
            mode,
            hints: Hints::new(info)?,
        })
    }

    /// Step 1 on rank 0. `gathered`: the arguments of all ranks, or their errors.
    fn open_first(&self, gathered: &[u8]) -> Result<(Arc<dyn StoredFile>, u64)> {
        self.mode.check()?;
        let mut reader = Reader(gathered);
        let mut rank = 0;
        while !reader.is_empty() {
            if reader.u64()? == 0 {
                return Err(failure_of(&mut reader)?);
            }
            if reader.u64()? != self.mode.amode as u64 {
                return Err(err!(
                    NotSame,
                    "amode is {}, but rank {rank} has passed another: it has to be the same on all \
                     ranks",
                    self.mode.amode
                ));
            }
            rank += 1;
        }
        let stored = self.open(true)?;
        let bytes = if self.mode.append {
            transfer::len(&*stored)?
        } else {
            0
        };
        Ok((stored, bytes))
    }

    /// Step 1, on a rank with these arguments.
    fn begin(comm: &Comm, mine: &Result<Opening>) -> Result<FirstOpen> {
        let agreement = Agreement::of_all(comm)?;
        let mut own = Vec::new();
        match mine {
            Ok(opening) => {
                put_u64(&mut own, 1);
                put_u64(&mut own, opening.mode.amode as u64);
            }
            Err(e) => {
                put_u64(&mut own, 0);
                put_failure(&mut own, comm.rank(), e);
            }
        }
        // What the program has done to the file before, on any rank, has been done.
        let gathered = agreement.gather(0, own)?;
        let mut message = Vec::new();
        let mut own = None;
        if agreement.rank() == 0 {
            let opened = match mine {
                Ok(opening) => opening.open_first(&gathered),
                Err(e) => Err(e.clone()),
            };
            match opened {
                Ok((stored, bytes)) => {
                    put_u64(&mut message, 1);
                    put_u64(&mut message, process().new_context().0);
                    put_u64(&mut message, bytes);
                    SharedPointer::announce(comm).put(&mut message);
                    match stored.can_write() {
                        true => OtherOpens::enter(&*stored).put(&mut message),
                        false => OtherOpens::Unknown.put(&mut message),
                    }
                    own = Some(Ok(stored));
                }
                Err(e) => {
                    put_u64(&mut message, 0);
                    put_failure(&mut message, 0, &e);
                    own = Some(Err(e));
                }
            }
        }
        let message = agreement.broadcast(0, message)?;
        if let Err(e) = mine {
            return Err(e.clone());
        }
        let stored = own.transpose()?;
        let mut reader = Reader(&message);
        if reader.u64()? == 0 {
            return Err(failure_of(&mut reader)?);
        }
        let context = reader.context()?;
        let bytes = reader.u64()?;
        Ok(FirstOpen {
            context,
            bytes,
            shared: PointerPlacement::read(&mut reader)?,
            others: OtherOpens::read(&mut reader)?,
            stored,
        })
    }

    /// Opens the file, in step 1 on the first rank, in step 2 on the others.
    fn open(&self, first: bool) -> Result<Arc<dyn StoredFile>> {
        let mode = self.mode.of_store(first, self.hints.permissions);
        let opened = PosixStore.open(&self.path, &mode);
        match opened {
            // A client of NFS remembers that there was no such file, and makes sure when its folder
            // is opened.
            Err(error) if !first && error.kind == ferry_io::Kind::NoSuchFile => {
                let folder = match self.path.parent() {
                    Some(folder) if !folder.as_os_str().is_empty() => folder,
                    _ => Path::new("."),
                };
                drop(std::fs::File::open(folder));
                Ok(PosixStore.open(&self.path, &mode)?)
            }
            other => Ok(other?),
        }
    }
}

impl File {
    /// Opens a file of this name, in this mode, with these hints. Collective over `comm`; blocks
    /// until all its ranks have called it. If one cannot open it, it is open on none, and all get
    /// that rank's class of error. An error as arguments: this rank's are bad.
    ///
    /// Errors: Amode, NotSame, InfoValue for bad arguments; those of the system.
    pub fn open(
        comm: &Arc<Comm>,
        arguments: Result<(&Path, OpenMode, Option<&Info>)>,
    ) -> Result<Arc<File>> {
        let mine = arguments.and_then(|(name, mode, info)| Opening::new(name, mode, info));
        let first = Opening::begin(comm, &mine)?;
        let opening = mine?;
        let own = Arc::new(comm.child(first.context, comm.group.clone()));
        own.rename(b"a file");
        let mine = match first.stored {
            Some(stored) => Ok(stored),
            None => opening.open(false),
        };
        let shared = SharedPointer::join(&own, first.shared).and_then(|shared| {
            // Before any rank returns.
            if own.rank() == 0 {
                shared.store(first.bytes)?;
            }
            Ok(shared)
        });
        let so_far = match (&mine, &shared) {
            (Ok(_), Ok(_)) => Ok(()),
            (Err(e), _) | (_, Err(e)) => Err(e.clone()),
        };
        if let Err(e) = agree::on_success(&own, so_far) {
            if let Ok(shared) = &shared {
                shared.release();
            }
            let _ = own.free();
            return Err(e);
        }
        let (stored, shared) = (mine?, shared?);
        let Opening { path, mode, hints } = opening;
        let sieve_exclusion = SieveExclusion::new(shared.ranks(comm.rank()), first.others);
        sieve_exclusion.set_asked(hints.asks_for_sieving_writes());
        Ok(Arc::new(File {
            identity: Identity::none(),
            errhandler: default_errhandler().clone(),
            comm: own,
            path,
            mode,
            stored,
            view: RwLock::new(Arc::new(FileView::bytes())),
            plain_view: AtomicU64::new(1),
            position: Mutex::new(first.bytes),
            sieve_exclusion: Arc::new(sieve_exclusion),
            shared,
            atomic: AtomicBool::new(false),
            hints: Mutex::new(hints),
            split: Mutex::new(None),
            transfers: AtomicU32::new(0),
            rank_views: Mutex::new(RankViews::default()),
        }))
    }

    /// May it be closed?
    ///
    /// Errors: Other while a split collective is open.
    pub fn check_may_close(&self) -> Result<()> {
        self.check_no_split("MPI_File_close")
    }

    /// Closes the file. Collective; blocks until all ranks have called it. With
    /// MPI_MODE_DELETE_ON_CLOSE, rank 0 then deletes it.
    ///
    /// Errors: those of the system, also late ones of writes to a file system of a network.
    pub fn close(self: &Arc<File>) -> Result<()> {
        let flushed = if self.mode.write && self.stored.file_system().is_remote() {
            transfer::sync(&*self.stored).map_err(Into::into)
        } else {
            Ok(())
        };
        let closed = agree::on_success_then(&self.comm, flushed, || {
            if self.mode.delete_on_close {
                PosixStore.delete(&self.path)?;
            }
            Ok(())
        });
        self.stored.leave();
        self.shared.release();
        let _ = self.comm.free();
        closed
    }

    /// Deletes a file that nobody has open (MPI_File_delete). Local.
    ///
    /// Errors: NoSuchFile, Access and others of the system.
    pub fn delete(name: &Path) -> Result<()> {
        Ok(PosixStore.delete(&path_of(name))?)
    }

    /// Errors: Other while a split collective is open.
    pub(super) fn check_no_split(&self, call: &str) -> Result<()> {
        let split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        match &*split {
            None => Ok(()),
            Some(active) => Err(err!(
                Other,
                "{call} is not allowed between {} and its MPI_File_{}_end",
                active.call(),
                active.name()
            )),
        }
    }

    /// The number of the next collective transfer, the same on all ranks.
    pub(super) fn next_transfer(&self) -> u32 {
        self.transfers.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff
    }
}
