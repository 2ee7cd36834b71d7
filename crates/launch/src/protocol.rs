//! What mpiexec and its agents on other hosts say to each other, through the standard input and
//! output of whatever started the agent.
//!
//! ```text
//! agent → head   anything (what a login shell prints), then the greeting: one line that names protocol and version
//! head → agent   the preamble: eight bytes, then the protocol's number
//! both           frames: length (4 bytes, little-endian), then a message in postcard's form
//! ```

mod framing;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

pub use framing::{Opening, SendQueue, decode, greeting, opening};

/// The argument that makes mpiexec an agent.
pub const AGENT_OPTION: &str = "--ferry-agent";

/// Raised with each change of the messages.
pub const PROTOCOL: u32 = 2;
/// How the agent's greeting begins.
pub const GREETING: &[u8] = b"\x02ferry-agent ";
/// How the head begins.
pub const PREAMBLE: [u8; 8] = *b"ferry\n\xfaA";
/// Longest frame. Environment and arguments of all programs have to fit in.
const FRAME_MAX_BYTES: usize = 32 << 20;
/// What a login shell prints before the greeting may be so long.
pub const BANNER_MAX_BYTES: usize = 1 << 20;
/// Longest piece of output or input in a frame.
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
    /// As the system's string.
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
    /// Where, if the user said so.
    pub wdir: Option<Text>,
    /// All of its environment but what belongs to a rank or a host.
    pub environment: Vec<(Text, Text)>,
    /// The user has set LD_LIBRARY_PATH for it.
    pub own_library_path: bool,
}

/// Everything an agent has to know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The job's number.
    pub job: u64,
    /// Its secret.
    pub key: [u8; 32],
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
    /// How ranks are bound: 0 shared out, 1 a core each, 2 not at all.
    pub binding: u8,
    /// Local ranks that get standard input.
    pub readers: Vec<u32>,
    /// After so many milliseconds of silence the other side is taken for gone; 0 never.
    pub silence: u32,
}

/// A status page, as far as others want to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPage {
    /// The rank.
    pub rank: u32,
    /// `RankState` as a number.
    pub state: u32,
    /// Sleeps in MPI.
    pub asleep: bool,
    /// The kernel says that it runs or is stopped, or does not say that all its threads sleep, if
    /// several may be in MPI.
    pub awake: bool,
    /// The number of the call it is in.
    pub call: u32,
    /// For how long, nanoseconds.
    pub age: u64,
    /// As in [`RankView`](crate::hang::RankView).
    pub context: u64,
    /// The communicator's name.
    pub comm: String,
    /// Its size.
    pub comm_size: u32,
    /// Who is waited for.
    pub peer: i32,
    /// With which tag.
    pub tag: i32,
    /// Collectives started.
    pub collective: u64,
    /// Root.
    pub root: i32,
    /// Messages handed over.
    pub sent: u64,
    /// Messages taken.
    pub received: u64,
}

/// From mpiexec to an agent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Start. The first message, and only that.
    Launch(Box<LaunchSpec>),
    /// Send a signal to all ranks.
    Signal(i32),
    /// Read no more of standard output and error (each), or read on.
    PauseOutput([bool; 2]),
    /// Standard input; none: its end.
    Stdin(Vec<u8>),
    /// A card that was asked for.
    Card {
        /// The wire.
        wire: String,
        /// Whose.
        rank: u32,
        /// The card.
        card: Vec<u8>,
    },
    /// I am there.
    Heartbeat,
}

/// From an agent to mpiexec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMpiexec {
    /// A rank runs.
    Started {
        /// Which.
        rank: u32,
        /// Its process there.
        pid: i32,
        /// Where it is bound.
        place: String,
    },
    /// The job cannot be started here.
    StartFailed {
        /// Why.
        text: String,
        /// mpiexec's exit status.
        status: u8,
    },
    /// What a rank has written.
    Output {
        /// Which rank.
        rank: u32,
        /// To standard error?
        error: bool,
        /// What; nothing: its end.
        bytes: Vec<u8>,
    },
    /// Status pages that have changed.
    Pages(Vec<StatusPage>),
    /// A rank wants the job to end.
    Abort {
        /// Which.
        rank: u32,
        /// With this code.
        code: i32,
        /// And these words.
        text: String,
    },
    /// A line of a rank for the job's log.
    Log {
        /// Which.
        rank: u32,
        /// The line.
        text: String,
    },
    /// A rank's card.
    Put {
        /// The wire.
        wire: String,
        /// Whose.
        rank: u32,
        /// The card.
        card: Vec<u8>,
    },
    /// A rank's card is wanted.
    Get {
        /// The wire.
        wire: String,
        /// Whose.
        rank: u32,
    },
    /// A rank has ended.
    Ended {
        /// Which.
        rank: u32,
        /// Its wait status.
        status: i32,
        /// `RankState` as a number.
        state: u32,
    },
    /// The last piece of input has been taken by all readers here.
    StdinTaken,
    /// I am there.
    Heartbeat,
    /// All ranks here have ended, and nothing of them is left.
    Done,
}

#[cfg(test)]
mod tests;
