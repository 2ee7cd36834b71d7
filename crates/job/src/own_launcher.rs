//! Starts a launcher for processes that a program without mpiexec wants to start.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::names::{NameAnswer, NameRequest, NameSocket};

/// mpiexec's option for what it is here: it goes on in a process of its own, so that the program
/// never sees a child that it has not made.
pub const SPAWN_OPTION: &str = "--ferry-spawn";
/// As [`SPAWN_OPTION`], for a launcher that is no child of its starter.
pub const SPAWN_DETACHED_OPTION: &str = "--ferry-spawn-detached";

/// mpiexec's option for answering a question about a published name.
pub const NAME_OPTION: &str = "--ferry-name";

/// The file of this library.
pub(crate) fn own_library() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let own = own_library as *const libc::c_void;
    // SAFETY: the address is one of this library, and `info` is written before it is read.
    let file = unsafe {
        if libc::dladdr(own, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        if info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    file.canonicalize().ok()
}

/// mpiexec of the installation that this library belongs to, else that of PATH.
pub(crate) fn mpiexec() -> PathBuf {
    let file = own_library().unwrap_or_default();
    // PREFIX/lib/libmpi_abi.so.1, or a folder further down.
    let mut above = file.ancestors().skip(2).take(2);
    let found = above.find_map(|p| Some(p.join("bin/mpiexec")).filter(|p| p.exists()));
    found.unwrap_or_else(|| "mpiexec".into())
}

/// Starts a launcher that is no child of this process. It inherits `socket`.
///
/// # Errors
/// There is no mpiexec, or the system refuses a process.
pub fn start_launcher(socket: &OwnedFd) -> io::Result<()> {
    run(SPAWN_DETACHED_OPTION, socket)
}

/// Asks a name server about a published name, for a process without launcher: mpiexec knows how.
/// Blocks until the answer is here.
///
/// # Errors
/// There is no mpiexec, or no answer.
pub fn ask_name_server(request: &NameRequest) -> io::Result<NameAnswer> {
    let (question, end) = NameSocket::ask(request)?;
    run(NAME_OPTION, &end)?;
    drop(end);
    question.answer()
}

/// Runs mpiexec with an option and a socket that it inherits, until it ends.
fn run(option: &str, socket: &OwnedFd) -> io::Result<()> {
    let program = mpiexec();
    let number = socket.as_raw_fd();
    let mut command = Command::new(&program);
    command
        .args([option, &number.to_string()])
        .stdin(Stdio::null());
    // SAFETY: fcntl, setsid and sigprocmask may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            Ok(())
        })
    };
    let status = command.status();
    let status =
        status.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.display())))?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} {status}", program.display()))),
    }
}
