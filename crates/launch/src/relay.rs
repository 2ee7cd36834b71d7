//! Sockets of ranks on other hosts whose other end is here, and the other way round: their bytes go
//! through the connection between mpiexec and the agent.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Most bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// The ends of relayed sockets in this process, by their numbers.
#[derive(Default)]
pub struct Relays {
    sockets: HashMap<u32, OwnedFd>,
    next: u32,
}

impl Relays {
    /// Takes a socket. `event`: the kind of its events in `poll`. Returns its number.
    pub fn add(&mut self, socket: OwnedFd, poll: &OwnedFd, event: u64) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let token = epoll::EventData::new_u64(event | u64::from(number));
        let _ = epoll::add(poll, &socket, token, epoll::EventFlags::IN);
        self.sockets.insert(number, socket);
        number
    }

    /// Reads what has come. Empty: the socket has ended, and is not relayed any more. `None`: there
    /// is nothing.
    pub fn read(&mut self, number: u32) -> Option<Vec<u8>> {
        let socket = self.sockets.get(&number)?;
        let mut bytes = vec![0; READ_BYTES];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        match rustix::net::recv(socket, bytes.as_mut_slice(), flags) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok((n, _)) if n > 0 => {
                bytes.truncate(n);
                Some(bytes)
            }
            _ => {
                self.sockets.remove(&number);
                Some(Vec::new())
            }
        }
    }

    /// Writes bytes; none close the socket. Blocks while the reader, a process of Ferry's, takes
    /// them.
    pub fn write(&mut self, number: u32, mut bytes: &[u8]) {
        if bytes.is_empty() {
            self.sockets.remove(&number);
            return;
        }
        let Some(socket) = self.sockets.get(&number) else {
            return;
        };
        while !bytes.is_empty() {
            match send(socket, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                // Reading finds that it has ended.
                Err(_) => return,
            }
        }
    }
}
