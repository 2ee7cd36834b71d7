//! Single copy: reading and writing a peer's memory (cross-memory attach, process_vm_readv(2)).

mod cooperative;

pub(super) use cooperative::{
    ActiveCopy, COOPERATIVE_MIN_BYTES, Chunk, CooperativeCopies, CopyReceiver, CopyTable,
};

use super::control::Control;
use crate::ReadError;
use std::sync::atomic::Ordering;

/// Most runs handed to the kernel in one call. A choice below its limit (IOV_MAX, 1024): 1 KiB of
/// stack.
const RUNS_MAX: usize = 64;

/// Copies from `address` in process `pid` into the runs `into`.
///
/// # Safety
/// The runs must be writable.
pub unsafe fn read(pid: i32, mut address: u64, into: &[(*mut u8, usize)]) -> Result<(), ReadError> {
    let mut runs = into.iter().copied().filter(|r| r.1 > 0).peekable();
    let mut partial: Option<(*mut u8, usize)> = None;
    while partial.is_some() || runs.peek().is_some() {
        let mut local: [libc::iovec; RUNS_MAX] = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; RUNS_MAX];
        let (mut used, mut total) = (0, 0);
        while used < RUNS_MAX {
            let Some((ptr, len)) = partial.take().or_else(|| runs.next()) else {
                break;
            };
            local[used] = libc::iovec {
                iov_base: ptr.cast(),
                iov_len: len,
            };
            used += 1;
            total += len;
        }
        let remote = libc::iovec {
            iov_base: address as *mut libc::c_void,
            iov_len: total,
        };
        // SAFETY: the local runs are writable (the caller's promise); the kernel checks the remote
        // range.
        let got =
            unsafe { libc::process_vm_readv(pid, local.as_ptr(), used as u64, &remote, 1, 0) };
        if got <= 0 {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(match errno {
                _ if got == 0 => ReadError::Failed(0),
                libc::EPERM | libc::ENOSYS => ReadError::Refused,
                other => ReadError::Failed(other),
            });
        }
        let mut got = got as usize;
        address += got as u64;
        // The kernel may stop early; it copies at most about 2 GiB in one call. Then the rest is
        // handed in again.
        for (i, run) in local[..used].iter().enumerate() {
            if got < run.iov_len {
                // SAFETY: got < iov_len, so the pointer stays in the run.
                partial = Some((
                    unsafe { run.iov_base.cast::<u8>().add(got) },
                    run.iov_len - got,
                ));
                if i + 1 < used {
                    // Whole runs are left. They are finished one by one, in order.
                    for rest in std::iter::once(partial.take()).flatten().chain(
                        local[i + 1..used]
                            .iter()
                            .map(|r| (r.iov_base.cast::<u8>(), r.iov_len)),
                    ) {
                        // SAFETY: a part of the caller's local runs, which are writable.
                        unsafe { read(pid, address, &[rest])? };
                        address += rest.1 as u64;
                    }
                }
                break;
            }
            got -= run.iov_len;
        }
    }
    Ok(())
}

/// Copies `len` bytes at `source` of this process to `target` in process `pid`. False: not all
/// could be copied. The addresses may be nonsense: the kernel checks both.
pub fn write(pid: i32, mut source: u64, mut target: u64, mut len: u64) -> bool {
    while len > 0 {
        let local = libc::iovec {
            iov_base: source as *mut libc::c_void,
            iov_len: len as usize,
        };
        let remote = libc::iovec {
            iov_base: target as *mut libc::c_void,
            iov_len: len as usize,
        };
        // SAFETY: the kernel reads the local run as this process could, and answers EFAULT where it
        // could not.
        let put = unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
        if put <= 0 {
            return false;
        }
        source = source.wrapping_add(put as u64);
        target = target.wrapping_add(put as u64);
        len -= put as u64;
    }
    true
}

/// Returns whether this process can read `peer`'s memory. Tries it on the word that the peer has
/// published on its control page.
pub fn probe(peer: &Control) -> bool {
    let pid = peer.pid.load(Ordering::Acquire) as i32;
    let address = peer.probe_address.load(Ordering::Relaxed);
    let mut value = 0u64;
    // SAFETY: `value` is writable; the kernel checks the remote address.
    let read = unsafe { read(pid, address, &[((&raw mut value).cast(), 8)]) };
    read.is_ok() && value == peer.probe_value.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_many_runs_of_its_own_process() {
        let source: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let mut target = vec![0u8; 10_000];
        // 100-byte runs in reverse order of memory, more than one call takes.
        let base = target.as_mut_ptr();
        // SAFETY: each run lies within `target`.
        let runs: Vec<_> = (0..100)
            .rev()
            .map(|i| (unsafe { base.add(i * 100) }, 100))
            .collect();
        // SAFETY: the runs are writable.
        unsafe { read(std::process::id() as i32, source.as_ptr() as u64, &runs).unwrap() };
        for i in 0..100 {
            assert_eq!(
                target[i * 100..(i + 1) * 100],
                source[(99 - i) * 100..(100 - i) * 100]
            );
        }
    }

    #[test]
    fn a_wrong_address_is_an_error() {
        let mut byte = 0u8;
        // SAFETY: `byte` is writable.
        let got = unsafe { read(std::process::id() as i32, 8, &[(&raw mut byte, 1)]) };
        assert_eq!(got, Err(ReadError::Failed(libc::EFAULT)));
    }
}
