//! What the program has printed and C's library has not written yet, when the process ends at once.

use std::sync::mpsc;
use std::time::Duration;

unsafe extern "C" {
    /// C's stream of standard output.
    static mut stdout: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> i32;
    fn funlockfile(stream: *mut libc::FILE);
}

/// For so long at most other streams keep a process that ends: one that another thread reads from
/// may be locked for ever.
const OTHER_STREAMS_LIMIT: Duration = Duration::from_millis(200);

/// Writes what C's output streams hold, as `exit` would, for a process that ends without it
/// (MPI_Abort, MPI 5.0 §9.3; a fatal error). Blocks for 0.2 s at most, unless standard output
/// itself is stopped.
pub fn flush() {
    // SAFETY: the pointer is set by C's library before main; a lock that this thread holds already
    // is taken once more.
    unsafe {
        let out = stdout;
        if !out.is_null() && ftrylockfile(out) == 0 {
            libc::fflush(out);
            funlockfile(out);
        }
    }
    let (done, ended) = mpsc::channel();
    let begun = ferry_job::start_thread("last", 64 * 1024, move || {
        // SAFETY: null means all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let _ = done.send(());
    });
    if begun.is_ok() {
        let _ = ended.recv_timeout(OTHER_STREAMS_LIMIT);
    }
}
