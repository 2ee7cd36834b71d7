//! Split collectives (MPI 5.0 §14.4.5): begin and end.
//!
//! The begin starts the non-blocking collective, and the end completes it. An access in the order
//! of the ranks is made by the begin, which may block.

use super::{AccessArguments, File};
use crate::request::{self, Outcome};
use crate::{Request, Result, err};
use std::sync::{Arc, PoisonError};

/// A split collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitCollective {
    /// MPI_File_read_all_begin.
    ReadAll,
    /// MPI_File_write_all_begin.
    WriteAll,
    /// MPI_File_read_at_all_begin.
    ReadAtAll,
    /// MPI_File_write_at_all_begin.
    WriteAtAll,
    /// MPI_File_read_ordered_begin.
    ReadOrdered,
    /// MPI_File_write_ordered_begin.
    WriteOrdered,
}

impl SplitCollective {
    fn name(self) -> &'static str {
        match self {
            SplitCollective::ReadAll => "read_all",
            SplitCollective::WriteAll => "write_all",
            SplitCollective::ReadAtAll => "read_at_all",
            SplitCollective::WriteAtAll => "write_at_all",
            SplitCollective::ReadOrdered => "read_ordered",
            SplitCollective::WriteOrdered => "write_ordered",
        }
    }
}

/// A split collective that has begun and not ended.
pub(super) struct ActiveSplit {
    what: SplitCollective,
    address: usize,
    request: Arc<Request>,
}

impl ActiveSplit {
    /// The name of its begin.
    pub fn call(&self) -> String {
        format!("MPI_File_{}_begin", self.name())
    }

    /// Its name, as "read_all".
    pub fn name(&self) -> &'static str {
        self.what.name()
    }
}

impl File {
    /// Begins a split collective. Accesses in the order of the ranks have the position
    /// [`Shared`](super::Position::Shared).
    ///
    /// Errors: that of `arguments`; Other if one has begun already; those of the collective.
    ///
    /// # Safety
    /// The buffer stays readable or writable, and untouched, until the end.
    pub unsafe fn split_begin(
        self: &Arc<File>,
        what: SplitCollective,
        arguments: AccessArguments<'_>,
    ) -> Result<()> {
        // A rank that must not begin takes part, too.
        let arguments = arguments.and_then(|arguments| {
            self.check_no_split(&format!("MPI_File_{}_begin", what.name()))?;
            Ok(arguments)
        });
        let address = arguments.as_ref().map_or(0, |(_, b)| b.address.addr());
        // SAFETY: the caller's promise.
        let request = unsafe {
            match what {
                SplitCollective::ReadAll | SplitCollective::ReadAtAll => {
                    self.iread_all(arguments)?
                }
                SplitCollective::WriteAll | SplitCollective::WriteAtAll => {
                    self.iwrite_all(arguments)?
                }
                SplitCollective::ReadOrdered => {
                    Request::ended(self.read_ordered(arguments.map(|(_, buffer)| buffer))?)
                }
                SplitCollective::WriteOrdered => {
                    Request::ended(self.write_ordered(arguments.map(|(_, buffer)| buffer))?)
                }
            }
        };
        let mut split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        *split = Some(ActiveSplit {
            what,
            address,
            request,
        });
        Ok(())
    }

    /// Ends a split collective. Blocks until its data are transferred.
    ///
    /// Errors: Other if none or another has begun; Buffer if it has another buffer; those of the
    /// transfer.
    pub fn split_end(&self, what: SplitCollective, address: *const u8) -> Result<Outcome> {
        let mut split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        let end = format!("MPI_File_{}_end", what.name());
        match &*split {
            None => return Err(err!(Other, "{end} without MPI_File_{}_begin", what.name())),
            Some(active) if active.what != what => {
                return Err(err!(Other, "{end} after {}", active.call()));
            }
            Some(active) if active.address != address.addr() => {
                return Err(err!(
                    Buffer,
                    "buf is {address:?}, but {} has passed {:#x}",
                    active.call(),
                    active.address
                ));
            }
            Some(_) => {}
        }
        let Some(active) = split.take() else {
            return Ok(Outcome::EMPTY);
        };
        drop(split);
        request::wait_all(&[&*active.request]);
        active.request.complete(&mut None).into_result()
    }
}
