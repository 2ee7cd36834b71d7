//! A rank's side of the launcher's socket.

use std::env;
use std::fmt;
use std::io::{IoSliceMut, Result as IoResult};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketType,
    recvmsg, send, sockopt,
};

use crate::directory::{Directory, LauncherDirectory};
use crate::foreign::{self, SharedKvs};
use crate::notice::PACKET_MAX;
use crate::{Cores, Notice, RankStatus, Reply, Segment, Welcome};

/// The environment variable that names the socket's descriptor.
pub const LAUNCH_FD: &str = "FERRY_LAUNCH_FD";
/// How long an aborting rank waits for its launcher: the launcher ends the rank in this time
/// anyway.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// Why a rank could not find its job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The launcher left a socket, but it cannot be spoken to.
    #[error("{0}")]
    Launcher(String),
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// What was tried.
        attempted: String,
        /// What the system said.
        cause: std::io::Error,
        /// What to set.
        advice: &'static str,
    },
}

/// Where this process stands in its job.
pub struct Place {
    /// What the launcher said; for a program started without a launcher, a job of one rank.
    pub welcome: Welcome,
    /// The node's segment; `None` in a job of one rank.
    pub segment: Option<Segment>,
    /// This rank's status: in the segment, or in private memory.
    pub status: &'static RankStatus,
    /// The connection to the launcher, if there is one.
    pub client: Option<Client>,
    /// Where ranks leave what others need to reach them; `None` in a job of one rank.
    pub directory: Option<Box<dyn Directory>>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("welcome", &self.welcome)
            .field("segment", &self.segment)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// The connection to the launcher.
pub struct Client {
    link: Link,
}

enum Link {
    /// Ferry's mpiexec.
    Launcher(Arc<OwnedFd>),
    /// Another.
    Foreign(SharedKvs),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.link {
            Link::Launcher(_) => "Client(mpiexec)",
            Link::Foreign(_) => "Client(foreign)",
        })
    }
}

/// Finds this process's job: reads the welcome that `mpiexec` left in the socket named by
/// `FERRY_LAUNCH_FD`, which does not block; or, if another launcher has left traces (PMI, PMIx),
/// finds it through that, which is collective over the job and blocks until all ranks are here; or
/// else makes a job of one rank.
///
/// To be called once: the welcome is taken out of the socket, and the socket belongs to the place
/// from then on.
///
/// # Errors
/// [`JobError::Launcher`] if the variable is there but no launcher can be spoken to through it:
/// such a process was meant to be a rank, and would do the wrong thing as a job of its own.
pub fn join() -> Result<Place, JobError> {
    match env::var_os(LAUNCH_FD) {
        None => match foreign::find() {
            None => Ok(alone()),
            Some(found) => found.and_then(foreign::join),
        },
        Some(value) => match value
            .to_str()
            .and_then(|v| v.trim().parse::<RawFd>().ok())
            .filter(|&fd| fd >= 0)
        {
            Some(fd) => join_through(fd),
            None => Err(JobError::Launcher(format!(
                "{LAUNCH_FD} is {value:?}, which is no file descriptor number; start the program \
                 with mpiexec, or unset {LAUNCH_FD}"
            ))),
        },
    }
}

/// A job of one rank.
fn alone() -> Place {
    let welcome = Welcome {
        job: u64::from(std::process::id()),
        cores: Cores::counted().usable() as u32,
        ..Welcome::on_one_host(0, 1, &host_name())
    };
    Place {
        welcome,
        segment: None,
        status: Box::leak(Box::default()),
        client: None,
        directory: None,
    }
}

/// What this host calls itself.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn join_through(number: RawFd) -> Result<Place, JobError> {
    let lost = |what: String| {
        JobError::Launcher(format!(
            "this program was started by mpiexec ({LAUNCH_FD}={number}), but its launcher cannot \
             be spoken to: {what}"
        ))
    };
    // Not ours until it is known to be a socket: the variable may have outlived the descriptor, and
    // its number may be another file's. SAFETY: only a number so far; fcntl and getsockopt on a
    // closed one say EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    match sockopt::socket_type(borrowed) {
        Ok(SocketType::SEQPACKET) => {}
        Ok(_) | Err(Errno::NOTSOCK) => {
            return Err(lost(
                "the descriptor is something else now. Was this program started by a rank of an \
                 MPI job? Use mpiexec for it too, or unset FERRY_LAUNCH_FD"
                    .into(),
            ));
        }
        Err(Errno::BADF) => {
            return Err(lost(
                "the descriptor is closed. Does a wrapper close its descriptors, or was this \
                 program started by a rank that is in MPI itself? Use mpiexec for it too, or unset \
                 FERRY_LAUNCH_FD"
                    .into(),
            ));
        }
        Err(e) => return Err(lost(e.to_string())),
    }
    fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(|e| lost(e.to_string()))?;
    // SAFETY: open, a socket, and passed by mpiexec to this process for nobody else to use.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let (bytes, mut fds) = take_welcome(socket.as_fd()).map_err(|e| {
        match Errno::from_io_error(&e) {
        Some(Errno::AGAIN) => lost(
            "its welcome has been taken already; another process of this rank has initialised MPI. \
             Only one process for each rank that mpiexec starts can"
                .into(),
        ),
        Some(Errno::CONNRESET) => lost("mpiexec has gone".into()),
        _ => lost(e.to_string()),
    }
    })?;
    if bytes.is_empty() {
        return Err(lost("mpiexec has gone".into()));
    }
    let welcome =
        Welcome::decode(&bytes).map_err(|e| lost(format!("its welcome cannot be read: {e}")))?;
    let mut fds = fds.drain(..);
    let (Some(fd), machine) = (fds.next(), fds.next()) else {
        return Err(lost(
            "the node's memory segment did not come with the welcome; is RLIMIT_NOFILE (ulimit -n) \
             reached in this process?".into(),
        ));
    };
    let mut segment = Segment::open(fd, welcome.local_ranks.len() as u32, welcome.segment_len)?;
    segment.machine = machine;
    let status = segment
        .status(welcome.local_rank)
        .ok_or_else(|| lost("its welcome contradicts the segment".into()))?;
    let socket = Arc::new(socket);
    Ok(Place {
        welcome,
        segment: Some(segment),
        status,
        directory: Some(Box::new(LauncherDirectory::new(socket.clone()))),
        client: Some(Client {
            link: Link::Launcher(socket),
        }),
    })
}

/// One packet and the descriptors that came with it: the segment, and a modelled machine's memory.
fn take_welcome(socket: BorrowedFd<'_>) -> IoResult<(Vec<u8>, Vec<OwnedFd>)> {
    // Large enough for 16,384 ranks on this node at once; a longer one is read again with a larger
    // buffer.
    let mut bytes = vec![0u8; 64 * 1024 + 64];
    loop {
        let needed = rustix::net::recv(
            socket,
            &mut bytes[..1],
            RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT,
        )?
        .1;
        if needed > bytes.len() {
            bytes.resize(needed, 0);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            flags,
        ) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut found = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                found.extend(fds);
            }
        }
        bytes.truncate(if got.flags.contains(ReturnFlags::TRUNC) {
            0
        } else {
            got.bytes
        });
        return Ok((bytes, found));
    }
}

impl Client {
    /// Tells the launcher to end the whole job with `code` (MPI_Abort); `text` is printed by the
    /// launcher, or here if that is not Ferry's. Does not return until the launcher has taken
    /// it, or is gone, or five seconds are over.
    pub fn abort(&self, code: i32, text: &str) {
        let socket = match &self.link {
            Link::Launcher(socket) => socket,
            Link::Foreign(kvs) => return foreign::abort(kvs, code, text),
        };
        let packet = Notice::Abort {
            code,
            text: text.into(),
        }
        .encode();
        loop {
            match send(socket, &packet, SendFlags::NOSIGNAL) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        // The launcher answers with one packet, maybe after cards that were asked for, or by ending
        // this process.
        let end = Instant::now() + ABORT_PATIENCE;
        let mut bytes = vec![0; PACKET_MAX];
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
                Ok((n, _)) if n > 0 && Reply::decode(&bytes[..n]) != Some(Reply::Taken) => {}
                Err(Errno::INTR | Errno::AGAIN) => {}
                _ => return,
            }
        }
    }

    /// A line for the job's log, which mpiexec shows with the rank in front of it. Under another
    /// launcher it is lost. Does not block for long.
    pub fn say(&self, line: &str) {
        if let Link::Launcher(socket) = &self.link {
            // A log line that cannot be sent is not worth an error.
            let packet = Notice::Say { text: line.into() }.encode();
            let _ = send(socket, &packet, SendFlags::NOSIGNAL);
        }
    }

    /// Lets the launcher's descendants, the job's other ranks, read this process's memory where the
    /// Yama security module asks for such a word (`kernel.yama.ptrace_scope` 1). Without Yama
    /// nothing happens.
    pub fn trust_ranks(&self) {
        let launcher = match &self.link {
            Link::Launcher(socket) => sockopt::socket_peercred(socket).ok().map(|p| p.pid),
            // Who started this rank has started the others of its node, too.
            Link::Foreign(_) => rustix::process::getppid(),
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

    /// A job of another launcher.
    pub(crate) fn foreign(kvs: SharedKvs) -> Client {
        Client {
            link: Link::Foreign(kvs),
        }
    }
}
