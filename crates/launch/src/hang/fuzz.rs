//! Status pages with arbitrary bytes: a rank may overwrite its own. Whatever is there, mpiexec
//! makes a table of bounded length of it.

use super::mistakes::mistakes;
use super::*;
use ferry_fuzz::fuzz;
use ferry_job::RankStatus;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// A page's worth of bytes as the rank's fields, as the launcher's loop reads them.
fn view(bytes: &[u8; SIZE]) -> RankView {
    // SAFETY: every field is an atomic integer, for which any bytes are valid.
    let status: RankStatus = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
    let since = status.since.load(Ordering::Relaxed);
    view_of(&page_of(0, &status, true), since)
}

const SIZE: usize = size_of::<RankStatus>();

/// The page of a rank that waits.
fn page(call: u32, peer: i32, collective: u64, context: u64) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(RankStatus, state), &1u32.to_ne_bytes());
    put(offset_of!(RankStatus, asleep), &1u32.to_ne_bytes());
    put(offset_of!(RankStatus, comm_size), &3u32.to_ne_bytes());
    put(offset_of!(RankStatus, call), &call.to_ne_bytes());
    put(offset_of!(RankStatus, peer), &peer.to_ne_bytes());
    put(
        offset_of!(RankStatus, collective),
        &collective.to_ne_bytes(),
    );
    put(offset_of!(RankStatus, context), &context.to_ne_bytes());
    page
}

#[test]
fn fuzz_status_pages() {
    let seeds = [
        [page(300, 1, 0, 0), page(300, 0, 0, 0), page(301, 1, 0, 0)].concat(),
        [page(40, -2, 1, 1), page(41, -2, 1, 1), page(41, -2, 2, 1)].concat(),
        [page(40, -1, 0, 4), page(41, -2, 0, 1 << 40), vec![0; SIZE]].concat(),
    ];
    fuzz("status pages", &seeds, |bytes| {
        let ranks: Vec<RankView> = bytes.as_chunks::<SIZE>().0.iter().map(view).collect();
        let still = stalled_state(&ranks).is_some();
        let text = report(&ranks, 1 << 40);
        assert!(text.len() < 64 * 1024);
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        (still, text.lines().count(), mistakes(&ranks).len())
    });
}
