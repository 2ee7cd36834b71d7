//! Reading a peer's memory into a buffer that may lie in many runs.

use crate::base::buffer::Sink;
use crate::base::key::ProcId;
use ferry_transport::{ReadError, Transports};

/// Packed bytes moved at a time where a scattered buffer must be read through a bounce buffer.
const BOUNCE: usize = 256 * 1024;
/// Memory runs collected at a time for reading straight into a scattered buffer.
const RUNS: usize = 256;
/// A scattered buffer is read into directly if its runs have at least this many bytes on average.
const RUN_MIN: u64 = 1024;

/// Copies `len` bytes at `address` of `from` into `sink`.
///
/// # Safety
/// The memory behind `sink` must be writable.
pub(crate) unsafe fn read_into(
    wires: &mut Transports,
    from: ProcId,
    address: u64,
    len: u64,
    sink: &mut Sink,
) -> Result<(), ReadError> {
    match sink {
        // SAFETY: the caller's promise; len is at most the sink's capacity.
        Sink::Bytes { ptr, .. } => unsafe { wires.read(from, address, &[(*ptr, len as usize)]) },
        Sink::Layout { view, .. } => {
            let mut runs = Vec::with_capacity(RUNS);
            let mut bounce = Vec::new();
            let mut offset = 0;
            while offset < len {
                runs.clear();
                let covered = view.runs(offset, &mut runs).min(len - offset);
                if covered > 0 && covered / runs.len().max(1) as u64 >= RUN_MIN {
                    trim(&mut runs, covered);
                    // SAFETY: the runs lie in the receive buffer.
                    unsafe { wires.read(from, address + offset, &runs)? };
                    offset += covered;
                    continue;
                }
                let piece = (len - offset).min(BOUNCE as u64) as usize;
                bounce.resize(piece, 0u8);
                // SAFETY: the bounce buffer is ours; the receive buffer is writable.
                unsafe {
                    wires.read(from, address + offset, &[(bounce.as_mut_ptr(), piece)])?;
                    view.unpack(offset, &bounce);
                }
                offset += piece as u64;
            }
            Ok(())
        }
    }
}

/// Shortens `runs` to `total` bytes.
fn trim(runs: &mut Vec<(*mut u8, usize)>, total: u64) {
    let mut left = total as usize;
    for run in runs.iter_mut() {
        run.1 = run.1.min(left);
        left -= run.1;
    }
    runs.retain(|r| r.1 > 0);
}
