//! Accesses in the order of the ranks, by the shared file pointer (MPI 5.0 §14.4.4).

use super::File;
use super::access::{Direction, Transfer};
use super::agree::{failure_of, put_failure};
use crate::Result;
use crate::comm::agree::{Agreement, Reader, put_u64};
use crate::pt2pt::Buffer;
use crate::request::Outcome;
use std::sync::Arc;

impl File {
    /// Reads in the order of the ranks (MPI_File_read_ordered). Collective; blocks until the data
    /// are in the buffer.
    ///
    /// Errors: that of `buffer`; as [`File::read`]'s. If a rank's arguments are bad, nobody reads.
    ///
    /// # Safety
    /// The buffer is writable as its count and type say.
    pub unsafe fn read_ordered(self: &Arc<File>, buffer: Result<Buffer<'_>>) -> Result<Outcome> {
        let transfer = self.ordered(Direction::Read, buffer)?;
        // SAFETY: the caller's promise.
        unsafe { transfer.run() }
    }

    /// Writes in the order of the ranks (MPI_File_write_ordered). Collective; blocks until the
    /// buffer may be used again.
    ///
    /// Errors: that of `buffer`; as [`File::write`]'s. If a rank's arguments are bad, nobody
    /// writes.
    ///
    /// # Safety
    /// The buffer is readable as its count and type say.
    pub unsafe fn write_ordered(self: &Arc<File>, buffer: Result<Buffer<'_>>) -> Result<Outcome> {
        let transfer = self.ordered(Direction::Write, buffer)?;
        // SAFETY: the caller's promise.
        unsafe { transfer.run() }
    }

    /// Rank 0 gathers how many etypes each rank accesses, moves the shared file pointer behind all
    /// of them, and tells each rank where its own begin.
    fn ordered(&self, direction: Direction, buffer: Result<Buffer<'_>>) -> Result<Transfer> {
        let mut etypes = 0;
        let mine = buffer.and_then(|buffer| {
            self.transfer_at(direction, buffer, |_, n| {
                etypes = n;
                Ok(0)
            })
        });
        let mut message = Vec::new();
        match &mine {
            Ok(_) => {
                put_u64(&mut message, 1);
                put_u64(&mut message, etypes);
            }
            Err(e) => {
                put_u64(&mut message, 0);
                put_failure(&mut message, self.comm.rank(), e);
            }
        }
        let agreement = Agreement::of_all(&self.comm)?;
        let gathered = agreement.gather(0, message)?;
        let parts = match agreement.rank() {
            0 => self.order(&gathered, self.comm.size() as usize)?,
            _ => Vec::new(),
        };
        let part = agreement.scatter(parts)?;
        let mut transfer = mine?;
        let mut reader = Reader(&part);
        if reader.u64()? == 0 {
            return Err(failure_of(&mut reader)?);
        }
        transfer.position = transfer.view.bytes_of(reader.u64()?)?;
        let end = transfer.position.saturating_add(transfer.bytes);
        let writes = direction == Direction::Write;
        transfer.view = self.view().for_access(transfer.position..end, writes)?;
        Ok(transfer)
    }

    /// What rank 0 tells each rank.
    fn order(&self, gathered: &[u8], ranks: usize) -> Result<Vec<Vec<u8>>> {
        let mut reader = Reader(gathered);
        let mut all = Vec::with_capacity(ranks);
        let mut failure = None;
        while !reader.is_empty() {
            if reader.u64()? == 1 {
                all.push(reader.u64()?);
            } else {
                let e = failure_of(&mut reader)?;
                all.push(0);
                failure.get_or_insert(e);
            }
        }
        let begin = match failure {
            Some(e) => Err(e),
            None => self.shared.advance(all.iter().sum()),
        };
        let mut parts = Vec::with_capacity(ranks);
        let mut before = 0;
        for etypes in all {
            let mut part = Vec::new();
            match &begin {
                Ok(begin) => {
                    put_u64(&mut part, 1);
                    put_u64(&mut part, begin + before);
                }
                Err(e) => {
                    put_u64(&mut part, 0);
                    put_failure(&mut part, 0, e);
                }
            }
            before += etypes;
            parts.push(part);
        }
        Ok(parts)
    }
}
