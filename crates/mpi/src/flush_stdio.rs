//! Writes the program's buffered output when the process ends without exit handlers.

use std::sync::mpsc;
use std::time::Duration;

unsafe extern "C" {
    /// C's stream of standard output.
    static mut stdout: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> i32;
    fn funlockfile(stream: *mut libc::FILE);
}

/// Maximum time that streams other than standard output may delay the end of a process. A stream
/// that another thread reads from may be locked for ever. The figure is a choice: short for a user
/// who waits.
const OTHER_STREAMS_LIMIT: Duration = Duration::from_millis(200);

/// Flushes C's output streams as `exit` does, for a process that ends without it (MPI_Abort, MPI
/// 5.0 §9.3, or a fatal error). Blocks for `OTHER_STREAMS_LIMIT` at most, unless standard output
/// itself is stopped.
pub fn flush() {
    // SAFETY: C's library sets the pointer before main. The lock is recursive, so this thread may
    // hold it already.
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
