//! File positions: explicit offsets, the individual and the shared file pointer (MPI 5.0 §14.4).

use super::{File, agree};
use crate::{Result, err};
use std::sync::PoisonError;

/// Where an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// At this offset, in etypes of the view.
    Explicit(i64),
    /// At the individual file pointer.
    Individual,
    /// At the shared file pointer.
    Shared,
}

/// What a seek is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The beginning of the view (MPI_SEEK_SET).
    Beginning,
    /// The present position (MPI_SEEK_CUR).
    Current,
    /// The end of the file (MPI_SEEK_END).
    End,
}

impl File {
    /// Moves a pointer to the end of an access of `etypes`, before the access is made (MPI 5.0
    /// §14.4). Returns where the access begins, in etypes.
    ///
    /// Errors: Arg for a negative offset; UnsupportedOperation in sequential mode.
    #[inline]
    pub(super) fn begin_access(&self, position: Position, etypes: u64) -> Result<u64> {
        if self.mode.sequential && position != Position::Shared {
            return Err(self.sequential());
        }
        match position {
            Position::Explicit(offset) => match u64::try_from(offset) {
                Ok(offset) => Ok(offset),
                Err(_) => Err(err!(Arg, "offset is {offset}, which is negative")),
            },
            Position::Individual => {
                let mut position = self.position.lock().unwrap_or_else(PoisonError::into_inner);
                let begin = *position;
                *position = begin.saturating_add(etypes);
                Ok(begin)
            }
            Position::Shared => self.shared.advance(etypes),
        }
    }

    #[cold]
    fn sequential(&self) -> crate::Error {
        err!(
            UnsupportedOperation,
            "{} is open with MPI_MODE_SEQUENTIAL: only the shared file pointer may be used",
            self.path.display()
        )
    }

    /// The individual file pointer, in etypes (MPI_File_get_position).
    ///
    /// Errors: UnsupportedOperation in sequential mode.
    pub fn position(&self) -> Result<u64> {
        if self.mode.sequential {
            return Err(self.sequential());
        }
        Ok(*self.position.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The shared file pointer, in etypes (MPI_File_get_position_shared).
    ///
    /// Errors: those of the messages to its keeper.
    pub fn position_shared(&self) -> Result<u64> {
        self.shared.load()
    }

    /// Moves the individual file pointer (MPI_File_seek).
    ///
    /// Errors: Arg if it would be before the view; UnsupportedOperation in sequential mode.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<()> {
        if self.mode.sequential {
            return Err(self.sequential());
        }
        let current = *self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = self.moved(offset, whence, current)?;
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = moved;
        Ok(())
    }

    /// Moves the shared file pointer (MPI_File_seek_shared). Collective; blocks until all ranks
    /// have called it.
    ///
    /// Errors: that of `whence`; Arg; NotSame if the ranks pass different arguments. On all ranks.
    pub fn seek_shared(&self, offset: i64, whence: Result<Whence>) -> Result<()> {
        let mine = whence.as_ref().copied().unwrap_or(Whence::Beginning);
        let difference = || {
            format!(
                "offset is {offset}, but not on all ranks, or whence differs: a seek of the shared \
                 file pointer is the same for all"
            )
        };
        agree::on_same_values_then(
            &self.comm,
            whence,
            [offset as u64, mine as u64],
            difference,
            || {
                let moved = self.moved(offset, mine, self.shared.load()?)?;
                self.shared.store(moved)
            },
        )?;
        Ok(())
    }

    fn moved(&self, offset: i64, whence: Whence, current: u64) -> Result<u64> {
        let base = match whence {
            Whence::Beginning => 0,
            Whence::Current => current,
            Whence::End => {
                let view = self.view();
                view.etypes(view.layout.position_of_end(self.size()?))
            }
        };
        let moved = (base as i64).checked_add(offset).filter(|to| *to >= 0);
        moved.map(|to| to as u64).ok_or_else(|| {
            err!(
                Arg,
                "offset is {offset} from {base}: the file pointer would be before the beginning of \
                 the view"
            )
        })
    }

    /// The byte of the file at an offset of the view (MPI_File_get_byte_offset).
    ///
    /// Errors: Arg for a negative offset.
    pub fn byte_offset(&self, offset: i64) -> Result<u64> {
        let view = self.view();
        match u64::try_from(offset) {
            Ok(offset) => Ok(view.layout.offset_of(view.bytes_of(offset)?)),
            Err(_) => Err(err!(Arg, "offset is {offset}, which is negative")),
        }
    }
}
