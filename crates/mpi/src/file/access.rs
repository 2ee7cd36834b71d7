//! Independent reads and writes (MPI 5.0 §14.4.2 to §14.4.4).

use super::sieve_exclusion::UnlockedWrite;
use super::{File, FileView, Position, SieveExclusion};
use crate::buffer::{message_len, run};
use crate::pt2pt::{Buffer, PersistentBuffer};
use crate::request::Outcome;
use crate::{Error, Result, err};
use ferry_io::store::{RangeLock, StoredFile};
use ferry_io::transfer::{self, Access, Choice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a buffer that is not contiguous, packed and transferred at a time.
const PACK_BYTES: usize = 4 << 20;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
}

/// A transfer between a process's memory and its view of a file.
pub(super) struct Transfer {
    pub direction: Direction,
    pub memory: PersistentBuffer,
    pub stored: Arc<dyn StoredFile>,
    pub view: Arc<FileView>,
    /// Where in the view's data it begins, bytes.
    pub position: u64,
    /// Bytes in the file.
    pub bytes: u64,
    pub access: Access,
    pub sieve_exclusion: Arc<SieveExclusion>,
}

impl File {
    /// Checks an access, and moves the file pointer.
    ///
    /// Errors: ReadOnly, Access; Io if the data are no whole number of etypes; those of
    /// [`File::begin_access`].
    pub(super) fn transfer(
        &self,
        direction: Direction,
        position: Position,
        buffer: Buffer<'_>,
    ) -> Result<Transfer> {
        self.transfer_at(direction, buffer, |file, etypes| {
            file.begin_access(position, etypes)
        })
    }

    /// As [`File::transfer`]. `begin` tells where the access begins, in etypes, and is given their
    /// number.
    pub(super) fn transfer_at(
        &self,
        direction: Direction,
        buffer: Buffer<'_>,
        begin: impl FnOnce(&File, u64) -> Result<u64>,
    ) -> Result<Transfer> {
        match direction {
            Direction::Read => self.check_readable()?,
            Direction::Write => self.check_writable()?,
        }
        let view = self.view();
        let bytes = if view.representation.is_native() {
            message_len(buffer.count, buffer.datatype) as u64
        } else {
            let stored = view.representation.in_file(buffer.datatype)?;
            stored.packed_size(buffer.count)? as u64
        };
        let etypes = bytes / view.etype_bytes;
        if !bytes.is_multiple_of(view.etype_bytes) {
            return Err(err!(
                Io,
                "{bytes} bytes are no whole number of the view's etypes, which have {} bytes each",
                view.etype_bytes
            ));
        }
        if view.layout.is_empty() && bytes > 0 {
            return Err(err!(
                Io,
                "the view's filetype has no bytes, so that {bytes} bytes have no place in the file"
            ));
        }
        let begin = view.bytes_of(begin(self, etypes)?)?;
        let end = begin.saturating_add(bytes);
        let view = view.for_access(begin..end, direction == Direction::Write)?;
        Ok(Transfer {
            direction,
            memory: buffer.to_persistent(),
            stored: self.stored.clone(),
            access: self
                .hints()
                .access(self.is_atomic(), self.stored.file_system()),
            position: begin,
            bytes,
            view,
            sieve_exclusion: self.sieve_exclusion.clone(),
        })
    }

    /// A transfer of bytes that lie in one run in memory and in the file, which is most. `None`: it
    /// is another one. Inlined down to the system call, for the reason that
    /// [`transfer::read_exact_or_end`] gives.
    ///
    /// # Safety
    /// The buffer is readable or writable as its count and type say.
    #[inline(always)]
    unsafe fn plain(
        &self,
        direction: Direction,
        position: Position,
        buffer: &Buffer<'_>,
    ) -> Option<Result<Outcome>> {
        let displacement = self.plain_view.load(Ordering::Relaxed).checked_sub(1)?;
        let allowed = match direction {
            Direction::Read => self.mode.read,
            Direction::Write => self.mode.write,
        };
        let at = run(buffer.address, buffer.count, buffer.datatype)?;
        let len = message_len(buffer.count, buffer.datatype);
        if !allowed || self.is_atomic() || len == 0 {
            return None;
        }
        let begin = match self.begin_access(position, len as u64) {
            Ok(begin) if begin <= i64::MAX as u64 - displacement => displacement + begin,
            Ok(begin) => return Some(Err(beyond_any_file(begin, displacement))),
            Err(e) => return Some(Err(e)),
        };
        let stored = &*self.stored;
        let done = match direction {
            Direction::Read => {
                // SAFETY: the caller's promise: the buffer is one run of so many bytes.
                let buf = unsafe { std::slice::from_raw_parts_mut(at, len) };
                transfer::read_exact_or_end(stored, buf, begin)
            }
            Direction::Write => {
                // SAFETY: as above.
                let buf = unsafe { std::slice::from_raw_parts(at, len) };
                self.sieve_exclusion.write(stored, buf, begin).map(|()| len)
            }
        };
        Some(done.map_err(Error::from).map(|bytes| Outcome {
            bytes: bytes as u64,
            ..Outcome::EMPTY
        }))
    }

    /// A transfer that is not plain.
    ///
    /// # Safety
    /// The buffer is readable or writable as its count and type say.
    #[inline(never)]
    unsafe fn other(
        &self,
        direction: Direction,
        position: Position,
        buffer: Buffer<'_>,
    ) -> Result<Outcome> {
        let transfer = self.transfer(direction, position, buffer)?;
        // SAFETY: the caller's promise.
        unsafe { transfer.run() }
    }

    /// Reads at `position`. Blocks until the data are in the buffer. The outcome's bytes are fewer
    /// than asked for where the file ends.
    ///
    /// Errors: those of [`File::transfer`], and of the system.
    ///
    /// # Safety
    /// The buffer is writable as its count and type say.
    #[inline]
    pub unsafe fn read(&self, position: Position, buffer: Buffer<'_>) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        match unsafe { self.plain(Direction::Read, position, &buffer) } {
            Some(done) => done,
            // SAFETY: the caller's promise.
            None => unsafe { self.other(Direction::Read, position, buffer) },
        }
    }

    /// Writes at `position`. Blocks until the buffer may be used again.
    ///
    /// Errors: those of [`File::transfer`], and of the system.
    ///
    /// # Safety
    /// The buffer is readable as its count and type say.
    #[inline]
    pub unsafe fn write(&self, position: Position, buffer: Buffer<'_>) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        match unsafe { self.plain(Direction::Write, position, &buffer) } {
            Some(done) => done,
            // SAFETY: the caller's promise.
            None => unsafe { self.other(Direction::Write, position, buffer) },
        }
    }
}

impl Transfer {
    /// The address of the buffer's bytes, if they are one run that is as the file has it.
    pub fn contiguous(&self) -> Option<*mut u8> {
        let memory = &self.memory;
        let native = self.view.representation.is_native();
        native
            .then(|| run(memory.address, memory.count, &memory.datatype))
            .flatten()
    }

    /// Makes the transfer. Blocks.
    ///
    /// # Safety
    /// The buffer is readable or writable as its count and type say.
    pub unsafe fn run(&self) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.run_bytes() }?;
        Ok(Outcome {
            bytes,
            ..Outcome::EMPTY
        })
    }

    /// Bytes of the buffer's type, all of it.
    pub fn memory_bytes(&self) -> u64 {
        message_len(self.memory.count, &self.memory.datatype) as u64
    }

    /// Returns how many bytes of the buffer's type were transferred.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn run_bytes(&self) -> Result<u64> {
        if self.bytes == 0 {
            return Ok(0);
        }
        if let Some(at) = self.contiguous() {
            // SAFETY: the caller's promise: the buffer is one run of so many bytes.
            return unsafe { self.slice(at, self.position, self.bytes, &self.access) };
        }
        let (_lock, access) = self.lock()?;
        if self.view.representation.is_native() {
            // SAFETY: the caller's promise.
            unsafe { self.packed(&access) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.converted(&access) }
        }
    }

    /// Transfers `len` bytes at an address.
    ///
    /// # Safety
    /// The bytes are readable or writable.
    unsafe fn slice(&self, at: *mut u8, position: u64, len: u64, access: &Access) -> Result<u64> {
        let (stored, view) = (&*self.stored, &self.view.layout);
        let done = match self.direction {
            Direction::Read => {
                // SAFETY: the caller's promise.
                let buf = unsafe { std::slice::from_raw_parts_mut(at, len as usize) };
                transfer::read(stored, view, position, buf, access)
            }
            Direction::Write => {
                // SAFETY: the caller's promise.
                let buf = unsafe { std::slice::from_raw_parts(at, len as usize) };
                if access.locked {
                    // Sieving has been announced before.
                    return Ok(transfer::write(stored, view, position, buf, access)? as u64);
                }
                let (access, _until_written) = self.begin_write(position, len, access);
                transfer::write(stored, view, position, buf, &access)
            }
        };
        done.map(|bytes| bytes as u64).map_err(Error::from)
    }

    /// Begins a write that is not under a lock: how it is made, and what lasts as long as it does.
    fn begin_write(
        &self,
        position: u64,
        len: u64,
        access: &Access,
    ) -> (Access, Option<UnlockedWrite>) {
        let (stored, view) = (&*self.stored, &self.view.layout);
        let exclusion = &self.sieve_exclusion;
        let mut access = *access;
        let mut sieves = transfer::write_sieves(stored, view, position, len, &access);
        if sieves {
            access = exclusion.permitted(stored, access);
            sieves = access.sieve_writes != Choice::Never;
        }
        let unlocked_write = exclusion.begin(stored, sieves);
        access.lock_writes = unlocked_write.is_none();
        if access.lock_writes && !sieves {
            // A lock for each run makes sieving cheaper.
            access = exclusion.permitted(stored, access);
        }
        (access, unlocked_write)
    }

    /// In atomic mode: one lock for the pieces of a transfer, which are not atomic by themselves
    /// then.
    fn lock(&self) -> Result<(Option<RangeLock<'_>>, Access)> {
        if !self.access.atomic {
            return Ok((None, self.access));
        }
        let span = self.view.layout.span(self.position, self.bytes);
        let exclusive = self.direction == Direction::Write;
        let mut access = self.access;
        if exclusive && !self.view.layout.is_contiguous() {
            access = self.sieve_exclusion.permitted(&*self.stored, access);
            if access.sieve_writes != Choice::Never {
                // Before the lock: this waits for writes, which may wait for the lock.
                drop(self.sieve_exclusion.begin(&*self.stored, true));
            }
        }
        let lock = transfer::lock(&*self.stored, span, exclusive)?;
        access.locked = true;
        Ok((Some(lock), access))
    }

    /// A buffer that is not contiguous, packed piece by piece.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn packed(&self, access: &Access) -> Result<u64> {
        let memory = &self.memory;
        let mut piece = vec![0; PACK_BYTES.min(self.bytes as usize)];
        let mut done = 0;
        while done < self.bytes {
            let len = (self.bytes - done).min(piece.len() as u64);
            let part = &mut piece[..len as usize];
            if self.direction == Direction::Write {
                // SAFETY: the caller's promise.
                unsafe {
                    memory
                        .datatype
                        .pack(memory.address, memory.count, done, part)
                };
            }
            let at = part.as_mut_ptr();
            // SAFETY: `part` has so many bytes.
            let moved = unsafe { self.slice(at, self.position + done, len, access) }?;
            if self.direction == Direction::Read {
                let part = &piece[..moved as usize];
                // SAFETY: the caller's promise.
                unsafe {
                    memory
                        .datatype
                        .unpack(memory.address, memory.count, done, part)
                };
            }
            done += moved;
            if moved < len {
                break;
            }
        }
        Ok(done)
    }

    /// What is written in the form that it has in the file, if that differs from the memory's;
    /// otherwise nothing.
    ///
    /// Errors: Conversion, and those of the program's functions.
    ///
    /// # Safety
    /// As for `run`.
    pub unsafe fn form_in_file(&self) -> Result<Vec<u8>> {
        let representation = &self.view.representation;
        if representation.is_native() || self.direction == Direction::Read {
            return Ok(Vec::new());
        }
        let m = &self.memory;
        // SAFETY: the caller's promise.
        unsafe { representation.to_file(m.address, m.count, &m.datatype, self.bytes as usize) }
    }

    /// A buffer whose data have another form in the file.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn converted(&self, access: &Access) -> Result<u64> {
        if self.direction == Direction::Write {
            // SAFETY: the caller's promise.
            let mut file = unsafe { self.form_in_file() }?;
            let at = file.as_mut_ptr();
            // SAFETY: `file` has so many bytes.
            unsafe { self.slice(at, self.position, self.bytes, access) }?;
            return Ok(self.memory_bytes());
        }
        let mut file = vec![0; self.bytes as usize];
        let at = file.as_mut_ptr();
        // SAFETY: `file` has so many bytes.
        let done = unsafe { self.slice(at, self.position, self.bytes, access) }?;
        // SAFETY: the caller's promise.
        unsafe { self.store_converted(&file[..done as usize]) }
    }

    /// Stores what was read of the form that the data have in the file. Returns how many bytes of
    /// the buffer's type that is.
    ///
    /// # Safety
    /// As for `run`.
    pub unsafe fn store_converted(&self, file: &[u8]) -> Result<u64> {
        let m = &self.memory;
        let all = self.bytes as usize;
        let representation = &self.view.representation;
        // SAFETY: the caller's promise.
        unsafe { representation.to_memory(m.address, m.count, &m.datatype, file, all) }
    }
}

#[cold]
fn beyond_any_file(begin: u64, displacement: u64) -> Error {
    err!(
        Arg,
        "the access begins at byte {begin} of a view whose displacement is {displacement}, which \
         is beyond any file"
    )
}
