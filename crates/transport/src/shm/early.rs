//! The body of an early record: it is copied while its writer still writes it.

use super::pair::Pair;

/// Looks for the next bytes before the poll ends. A choice: longer than a run of bytes takes to be
/// written, so that only a writer that has lost its core is not waited for.
const LOOKS: u32 = 100;

/// The body of the early record that [`Pair::next`] has returned last.
pub(super) struct EarlyBody<'a> {
    pair: &'a Pair,
    len: usize,
}

impl EarlyBody<'_> {
    /// The body, of `len` bytes.
    pub fn new(pair: &Pair, len: usize) -> EarlyBody<'_> {
        EarlyBody { pair, len }
    }

    /// Bytes of the body.
    pub fn len(&self) -> usize {
        self.len
    }

    /// What is there of the last `remaining` bytes, after a short wait. Empty: nothing yet.
    #[inline]
    pub fn next(&self, remaining: usize) -> &[u8] {
        let at = self.len.saturating_sub(remaining);
        for _ in 0..LOOKS {
            let bytes = self.pair.early_bytes(at);
            if !bytes.is_empty() {
                return &bytes[..bytes.len().min(remaining)];
            }
            std::hint::spin_loop();
        }
        &[]
    }

    /// Copies the first of the last `remaining` bytes to `out`, which has room for at most that
    /// many, as they are written. Returns how many: fewer than there is room for if the writer
    /// pauses.
    pub fn copy(&self, remaining: usize, out: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < out.len() {
            let bytes = self.next(remaining - copied);
            if bytes.is_empty() {
                break;
            }
            let n = bytes.len().min(out.len() - copied);
            out[copied..copied + n].copy_from_slice(&bytes[..n]);
            copied += n;
        }
        copied
    }
}
