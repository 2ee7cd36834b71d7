//! The memory of another process of the node: reads and writes of many runs on both sides.

use crate::ReadError;

/// Most runs of one side handed to the kernel in one call. A choice below its limit (IOV_MAX,
/// 1024): 1 KiB of stack a side.
const RUNS_MAX: usize = 64;

/// The memory of a process of this node, by cross-memory attach (process_vm_readv(2)). A copy is
/// complete when its call returns. The system checks the remote addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerMemory {
    pid: i32,
}

/// process_vm_readv(2) or process_vm_writev(2).
type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

impl PeerMemory {
    /// The memory of process `pid`.
    pub fn new(pid: i32) -> PeerMemory {
        PeerMemory { pid }
    }

    /// Copies the peer's runs `remote` (address, bytes) to this process's runs `local`. The runs of
    /// a side are taken in order, as if they were one. Both sides have the same number of bytes.
    /// One run on each side is one system call, up to the system's limit of 2 GiB.
    ///
    /// Errors: the system refuses, or a remote address cannot be read; a part may have been copied
    /// then.
    ///
    /// # Safety
    /// The local runs must be writable.
    #[inline]
    pub unsafe fn read(
        &self,
        remote: &[(u64, usize)],
        local: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        let local = local.iter().map(|&(ptr, len)| (ptr.cast_const(), len));
        // SAFETY: the caller's promise.
        unsafe { self.copy(libc::process_vm_readv, local, remote) }
    }

    /// Copies this process's runs `local` to the peer's runs `remote` (address, bytes). Otherwise
    /// as [`PeerMemory::read`].
    ///
    /// Errors: the system refuses, or a remote address cannot be written; a part may have been
    /// copied then.
    ///
    /// # Safety
    /// The local runs must be readable.
    #[inline]
    pub unsafe fn write(
        &self,
        local: &[(*const u8, usize)],
        remote: &[(u64, usize)],
    ) -> Result<(), ReadError> {
        // SAFETY: the caller's promise.
        unsafe { self.copy(libc::process_vm_writev, local.iter().copied(), remote) }
    }

    /// Copies by `call` between all runs.
    ///
    /// # Safety
    /// `call` may use the local runs.
    #[inline]
    unsafe fn copy(
        &self,
        call: Call,
        mut local: impl ExactSizeIterator<Item = (*const u8, usize)>,
        remote: &[(u64, usize)],
    ) -> Result<(), ReadError> {
        if let (1, &[(address, len)]) = (local.len(), remote)
            && let Some((ptr, local_len)) = local.next()
        {
            let len = len.min(local_len);
            let (local, remote) = (iovec(ptr.addr() as u64, len), iovec(address, len));
            // SAFETY: the caller's promise; the kernel checks the remote range.
            let copied = unsafe { call(self.pid, &local, 1, &remote, 1, 0) };
            if copied == len as isize || len == 0 {
                return Ok(());
            }
            let copied = error_or_bytes(copied)?;
            let rest = [(ptr.wrapping_add(copied), len - copied)].into_iter();
            let remote = [(address.wrapping_add(copied as u64), len - copied)];
            // SAFETY: a part of the caller's local run.
            return unsafe { self.copy_runs(call, rest, &remote) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_runs(call, local, remote) }
    }

    /// As [`PeerMemory::copy`], in as many calls as it takes.
    ///
    /// # Safety
    /// As there.
    unsafe fn copy_runs(
        &self,
        call: Call,
        local: impl Iterator<Item = (*const u8, usize)>,
        remote: &[(u64, usize)],
    ) -> Result<(), ReadError> {
        let mut local = Runs::new(local.map(|(ptr, len)| (ptr.addr() as u64, len)));
        let mut remote = Runs::new(remote.iter().copied());
        loop {
            local.fill();
            remote.fill();
            let (here, there) = (local.runs(), remote.runs());
            if here.is_empty() || there.is_empty() {
                debug_assert!(
                    here.is_empty() && there.is_empty(),
                    "sides of unequal length"
                );
                return Ok(());
            }
            let counts = (here.len() as libc::c_ulong, there.len() as libc::c_ulong);
            // SAFETY: the caller's promise; the kernel checks the remote runs.
            let copied = unsafe {
                call(
                    self.pid,
                    here.as_ptr(),
                    counts.0,
                    there.as_ptr(),
                    counts.1,
                    0,
                )
            };
            // The kernel may stop early: at about 2 GiB, at the end of the shorter side, and before
            // a page that it cannot reach. The next call tells which.
            let copied = error_or_bytes(copied)?;
            local.skip(copied);
            remote.skip(copied);
        }
    }
}

/// What a system call has copied, or why it has copied nothing.
fn error_or_bytes(copied: isize) -> Result<usize, ReadError> {
    match usize::try_from(copied) {
        Ok(0) => Err(ReadError::Failed(0)),
        Ok(n) => Ok(n),
        Err(_) => Err(
            match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
                libc::EPERM | libc::ENOSYS => ReadError::Refused,
                other => ReadError::Failed(other),
            },
        ),
    }
}

fn iovec(address: u64, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: len,
    }
}

/// The next runs of one side, as the kernel takes them.
struct Runs<I> {
    vector: [libc::iovec; RUNS_MAX],
    /// The runs in `vector` that are not copied yet.
    begin: usize,
    end: usize,
    later: I,
}

impl<I: Iterator<Item = (u64, usize)>> Runs<I> {
    fn new(all: I) -> Runs<I> {
        Runs {
            vector: [iovec(0, 0); RUNS_MAX],
            begin: 0,
            end: 0,
            later: all,
        }
    }

    /// Takes as many of the later runs as there is room for. Empty ones are left out.
    fn fill(&mut self) {
        if self.begin > 0 && self.end == RUNS_MAX {
            self.vector.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        while self.end < RUNS_MAX
            && let Some((address, len)) = self.later.next()
        {
            if len > 0 {
                self.vector[self.end] = iovec(address, len);
                self.end += 1;
            }
        }
    }

    fn runs(&self) -> &[libc::iovec] {
        &self.vector[self.begin..self.end]
    }

    /// The next `bytes` bytes are copied.
    fn skip(&mut self, mut bytes: usize) {
        for run in &mut self.vector[self.begin..self.end] {
            if bytes < run.iov_len {
                let address = run.iov_base.addr() as u64 + bytes as u64;
                *run = iovec(address, run.iov_len - bytes);
                return;
            }
            bytes -= run.iov_len;
            self.begin += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
