//! Programs that another launcher (Hydra, srun, prterun) starts for MPI_Comm_spawn, and the process
//! that watches each of them.
//!
//! Such launchers do not report a program that ends before MPI_Init, and MPI_Comm_spawn would wait
//! for it. So each program is started by a watching process: mpiexec in a mode of its own, which
//! waits for the program's end. If the program has not called MPI_Init by then, the watching
//! process calls MPI_Init in its place, which tells the spawning job why the program is missing.

use std::env;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;

use rustix::fs::fstat;
use rustix::process::Pid;

use crate::own_launcher::{mpiexec, own_library};
use crate::spawn_order::SpawnOrder;

/// mpiexec's option for starting a program and watching it. Behind it: this library, folders in
/// which the program is looked for (or [`NO_FOLDERS`]), the program and its arguments.
pub const WATCH_OPTION: &str = "--ferry-watch";
/// In place of folders: there are none. An empty argument might get lost on the way.
pub const NO_FOLDERS: &str = "-";
/// The variable by which a program finds the socket to the process that watches it: the number of
/// the descriptor, a colon, and the socket's inode.
pub const WATCHED_FD: &str = "FERRY_WATCHED_FD";
/// The variable of a process that calls MPI_Init in a program's place: why the program has ended.
pub const PROGRAM_ENDED: &str = "FERRY_PROGRAM_ENDED";

/// The order with a watching process for each program.
pub(crate) fn with_watch(order: &SpawnOrder) -> SpawnOrder {
    let mut order = order.clone();
    let (Some(library), mpiexec) = (own_library(), mpiexec()) else {
        return order;
    };
    for program in &mut order.programs {
        let folders = match std::mem::take(&mut program.path) {
            none if none.is_empty() => NO_FOLDERS.into(),
            folders => folders,
        };
        let command = std::mem::replace(
            &mut program.command,
            mpiexec.clone().into_os_string().into_vec(),
        );
        let before = [
            WATCH_OPTION.into(),
            library.clone().into_os_string().into_vec(),
            folders,
            command,
        ];
        program.arguments.splice(0..0, before);
    }
    order
}

/// The end of a watching process's socket.
#[derive(Debug)]
pub struct WatchSocket(UnixStream);

impl WatchSocket {
    /// Makes a pair: this end, and the one for the program, with the value of [`WATCHED_FD`].
    ///
    /// # Errors
    /// The limit on open files is reached.
    pub fn pair() -> std::io::Result<(WatchSocket, OwnedFd, String)> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs: OwnedFd = theirs.into();
        let value = format!("{}:{}", theirs.as_raw_fd(), fstat(&theirs)?.st_ino);
        Ok((WatchSocket(ours), theirs, value))
    }

    /// Has the program called MPI_Init?
    pub fn has_started(&self) -> bool {
        let mut byte = [0];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(&self.0, &mut byte[..], flags), Ok((1, _)))
    }
}

/// Tells the process that watches this one, if one does, that MPI begins.
pub(crate) fn tell_started() {
    let value = env::var(WATCHED_FD).unwrap_or_default();
    let Some((number, inode)) = value.split_once(':') else {
        return;
    };
    let number = number.parse::<RawFd>().ok().filter(|&n| n > 2);
    let (Some(number), Ok(inode)) = (number, inode.parse::<u64>()) else {
        return;
    };
    // The variable may have outlived the socket, and the number may be another file's.
    // SAFETY: only a number so far; fstat on a closed one says EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if fstat(borrowed).is_ok_and(|file| file.st_ino == inode) {
        // SAFETY: open, and passed to this process for this purpose alone.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        // One that is gone need not be told.
        let _ = rustix::net::send(&socket, b"I", rustix::net::SendFlags::NOSIGNAL);
    }
}

/// The launcher, by this process's parent: that may be the process that watches this one.
pub(crate) fn launcher(parent: Pid) -> Pid {
    if env::var_os(WATCHED_FD).is_none() {
        return parent;
    }
    let file = format!("/proc/{}/stat", parent.as_raw_nonzero());
    let stat = std::fs::read_to_string(file).unwrap_or_default();
    // Behind the name, in parentheses, stand its state and its parent.
    let above = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    above.and_then(Pid::from_raw).unwrap_or(parent)
}

/// Why the program has ended in whose place this process calls MPI_Init. `None`: it is a program of
/// its own.
pub fn ended_program() -> Option<String> {
    env::var(PROGRAM_ENDED).ok().filter(|why| !why.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_starts_is_seen() {
        let (watch, theirs, value) = WatchSocket::pair().unwrap();
        assert!(!watch.has_started());
        let (number, inode) = value.split_once(':').unwrap();
        assert_eq!(number, theirs.as_raw_fd().to_string());
        assert_eq!(inode, fstat(&theirs).unwrap().st_ino.to_string());
        rustix::net::send(&theirs, b"I", rustix::net::SendFlags::NOSIGNAL).unwrap();
        assert!(watch.has_started());
        drop(theirs);
        assert!(!watch.has_started());
    }
}
