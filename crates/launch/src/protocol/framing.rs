//! Messages as frames, the greeting before them, and the queue of what waits to be sent.

use std::collections::VecDeque;

use serde::{Serialize, de::DeserializeOwned};

use super::{BANNER_MAX_BYTES, FRAME_MAX_BYTES, GREETING, PROTOCOL};

/// Encodes a message as a frame.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = vec![0; 4];
    // Fails only for types that postcard cannot encode. There are none among the messages.
    out = postcard::to_extend(message, out).unwrap_or_default();
    let len = (out.len() as u32).saturating_sub(4);
    if let Some(head) = out.first_chunk_mut::<4>() {
        *head = len.to_le_bytes();
    }
    out
}

/// Decodes the frame at the beginning of `bytes`. Returns the message and the frame's length, or
/// `None` if the frame is not complete.
///
/// # Errors
/// What is wrong with the frame. Nothing after it can be read.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*head) as usize;
    if len > FRAME_MAX_BYTES {
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

/// State of the bytes before the frames.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// The greeting is not complete.
    Waiting,
    /// The greeting is there. The frames begin at this offset.
    Open(usize),
    /// The bytes cannot become a greeting. The text says why.
    Wrong(String),
}

/// Looks for the greeting.
pub fn opening(bytes: &[u8]) -> Opening {
    let found = bytes
        .windows(GREETING.len())
        .position(|w| w == GREETING)
        .map(|at| at + GREETING.len());
    let Some(start) = found else {
        if bytes.len() > BANNER_MAX_BYTES {
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
            "its mpiexec is Ferry {version:?} with protocol {protocol:?}, and this one is {} with \
             protocol {PROTOCOL}; install the same on all hosts",
            env!("CARGO_PKG_VERSION")
        ))
    }
}

/// Bytes that wait to be sent.
#[derive(Default)]
pub struct SendQueue {
    bytes: VecDeque<u8>,
}

impl SendQueue {
    /// Adds a message.
    pub fn push<T: Serialize>(&mut self, message: &T) {
        self.bytes.extend(encode(message));
    }
    /// Adds bytes without a frame around them.
    pub fn push_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    /// Number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Writes what a non-blocking descriptor takes.
    ///
    /// # Errors
    /// The other side has closed the connection.
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
