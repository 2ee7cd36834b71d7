//! A rank's connection to its launcher.

use std::fmt;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg, sockopt,
};

use crate::messages::PACKET_MAX_BYTES;
use crate::names::{NameAnswer, NameRequest, NameSocket};
use crate::other_launcher::{self, SharedKvs};
use crate::own_launcher::start_launcher;
use crate::spawn_order::SpawnOrder;
use crate::{ToLauncher, ToRank};

/// How long an aborting rank waits for its launcher. The launcher ends the rank within 0.3 s (its
/// `KILL_DELAY`), so this is only reached if it hangs.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to the launcher.
pub struct Client {
    connection: Connection,
}

enum Connection {
    /// Ferry's mpiexec, over the rank's socket.
    Mpiexec(Arc<OwnedFd>),
    /// Another launcher, over its store.
    Other(SharedKvs),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.connection {
            Connection::Mpiexec(_) => "Client(mpiexec)",
            Connection::Other(_) => "Client(other launcher)",
        })
    }
}

/// The exit status of a job that is ended with `code`: as if main returned it (MPI 5.0 §9.3). What
/// would look like success though it is not 0, as 256, is 1.
pub fn abort_status(code: i32) -> u8 {
    match code as u8 {
        0 => u8::from(code != 0),
        status => status,
    }
}

impl Client {
    /// Ends the whole job with `code` (MPI_Abort). mpiexec prints `text`; under another launcher it
    /// is printed here. Returns when the launcher has received it, is gone, or after five seconds.
    pub fn abort(&self, code: i32, text: &str) {
        let socket = match &self.connection {
            Connection::Mpiexec(socket) => socket,
            Connection::Other(kvs) => return other_launcher::abort(kvs, code, text),
        };
        let packet = ToLauncher::Abort {
            code,
            text: text.into(),
        }
        .encode();
        loop {
            match send(socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                // The program has closed it, and may have opened something else under its number.
                Err(Errno::BADF | Errno::NOTSOCK) => {
                    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
                    return;
                }
                Err(_) => return,
            }
        }
        // The launcher answers with one packet, maybe after business cards that were asked for, or
        // ends this process.
        let end = Instant::now() + ABORT_TIMEOUT;
        let mut bytes = vec![0; PACKET_MAX_BYTES];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut wait = [PollFd::new(socket, PollFlags::IN)];
            match poll(&mut wait, Some(&left)) {
                Ok(0) => return,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            match rustix::net::recv(socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((n, _)) if n > 0 && ToRank::decode(&bytes[..n]) != Some(ToRank::AbortTaken) => {}
                Err(Errno::INTR | Errno::AGAIN) => {}
                _ => return,
            }
        }
    }

    /// Prints a line in the job's log: mpiexec shows it with the rank before it. Under another
    /// launcher it is lost. Does not block for long.
    pub fn log(&self, line: &str) {
        if let Connection::Mpiexec(socket) = &self.connection {
            // A log line that cannot be sent is no error.
            let packet = ToLauncher::Log { text: line.into() }.encode();
            let _ = send(socket, &packet, SendFlags::NOSIGNAL);
        }
    }

    /// Is the launcher another one than Ferry's mpiexec? It may start processes on any host.
    pub fn is_other_launcher(&self) -> bool {
        matches!(self.connection, Connection::Other(_))
    }

    /// Has another launcher start processes by itself. Blocks until it has. `false`: it does not,
    /// or is Ferry's mpiexec ([`Client::start_launcher`]).
    ///
    /// # Errors
    /// It refuses, or has gone.
    pub fn spawn(&self, order: &SpawnOrder) -> std::io::Result<bool> {
        match &self.connection {
            Connection::Mpiexec(_) => Ok(false),
            Connection::Other(kvs) => other_launcher::spawn(kvs, order),
        }
    }

    /// Has the launcher start another one, for processes that this rank orders through the socket.
    ///
    /// # Errors
    /// The launcher has gone; or it is another launcher, which starts none.
    pub fn start_launcher(&self, end: &OwnedFd) -> std::io::Result<()> {
        match &self.connection {
            Connection::Mpiexec(socket) => pass(socket, &ToLauncher::Spawn, end),
            Connection::Other(kvs) => {
                other_launcher::may_start_another(kvs)?;
                start_launcher(end)
            }
        }
    }

    /// Asks the launcher about a published name. Blocks until the answer is here. `Ok(None)`: it is
    /// refused.
    ///
    /// # Errors
    /// The launcher has gone; or it is another launcher, which has no names.
    pub fn ask_name(&self, request: &NameRequest) -> std::io::Result<NameAnswer> {
        self.begin_to_ask(request)?.answer()
    }

    /// As [`Client::ask_name`], which does not wait for the answer.
    ///
    /// # Errors
    /// As there.
    pub fn begin_to_ask(&self, request: &NameRequest) -> std::io::Result<NameSocket> {
        let Connection::Mpiexec(socket) = &self.connection else {
            return Err(std::io::ErrorKind::Unsupported.into());
        };
        let (question, end) = NameSocket::ask(request)?;
        pass(socket, &ToLauncher::Name, &end)?;
        Ok(question)
    }

    /// Lets the launcher's descendants, the job's other ranks, read this process's memory. Needed
    /// with the Yama security module (`kernel.yama.ptrace_scope` 1); without Yama it does nothing.
    pub fn let_ranks_read_memory(&self) {
        let launcher = match &self.connection {
            Connection::Mpiexec(socket) => sockopt::socket_peercred(socket).ok().map(|p| p.pid),
            // The parent of this rank is also that of the other ranks on its node.
            Connection::Other(_) => rustix::process::getppid().map(crate::watched::launcher),
        };
        if let Some(launcher) = launcher {
            // SAFETY: this option only names a process id; where it is unknown the call fails and
            // changes nothing.
            unsafe {
                libc::prctl(
                    libc::PR_SET_PTRACER,
                    launcher.as_raw_nonzero().get() as libc::c_ulong,
                    0,
                    0,
                    0,
                )
            };
        }
    }

    /// To Ferry's mpiexec.
    pub(crate) fn of_mpiexec(socket: Arc<OwnedFd>) -> Client {
        Client {
            connection: Connection::Mpiexec(socket),
        }
    }

    /// To another launcher.
    pub(crate) fn of_other_launcher(kvs: SharedKvs) -> Client {
        Client {
            connection: Connection::Other(kvs),
        }
    }
}

/// Sends a message together with a descriptor.
fn pass(socket: &OwnedFd, message: &ToLauncher, end: &OwnedFd) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [end.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let packet = message.encode();
    let packet = [IoSlice::new(&packet)];
    loop {
        match sendmsg(socket, &packet, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
