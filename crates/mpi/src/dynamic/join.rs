//! Joining two processes that have a socket between them (MPI 5.0 §11.10.6).
//!
//! Each process writes two random numbers: one of this call, one of the process. The one with the
//! larger number of the call opens a port and writes its name, the other connects to it. Nothing
//! else goes through the socket, and nothing is left in it.

use super::{foreign, port};
use crate::comm::Comm;
use crate::process::process;
use crate::{Result, err};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::{Arc, OnceLock};

/// First bytes on the socket: what this is, and its version.
const MAGIC: &[u8; 8] = b"ferry-j2";
/// Bytes of the two random numbers.
const NUMBERS_BYTES: usize = 16;
/// Longest name of a port, bytes.
const NAME_MAX_BYTES: u32 = 4096;

/// The program's socket, which stays open.
struct Socket(ManuallyDrop<File>);

impl Socket {
    /// Waits until the socket can be read from or written to: the program may have made it
    /// non-blocking.
    fn wait(&self, events: libc::c_short) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events,
            revents: 0,
        };
        // SAFETY: one descriptor, for the call.
        match unsafe { libc::poll(&mut poll, 1, -1) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLOUT)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            match self.0.read(&mut into[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLIN)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn read_u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// This process's number, by which it knows itself at the other end.
fn own_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(foreign::random)
}

/// An intercommunicator with the process at the other end of the socket `fd`, which makes the same
/// call (MPI_Comm_join). Blocks until it does.
///
/// Errors: Arg if `fd` is no connected socket, or the other end is no process of Ferry; Comm on
/// both ends if they are in one process.
pub fn join(fd: RawFd) -> Result<Arc<Comm>> {
    let broken = |e: io::Error| err!(Arg, "fd {fd} cannot be used: {e}");
    // SAFETY: only asks; a descriptor that is not open is answered EBADF.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(err!(Arg, "fd is {fd}, which is no open descriptor"));
    }
    // SAFETY: open, the program's, and never closed here.
    let mut socket = Socket(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }));
    let mine = foreign::random();
    let hello = [&MAGIC[..], &mine.to_le_bytes(), &own_number().to_le_bytes()].concat();
    socket.write(&hello).map_err(broken)?;
    let mut theirs = [0; MAGIC.len() + NUMBERS_BYTES];
    socket.read(&mut theirs).map_err(broken)?;
    if theirs[..8] != *MAGIC {
        return Err(err!(
            Arg,
            "the process at the other end of fd {fd} is none of Ferry MPI, or of another version"
        ));
    }
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| theirs[at + i]));
    let (theirs, process_there) = (number(8), number(16));
    if process_there == own_number() {
        return Err(err!(
            Comm,
            "this process is at both ends of fd {fd}: it cannot be in both groups of an \
             intercommunicator (MPI 5.0 section 7.6)"
        ));
    }
    let comm = &process().comm_self;
    if mine > theirs {
        let name = port::open(true)?;
        let told = socket
            .write(&(name.len() as u32).to_le_bytes())
            .and_then(|()| socket.write(name.as_bytes()));
        let intercomm = told
            .map_err(broken)
            .and_then(|()| port::accept(&name, comm, 0, Ok(None)));
        port::close(&name)?;
        intercomm
    } else {
        let len = socket.read_u32().map_err(broken)?;
        let mut name = vec![0; len.min(NAME_MAX_BYTES) as usize];
        socket.read(&mut name).map_err(broken)?;
        port::connect(&String::from_utf8_lossy(&name), comm, 0, Ok(None))
    }
}
