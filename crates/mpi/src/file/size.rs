//! The size of a file, and its contents on disk (MPI 5.0 §14.2.4 to §14.2.6, §14.6.2).

use super::{File, agree};
use crate::{Result, err};
use ferry_io::transfer;

impl File {
    /// Bytes of the file (MPI_File_get_size).
    ///
    /// Errors: those of the system.
    pub fn size(&self) -> Result<u64> {
        Ok(transfer::len(&*self.stored)?)
    }

    /// Shortens or extends the file (MPI_File_set_size). Collective; blocks until all ranks have
    /// called it. Storage need not be reserved.
    ///
    /// Errors: ReadOnly, Arg, NotSame; those of the system. On all ranks.
    pub fn set_size(&self, size: i64) -> Result<()> {
        self.resize("MPI_File_set_size", size, |size| {
            Ok(transfer::set_len(&*self.stored, size)?)
        })
    }

    /// Reserves storage for the first `size` bytes, and extends the file to them
    /// (MPI_File_preallocate). Never shortens it. Collective; blocks until all ranks have called
    /// it.
    ///
    /// Errors: as for [`File::set_size`].
    pub fn preallocate(&self, size: i64) -> Result<()> {
        self.resize("MPI_File_preallocate", size, |size| {
            Ok(transfer::allocate(&*self.stored, size)?)
        })
    }

    fn resize(&self, call: &str, size: i64, set: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let mine = self.check_writable().and_then(|()| {
            if self.mode.sequential {
                return Err(err!(
                    UnsupportedOperation,
                    "{call} on a file that is open with MPI_MODE_SEQUENTIAL"
                ));
            }
            if size < 0 {
                return Err(err!(Arg, "size is {size}, which is negative"));
            }
            Ok(())
        });
        let difference = || format!("size is {size}, but not on all ranks: it has to be the same");
        let values = [size as u64];
        let done =
            agree::on_same_values_then(&self.comm, mine, values, difference, || set(size as u64));
        // Rank 0 has set it.
        if done.is_ok() && !self.shared.is_on_node() {
            transfer::refresh(&*self.stored);
        }
        done
    }

    /// Transfers all that was written to the storage device (MPI_File_sync). Collective; blocks
    /// until all ranks have called it.
    ///
    /// Errors: those of the system, on all ranks: NoSpace, Quota, Io.
    pub fn sync(&self) -> Result<()> {
        let mine = self.check_no_split("MPI_File_sync");
        // On a server, a rank that only reads forgets what it has cached.
        let flush = || match self.mode.write || self.stored.file_system().is_remote() {
            true => Ok(transfer::sync(&*self.stored)?),
            false => Ok(()),
        };
        if self.shared.is_on_node() {
            // One system has all that was written.
            return agree::on_success_then(&self.comm, mine, flush);
        }
        agree::on_success(&self.comm, mine.and_then(|()| flush()))
    }

    /// Errors: ReadOnly if the file is open for reading only.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.mode.write {
            return Ok(());
        }
        Err(err!(
            ReadOnly,
            "{} is open with MPI_MODE_RDONLY",
            self.path.display()
        ))
    }

    /// Errors: Access if the file is open for writing only.
    pub(super) fn check_readable(&self) -> Result<()> {
        if self.mode.read {
            return Ok(());
        }
        Err(err!(
            Access,
            "{} is open with MPI_MODE_WRONLY",
            self.path.display()
        ))
    }
}
