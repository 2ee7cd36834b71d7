//! What a rank asks of its launcher when it starts processes (MPI_Comm_spawn), and the socket to
//! the launcher of these processes.
//!
//! ```text
//! rank ── order ──▶ mpiexec --ferry-spawn     u32 bytes, then the order
//!      ── C ──────▶                           the processes have connected
//!      ── D ──────▶                           they are independent from now on
//!      ◀── F text ─                           they cannot be started, or have died before D: u32
//!                                             bytes, then why
//!      ◀── E ──────                           all of them have ended, and none has failed
//! ```
//!
//! If the socket is closed without `D`, the rank has died. The launcher then ends the processes.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::rank_info::{Input, Malformed};

/// Longest encoded order, bytes. Linux allows 6 MiB of arguments and variables for a program.
const ORDER_MAX_BYTES: u32 = 32 << 20;
/// Longest text of an `F` message, bytes.
const REASON_MAX_BYTES: u32 = 64 << 10;

/// The processes that one MPI_Comm_spawn or MPI_Comm_spawn_multiple starts (MPI 5.0 §11.8).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SpawnOrder {
    /// The name of the port to which the processes connect in MPI_Init.
    pub port: String,
    /// The programs, in order of their ranks.
    pub programs: Vec<SpawnProgram>,
}

/// One program of an order, with the values of its info keys (MPI 5.0 §11.8.4).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SpawnProgram {
    /// A path, or a name to look for in `path`.
    pub command: Vec<u8>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// Number of processes.
    pub count: u32,
    /// Working directory.
    pub wdir: Vec<u8>,
    /// Hosts, as of mpiexec's option --host. Empty: the launcher's.
    pub hosts: Vec<u8>,
    /// A file of hosts, as of mpiexec's option --hostfile. Empty: none.
    pub host_file: Vec<u8>,
    /// Folders in which the command is looked for, separated by colons. Empty: PATH.
    pub path: Vec<u8>,
    /// Variables: name, "=", value.
    pub variables: Vec<Vec<u8>>,
}

impl SpawnOrder {
    /// Encodes the order, for [`SpawnOrder::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.port.as_bytes());
        out.extend((self.programs.len() as u32).to_le_bytes());
        for program in &self.programs {
            put(&mut out, &program.command);
            out.extend(program.count.to_le_bytes());
            for text in [
                &program.wdir,
                &program.hosts,
                &program.host_file,
                &program.path,
            ] {
                put(&mut out, text);
            }
            for list in [&program.arguments, &program.variables] {
                out.extend((list.len() as u32).to_le_bytes());
                list.iter().for_each(|text| put(&mut out, text));
            }
        }
        out
    }

    /// Decodes what [`SpawnOrder::encode`] has encoded.
    ///
    /// # Errors
    /// The bytes are no order.
    pub fn decode(bytes: &[u8]) -> Result<SpawnOrder, Malformed> {
        let mut input = Input::new(bytes);
        let port = String::from_utf8_lossy(&take(&mut input)?).into_owned();
        let count = input.u32("the number of programs")?;
        let mut programs = Vec::new();
        for _ in 0..count {
            let command = take(&mut input)?;
            let count = input.u32("the number of processes")?;
            let [wdir, hosts, host_file, path] = [
                take(&mut input)?,
                take(&mut input)?,
                take(&mut input)?,
                take(&mut input)?,
            ];
            let (arguments, variables) = (list(&mut input)?, list(&mut input)?);
            programs.push(SpawnProgram {
                command,
                arguments,
                count,
                wdir,
                hosts,
                host_file,
                path,
                variables,
            });
        }
        Ok(SpawnOrder { port, programs })
    }
}

fn put(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}

fn take(input: &mut Input<'_>) -> Result<Vec<u8>, Malformed> {
    let len = input.u32("a text")?;
    input.bytes(len as usize, "a text").map(<[u8]>::to_vec)
}

fn list(input: &mut Input<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let count = input.u32("a list")?;
    (0..count).map(|_| take(input)).collect()
}

/// The rank's end of the socket to the launcher of the processes that it starts. If it is dropped
/// without [`SpawnSocket::release`], the launcher ends the processes.
#[derive(Debug)]
pub struct SpawnSocket {
    socket: UnixStream,
    received: Vec<u8>,
}

/// What the launcher of started processes has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpawnNews {
    /// Nothing so far.
    Nothing,
    /// The processes cannot be started, or have died, for this reason.
    Failed(String),
    /// All of them have ended, and none has failed.
    Ended,
}

impl SpawnSocket {
    /// Makes a pair: the rank's end, and the one that the launcher inherits.
    ///
    /// # Errors
    /// The limit on open files is reached.
    pub fn pair() -> std::io::Result<(SpawnSocket, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let socket = SpawnSocket {
            socket: ours,
            received: Vec::new(),
        };
        Ok((socket, theirs.into()))
    }

    /// Sends the order. Blocks until the launcher has read most of it.
    ///
    /// # Errors
    /// The launcher has gone.
    pub fn order(&mut self, order: &SpawnOrder) -> std::io::Result<()> {
        let bytes = order.encode();
        self.socket.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.socket.write_all(&bytes)
    }

    /// The launcher's next message. Never blocks.
    pub fn news(&mut self) -> SpawnNews {
        let mut bytes = [0; 4096];
        let _ = self.socket.set_nonblocking(true);
        let gone = loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => break true,
                Ok(n) => self.received.extend(&bytes[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => break e.kind() != std::io::ErrorKind::WouldBlock,
            }
        };
        let _ = self.socket.set_nonblocking(false);
        if let Some((b'F', rest)) = self.received.split_first()
            && let Some((len, text)) = rest.split_first_chunk()
        {
            let len = u32::from_le_bytes(*len).min(REASON_MAX_BYTES) as usize;
            if text.len() >= len {
                return SpawnNews::Failed(String::from_utf8_lossy(&text[..len]).into_owned());
            }
        }
        if self.received.first() == Some(&b'E') {
            return SpawnNews::Ended;
        }
        match gone {
            true => SpawnNews::Failed("their launcher (mpiexec) has ended".into()),
            false => SpawnNews::Nothing,
        }
    }

    /// Tells the launcher that the processes have connected.
    pub fn connected(&mut self) {
        // A launcher that is gone has ended them.
        let _ = self.socket.write_all(b"C");
    }

    /// Makes the processes independent of this one: they continue when it ends.
    pub fn release(mut self) {
        let _ = self.socket.write_all(b"D");
    }
}

impl AsFd for SpawnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The launcher's end of the socket.
#[derive(Debug)]
pub struct ParentSocket {
    socket: UnixStream,
}

/// A message of the rank that has ordered processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentNews {
    /// Nothing now.
    Nothing,
    /// The processes have connected to the rank's port.
    Connected,
    /// The processes are independent: they continue when the rank ends.
    Released,
    /// The rank has died.
    Died,
}

impl ParentSocket {
    /// From the descriptor that the launcher has inherited.
    pub fn new(socket: OwnedFd) -> ParentSocket {
        ParentSocket {
            socket: socket.into(),
        }
    }

    /// Reads the order. Blocks until it is here.
    ///
    /// # Errors
    /// The rank has gone, or the bytes are no order.
    pub fn order(&mut self) -> std::io::Result<SpawnOrder> {
        let wrong = |e: String| std::io::Error::new(std::io::ErrorKind::InvalidData, e);
        let mut len = [0; 4];
        self.socket.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        if len > ORDER_MAX_BYTES {
            return Err(wrong(format!("an order of {len} bytes is too long")));
        }
        let mut bytes = vec![0; len as usize];
        self.socket.read_exact(&mut bytes)?;
        SpawnOrder::decode(&bytes).map_err(|e| wrong(e.to_string()))
    }

    /// Tells the rank that the processes cannot be started, or have died, and why.
    pub fn failed(&mut self, why: &str) {
        let mut end = why.len().min(REASON_MAX_BYTES as usize);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        let mut message = vec![b'F'];
        message.extend((end as u32).to_le_bytes());
        message.extend(&why.as_bytes()[..end]);
        // A rank that is gone needs no reason.
        let _ = self.socket.write_all(&message);
    }

    /// Tells the rank that all processes have ended, and none has failed.
    pub fn ended(&mut self) {
        let _ = self.socket.write_all(b"E");
    }

    /// The rank's next message. Never blocks.
    pub fn news(&mut self) -> ParentNews {
        let mut byte = [0];
        let _ = self.socket.set_nonblocking(true);
        let read = self.socket.read(&mut byte);
        let _ = self.socket.set_nonblocking(false);
        match read {
            Ok(0) => ParentNews::Died,
            Ok(_) if byte == *b"C" => ParentNews::Connected,
            Ok(_) if byte == *b"D" => ParentNews::Released,
            Ok(_) => ParentNews::Nothing,
            Err(e) => match e.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {
                    ParentNews::Nothing
                }
                _ => ParentNews::Died,
            },
        }
    }
}

impl AsFd for ParentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> SpawnOrder {
        SpawnOrder {
            port: "ferry2:AAAA".into(),
            programs: vec![
                SpawnProgram {
                    command: b"./worker".into(),
                    arguments: vec![b"a b".into(), b"".into()],
                    count: 3,
                    wdir: b"/tmp".into(),
                    hosts: b"a:2,b".into(),
                    host_file: b"".into(),
                    path: b"/bin:/usr/bin".into(),
                    variables: vec![b"A=1".into()],
                },
                SpawnProgram::default(),
            ],
        }
    }

    #[test]
    fn orders_and_news_come_through_the_socket() {
        let (mut rank, launcher) = SpawnSocket::pair().unwrap();
        let mut launcher = ParentSocket::new(launcher);
        rank.order(&order()).unwrap();
        assert_eq!(launcher.order().unwrap(), order());
        assert_eq!(rank.news(), SpawnNews::Nothing);
        assert_eq!(launcher.news(), ParentNews::Nothing);
        rank.connected();
        assert_eq!(launcher.news(), ParentNews::Connected);
        launcher.failed("why ö");
        assert_eq!(rank.news(), SpawnNews::Failed("why ö".into()));
        rank.release();
        assert_eq!(launcher.news(), ParentNews::Released);
        assert_eq!(launcher.news(), ParentNews::Died);
        let (mut rank, launcher) = SpawnSocket::pair().unwrap();
        drop(launcher);
        assert!(matches!(rank.news(), SpawnNews::Failed(_)));
        let (mut rank, launcher) = SpawnSocket::pair().unwrap();
        ParentSocket::new(launcher).ended();
        assert_eq!(rank.news(), SpawnNews::Ended);
    }

    #[test]
    fn fuzz_orders() {
        let seeds = [order().encode(), SpawnOrder::default().encode()];
        ferry_fuzz::fuzz("orders of processes", &seeds, |bytes| {
            SpawnOrder::decode(bytes).is_ok()
        });
    }
}
