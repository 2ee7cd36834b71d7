//! The protocol between mpiexec and its agents on other hosts. It goes through the standard input
//! and output of the launcher (ssh, srun) that started the agent.
//!
//! ```text
//! agent → mpiexec   anything (what a login shell prints), then the greeting: one line that
//!                   names protocol and version
//! mpiexec → agent   the preamble: eight bytes, then the protocol's number
//! both              frames: length (4 bytes, little-endian), then a message encoded by postcard
//! ```

mod framing;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

pub use framing::{Opening, SendQueue, decode, greeting, opening};

/// The argument that makes mpiexec an agent.
pub const AGENT_OPTION: &str = "--ferry-agent";

/// Version of the protocol. Raised with each change of the messages.
pub const PROTOCOL: u32 = 7;
/// Beginning of the agent's greeting.
pub const GREETING: &[u8] = b"\x02ferry-agent ";
/// The first bytes from mpiexec. The two last ones are no text, so that nothing typed is taken for
/// them.
pub const PREAMBLE: [u8; 8] = *b"ferry\n\xfaA";
/// Longest frame. The launch message with all programs' environments and arguments must fit in;
/// Linux allows 6 MiB of them for one program.
const FRAME_MAX_BYTES: usize = 32 << 20;
/// Longest text that a login shell may print before the greeting. Mottos and warnings are far
/// shorter.
pub const BANNER_MAX_BYTES: usize = 1 << 20;
/// Longest chunk of output or input in a frame: the size of a pipe's buffer.
pub const CHUNK_MAX_BYTES: usize = 64 * 1024;

/// Bytes of a file name, an argument or a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text(pub Vec<u8>);

impl From<&std::ffi::OsStr> for Text {
    fn from(text: &std::ffi::OsStr) -> Text {
        Text(text.as_bytes().to_vec())
    }
}
impl Text {
    /// As a string of the system.
    pub fn os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }
}

/// A program and how it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// As the user wrote it.
    pub program: Text,
    /// Its arguments.
    pub arguments: Vec<Text>,
    /// Working directory, if the user gave one.
    pub wdir: Option<Text>,
    /// Its environment, without what differs between ranks or hosts.
    pub environment: Vec<(Text, Text)>,
    /// The user has set LD_LIBRARY_PATH for it.
    pub own_library_path: bool,
    /// Start it though it is linked with another MPI's library.
    pub allow_other_mpi: bool,
}

/// The launch message: all that an agent must know to start its ranks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The job's id.
    pub job: u64,
    /// The job's key, by which ranks authenticate each other.
    pub key: [u8; 32],
    /// The port of the process that has started the job. Empty: none has.
    pub parent: String,
    /// [`ferry_job::RankInfo::universe`].
    pub universe: u32,
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// Each rank's host.
    pub host_of: Vec<u32>,
    /// The agent's own host.
    pub host: u32,
    /// Each rank's program.
    pub app_of: Vec<u32>,
    /// The programs.
    pub programs: Vec<Program>,
    /// Where mpiexec was called.
    pub directory: Text,
    /// Binding of ranks: `Binding::number`.
    pub binding: u8,
    /// Ranks that read standard input.
    pub readers: Vec<u32>,
    /// Milliseconds of silence after which the other side is taken for lost. 0: never.
    pub silence: u32,
}

/// A rank's status page, as it is sent to mpiexec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPage {
    /// The rank.
    pub rank: u32,
    /// `RankState` as a number.
    pub state: u32,
    /// All threads that are in MPI sleep.
    pub asleep: bool,
    /// The kernel contradicts `asleep`, or does not say that all threads sleep.
    pub awake: bool,
    /// Number of the MPI call that it is in.
    pub call: u32,
    /// How long it sleeps, nanoseconds.
    pub age: u64,
    /// As in [`RankView`](crate::hang::RankView).
    pub context: u64,
    /// The communicator's name.
    pub comm: String,
    /// Its size.
    pub comm_size: u32,
    /// It waits for processes of a job that it does not know.
    pub awaits_unknown: bool,
    /// It has known processes of other jobs that it knows no more.
    pub has_parted: bool,
    /// The other jobs of which it knows processes.
    pub known_jobs: Vec<u64>,
    /// The rank in its own job of a peer of another job.
    pub peer_rank: u32,
    /// That job.
    pub peer_job: u64,
    /// The peer that is waited for.
    pub peer: i32,
    /// The tag that is waited for.
    pub tag: i32,
    /// Collectives that the communicator has started.
    pub collective: u64,
    /// Root of the collective.
    pub root: i32,
    /// What the request is that it waits for.
    pub operation: String,
    /// How many requests it waits for, where a call waits for several.
    pub awaited_count: u32,
    /// The first of them.
    pub awaited: Vec<AwaitedView>,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
}

/// One of the requests that a rank waits for. The fields are as in [`StatusPage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedView {
    /// What it is.
    pub operation: String,
    /// The communicator's context.
    pub context: u64,
    /// The peer.
    pub peer: i32,
    /// The tag.
    pub tag: i32,
    /// The collective's number. 0: it is none.
    pub collective: u64,
}

/// From mpiexec to an agent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Start the ranks. Always the first message, and never sent again.
    Launch(Box<LaunchSpec>),
    /// Send a signal to all ranks.
    Signal(i32),
    /// Stop or resume reading standard output and standard error.
    PauseOutput([bool; 2]),
    /// A chunk of standard input. Empty at the end.
    Stdin(Vec<u8>),
    /// A business card that was asked for.
    Card {
        /// The medium.
        medium: String,
        /// The rank that the card belongs to.
        rank: u32,
        /// The card's bytes.
        card: Vec<u8>,
    },
    /// Bytes of a relayed socket. None: it has ended.
    Relay {
        /// The socket's number at the agent.
        number: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The answer to a question about a name. Empty: there is none.
    NameAnswer {
        /// The question's number at the agent.
        number: u32,
        /// The answer.
        bytes: Vec<u8>,
    },
    /// All ranks seem to sleep: send the status pages that have changed, and then
    /// [`ToMpiexec::PagesConfirmed`] with this number.
    ConfirmPages(u64),
    /// Heartbeat: nothing else was to be sent.
    Heartbeat,
}

/// From an agent to mpiexec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMpiexec {
    /// A rank runs.
    Started {
        /// The rank.
        rank: u32,
        /// Its process id.
        pid: i32,
        /// Its binding in words.
        binding: String,
    },
    /// The job cannot be started here.
    StartFailed {
        /// The error.
        text: String,
        /// mpiexec's exit status.
        status: u8,
    },
    /// Output of a rank.
    Output {
        /// The rank.
        rank: u32,
        /// Standard error, not standard output.
        error: bool,
        /// The bytes. Empty at the end of the stream.
        bytes: Vec<u8>,
    },
    /// Status pages that have changed.
    Pages(Vec<StatusPage>),
    /// The answer to [`ToAgent::ConfirmPages`]: pages that were not sent have not changed.
    PagesConfirmed(u64),
    /// A rank has called MPI_Abort or had a fatal error.
    Abort {
        /// The rank.
        rank: u32,
        /// The exit status asked for.
        code: i32,
        /// The library's message.
        text: String,
    },
    /// A line of a rank for the job's log.
    Log {
        /// The rank.
        rank: u32,
        /// The line.
        text: String,
    },
    /// A rank publishes its business card.
    Put {
        /// The medium.
        medium: String,
        /// The rank that the card belongs to.
        rank: u32,
        /// The card's bytes.
        card: Vec<u8>,
    },
    /// A rank asks for a business card.
    Get {
        /// The medium.
        medium: String,
        /// The rank that the card belongs to.
        rank: u32,
    },
    /// A rank starts processes: its socket is relayed to a new launcher.
    Spawn {
        /// The socket's number.
        number: u32,
    },
    /// Bytes of a relayed socket. None: it has ended.
    Relay {
        /// The socket's number.
        number: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A rank asks about a published name.
    Name {
        /// The question's number.
        number: u32,
        /// The question.
        bytes: Vec<u8>,
    },
    /// A rank has ended.
    Ended {
        /// The rank.
        rank: u32,
        /// Its wait status.
        status: i32,
        /// `RankState` as a number.
        state: u32,
    },
    /// All readers here have taken the last chunk of standard input.
    StdinTaken,
    /// Heartbeat: nothing else was to be sent.
    Heartbeat,
    /// All ranks here have ended, and their orphans, too.
    Done,
}

#[cfg(test)]
mod tests;
