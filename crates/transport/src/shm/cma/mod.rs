//! Single copy: reading and writing a peer's memory (cross-memory attach, process_vm_readv(2)).

mod cooperative;
mod peer_memory;

pub(super) use cooperative::{
    ActiveCopy, COOPERATIVE_MIN_BYTES, Chunk, CooperativeCopies, CopyReceiver, CopyTable,
};

pub use peer_memory::PeerMemory;

use super::control::Control;
use crate::ReadError;
use std::sync::atomic::Ordering;

/// Copies from `address` in process `pid` into the runs `into`.
///
/// # Safety
/// The runs must be writable.
pub unsafe fn read(pid: i32, address: u64, into: &[(*mut u8, usize)]) -> Result<(), ReadError> {
    let total = into.iter().map(|run| run.1).sum();
    // SAFETY: the caller's promise.
    unsafe { PeerMemory::new(pid).read(&[(address, total)], into) }
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

/// Returns whether this process can also write `peer`'s memory, which it can [read](probe). Tries
/// it on the word behind the one that the peer has published. All peers write the same value there.
pub fn probe_write(peer: &Control) -> bool {
    let memory = PeerMemory::new(peer.pid.load(Ordering::Acquire) as i32);
    let address = peer.probe_address.load(Ordering::Relaxed) + 8;
    let mut value = peer.probe_value.load(Ordering::Relaxed);
    let remote = [(address, size_of::<u64>())];
    let local = (&raw mut value).cast::<u8>();
    // SAFETY: `value` is readable.
    let written = unsafe { memory.write(&[(local.cast_const(), 8)], &remote) };
    value = 0;
    // SAFETY: `value` is writable.
    let read = unsafe { memory.read(&remote, &[(local, 8)]) };
    written.is_ok() && read.is_ok() && value == peer.probe_value.load(Ordering::Relaxed)
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
