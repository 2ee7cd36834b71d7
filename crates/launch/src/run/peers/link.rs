//! A connection to another launcher: messages, each behind its length. Nobody is waited for.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::HELLO;

/// Longest message, bytes.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
/// Most bytes that wait for a launcher which does not read. It is then not spoken to any more.
const UNSENT_MAX_BYTES: usize = 4 << 20;

/// A connection to another launcher.
pub(super) struct Link {
    /// Its job, once it has said it.
    pub job: Option<u64>,
    /// `None`: it has ended.
    pub stream: Option<UnixStream>,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// On this host: if it breaks, the other launcher has ended.
    pub is_local: bool,
}

impl Link {
    pub fn new(stream: UnixStream, is_local: bool, own: u64) -> Link {
        let _ = stream.set_nonblocking(true);
        let mut link = Link {
            job: None,
            stream: Some(stream),
            received: Vec::new(),
            unsent: Vec::new(),
            is_local,
        };
        link.send(&[HELLO, format!("{own:x}").as_bytes()].concat());
        link
    }

    /// Sends a message, now or when the other side takes it.
    pub fn send(&mut self, message: &[u8]) {
        self.unsent.extend((message.len() as u32).to_le_bytes());
        self.unsent.extend(message);
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(stream) = &mut self.stream
            && !self.unsent.is_empty()
        {
            match stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // What the other side has said before it ended is still to be read.
                Err(_) => self.unsent.clear(),
            }
        }
        if self.unsent.len() > UNSENT_MAX_BYTES {
            self.is_local = false;
            self.stream = None;
        }
    }

    /// The messages that have come.
    pub fn messages(&mut self) -> Vec<Vec<u8>> {
        self.flush();
        let mut buffer = [0; 16 << 10];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.received.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => self.stream = None,
            }
        }
        let mut found = Vec::new();
        while let Some((len, rest)) = self.received.split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > MESSAGE_MAX_BYTES {
                self.is_local = false;
                self.stream = None;
                self.received.clear();
                break;
            }
            if rest.len() < len {
                break;
            }
            found.push(rest[..len].to_vec());
            self.received.drain(..4 + len);
        }
        found
    }
}
