//! What mpiexec and its agents on other hosts say to each other, through the standard input and
//! output of whatever started the agent.
//!
//! ```text
//! agent → head   anything (what a login shell prints), then the greeting: one line that names protocol and version
//! head → agent   the preamble: eight bytes, then the protocol's number
//! both           frames: length (4 bytes, little-endian), then a message in postcard's form
//! ```

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Raised with each change of the messages.
pub const PROTOCOL: u32 = 2;
/// How the agent's greeting begins.
pub const GREETING: &[u8] = b"\x02ferry-agent ";
/// How the head begins.
pub const PREAMBLE: [u8; 8] = *b"ferry\n\xfaA";
/// Longest frame. Environment and arguments of all programs have to fit in.
const FRAME_MAX: usize = 32 << 20;
/// What a login shell prints before the greeting may be so long.
pub const NOISE_MAX: usize = 1 << 20;
/// Longest piece of output or input in a frame.
pub const PIECE: usize = 64 * 1024;

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
pub struct Orders {
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
pub struct Page {
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
    Orders(Box<Orders>),
    /// Send a signal to all ranks.
    Signal(i32),
    /// Read no more of standard output and error (each), or read on.
    Hold([bool; 2]),
    /// Standard input; none: its end.
    Input(Vec<u8>),
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
    Beat,
}

/// From an agent to mpiexec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHead {
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
    NotStarted {
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
    Pages(Vec<Page>),
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
    Say {
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
    InputTaken,
    /// I am there.
    Beat,
    /// All ranks here have ended, and nothing of them is left.
    Done,
}

/// A message as a frame.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = vec![0; 4];
    // Fails only for types that postcard does not know, and these are none.
    out = postcard::to_extend(message, out).unwrap_or_default();
    let len = (out.len() as u32).saturating_sub(4);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_le_bytes();
    }
    out
}

/// Takes one frame from the front of `bytes`; `Ok(None)` if it is not all there yet. Returns the
/// message and its length.
///
/// # Errors
/// What is wrong with it: nothing after it can be read.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > FRAME_MAX {
        return Err(format!("a frame of {len} bytes"));
    }
    let Some(body) = rest.get(..len) else {
        return Ok(None);
    };
    match postcard::take_from_bytes::<T>(body) {
        Ok((message, [])) => Ok(Some((message, 4 + len))),
        Ok((_, more)) => Err(format!("a frame with {} bytes too many", more.len())),
        Err(e) => Err(format!("a frame that cannot be read: {e}")),
    }
}

/// The agent's greeting.
pub fn greeting() -> Vec<u8> {
    let mut out = b"\n".to_vec();
    out.extend(GREETING);
    out.extend(format!("{PROTOCOL} {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    out
}

/// What has come before the frames.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// Not all of the greeting is there yet.
    Waiting,
    /// Greeted: the frames begin after so many bytes.
    Open(usize),
    /// This will never become a greeting.
    Wrong(String),
}

/// Looks for the greeting.
pub fn opening(bytes: &[u8]) -> Opening {
    let found = bytes
        .windows(GREETING.len())
        .position(|w| w == GREETING)
        .map(|at| at + GREETING.len());
    let Some(start) = found else {
        if bytes.len() > NOISE_MAX {
            return Opening::Wrong("what it prints is no greeting of a Ferry agent".into());
        }
        return Opening::Waiting;
    };
    let line = &bytes[start..bytes.len().min(start + 100)];
    let Some(end) = line.iter().position(|&b| b == b'\n') else {
        return if line.len() == 100 {
            Opening::Wrong("its greeting has no end".into())
        } else {
            Opening::Waiting
        };
    };
    let line = String::from_utf8_lossy(&line[..end]);
    let (protocol, version) = line.split_once(' ').unwrap_or((&line, "?"));
    if protocol.parse() == Ok(PROTOCOL) {
        Opening::Open(start + end + 1)
    } else {
        Opening::Wrong(format!(
            "its mpiexec is Ferry {version:?} with protocol {protocol:?}, and this one is {} with protocol {PROTOCOL}; install the same on all hosts",
            env!("CARGO_PKG_VERSION")
        ))
    }
}

/// Bytes that wait to be written.
#[derive(Default)]
pub struct Queue {
    bytes: VecDeque<u8>,
}

impl Queue {
    /// Adds a message.
    pub fn push<T: Serialize>(&mut self, message: &T) {
        self.bytes.extend(encode(message));
    }
    /// Adds bytes as they are.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Writes what a non-blocking descriptor takes.
    ///
    /// # Errors
    /// The other side has gone.
    pub fn flush(&mut self, to: impl rustix::fd::AsFd) -> rustix::io::Result<()> {
        use rustix::io::Errno;
        while !self.bytes.is_empty() {
            match rustix::io::write(&to, self.bytes.as_slices().0) {
                Ok(n) => drop(self.bytes.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> ToAgent {
        let text = |t: &str| Text(t.as_bytes().to_vec());
        ToAgent::Orders(Box::new(Orders {
            job: 7,
            key: [3; 32],
            hosts: vec!["a".into(), "b".into()],
            host_of: vec![0, 0, 1],
            host: 1,
            app_of: vec![0, 0, 0],
            programs: vec![Program {
                program: text("./x"),
                arguments: vec![text("-n")],
                wdir: None,
                environment: vec![(text("A"), text("1"))],
                own_library_path: false,
            }],
            directory: text("/tmp"),
            binding: 0,
            readers: vec![0],
            silence: 1000,
        }))
    }

    #[test]
    fn a_frame_comes_back_piece_by_piece() {
        let bytes = encode(&orders());
        for cut in 0..bytes.len() {
            assert!(matches!(decode::<ToAgent>(&bytes[..cut]), Ok(None)));
        }
        let (back, len) = decode::<ToAgent>(&bytes).unwrap().unwrap();
        assert!(back == orders() && len == bytes.len());
    }

    #[test]
    fn a_greeting_is_found_behind_noise() {
        let bytes = [b"Welcome to beta!\n".as_slice(), &greeting(), b"rest"].concat();
        let at = bytes.len() - 4;
        assert_eq!(opening(&bytes), Opening::Open(at));
        assert_eq!(opening(&bytes[..at - 1]), Opening::Waiting);
        assert_eq!(opening(b"motd"), Opening::Waiting);
        let other = [GREETING, b"99 3.0\n"].concat();
        assert!(matches!(opening(&other), Opening::Wrong(t) if t.contains("same on all hosts")));
    }

    #[test]
    fn fuzz_frames() {
        let page = Page {
            rank: 1,
            state: 1,
            asleep: true,
            awake: false,
            call: 9,
            age: 5,
            context: 4,
            comm: "c".into(),
            comm_size: 2,
            peer: -1,
            tag: 3,
            collective: 0,
            root: -1,
            sent: 1,
            received: 1,
        };
        let card = vec![1, 2, 3];
        let put = ToHead::Put {
            wire: "tcp".into(),
            rank: 0,
            card,
        };
        let ended = ToHead::Ended {
            rank: 1,
            status: 9,
            state: 2,
        };
        let seeds = [
            encode(&orders()),
            encode(&ToHead::Pages(vec![page])),
            encode(&put),
            encode(&ended),
            encode(&ToAgent::Input(vec![1, 2, 3])),
            greeting(),
        ];
        ferry_fuzz::fuzz("frames", &seeds, |bytes| {
            let down = decode::<ToAgent>(bytes);
            if let Ok(Some((message, len))) = &down {
                assert!(*len <= bytes.len());
                assert!(decode::<ToAgent>(&encode(message)).unwrap().unwrap().0 == *message);
            }
            let up = decode::<ToHead>(bytes);
            if let Ok(Some((message, len))) = &up {
                assert!(*len <= bytes.len());
                assert_eq!(
                    decode::<ToHead>(&encode(message)).unwrap().unwrap().0,
                    *message
                );
            }
            let open = match opening(bytes) {
                Opening::Open(at) => {
                    assert!(at <= bytes.len());
                    0
                }
                Opening::Waiting => 1,
                Opening::Wrong(_) => 2,
            };
            (down.is_ok(), up.is_ok(), open)
        });
    }
}
