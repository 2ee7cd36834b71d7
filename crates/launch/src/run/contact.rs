//! Where a launcher listens for those of other jobs, and how these find it.
//!
//! A *contact* is `JOB:NAME:KEY:ADDRESS,…`. NAME is that of a socket in the abstract namespace,
//! for launchers of the same user on the same host. The others use the addresses: a handshake of
//! ferry-auth by KEY, then encrypted records. Who has no key gets no answer, not one byte. Only
//! roots of groups that connect, and launchers, learn a contact.
//!
//! What goes through the network does so by threads, which pass it on to a socket pair: the
//! launcher waits for nobody.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use ferry_auth::{HandshakeConfig, JobKey, Session};
use ferry_job::interfaces;

use super::names::{address, is_own};
use crate::secure_stream::{config, initiate, read_record, respond, write_record};

/// What the handshake calls these connections.
const PURPOSE: u16 = 0x201;
/// How long another launcher may take to connect, or to take what it is sent. A choice: it reads
/// several times a second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most connections that are not established yet. A choice: strangers cost threads.
const UNESTABLISHED_MAX: usize = 16;
/// Bytes of a thread's stack.
const STACK_BYTES: usize = 128 << 10;
/// Bytes of a record.
const RECORD_BYTES: usize = 8 << 10;

/// Where this launcher listens in the network, and its connections there.
#[derive(Default)]
pub(super) struct Network {
    sockets: Vec<TcpListener>,
    config: Option<Arc<HandshakeConfig>>,
    key: String,
    tunnels: Vec<Tunnel>,
}

/// A connection through the network.
struct Tunnel {
    /// The handshake is done.
    established: Arc<AtomicBool>,
    /// What sends.
    sender: JoinHandle<()>,
}

/// The job of a contact.
pub(super) fn job_of(contact: &str) -> Option<u64> {
    u64::from_str_radix(contact.split_once(':')?.0, 16).ok()
}

impl Network {
    /// Where others find the launcher of job `job`, whose socket on this host has this name. It
    /// listens from now on. Where it cannot, it is found on this host only.
    pub fn contact(&mut self, job: u64, name: &str) -> String {
        if self.config.is_none()
            && let Ok(key) = JobKey::random()
        {
            self.key = key.to_hex().as_str().to_string();
            self.config = Some(Arc::new(config(&key, 0, PURPOSE)));
            let setting = std::env::var("FERRY_TCP_IF").ok();
            let all = interfaces::all().unwrap_or_default();
            let chosen = interfaces::choose(&all, setting.as_deref(), false);
            for address in chosen.unwrap_or_default() {
                if let Ok(socket) = TcpListener::bind((address.ip, 0))
                    && socket.set_nonblocking(true).is_ok()
                {
                    self.sockets.push(socket);
                }
            }
        }
        let addresses = self.sockets.iter().filter_map(|s| s.local_addr().ok());
        let addresses: Vec<String> = addresses.map(|a| a.to_string()).collect();
        format!("{job:x}:{name}:{}:{}", self.key, addresses.join(","))
    }

    /// A launcher that has connected. What it says comes once it has shown the key.
    pub fn accept(&mut self) -> Option<UnixStream> {
        let config = self.config.clone()?;
        let mut sockets = self.sockets.iter();
        let (stream, _) = sockets.find_map(|s| s.accept().ok())?;
        self.tunnels.retain(|t| !t.sender.is_finished());
        let unknown = |t: &&Tunnel| !t.established.load(Ordering::Relaxed);
        if self.tunnels.iter().filter(unknown).count() >= UNESTABLISHED_MAX {
            return None;
        }
        let tunnel = self.tunnel(move || {
            let mut stream = prepared(stream)?;
            let session = respond(&mut stream, &config)?;
            Ok((stream, session))
        });
        tunnel.ok()
    }

    /// Connects to the launcher of a contact. Is it on this host?
    pub fn connect(&mut self, contact: &str) -> Option<(UnixStream, bool)> {
        let mut parts = contact.splitn(4, ':').skip(1);
        let (name, key, list) = (parts.next()?, parts.next()?, parts.next()?);
        let here = address(name).and_then(|at| UnixStream::connect_addr(&at));
        if let Ok(stream) = here
            && is_own(&stream)
        {
            return Some((stream, true));
        }
        let key = JobKey::from_hex(key).ok()?;
        let all: Vec<SocketAddr> = list.split(',').filter_map(|a| a.parse().ok()).collect();
        let tunnel = self.tunnel(move || {
            let mut found = Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            for at in &all {
                found = TcpStream::connect_timeout(at, TIMEOUT);
                if found.is_ok() {
                    break;
                }
            }
            let mut stream = prepared(found?)?;
            let session = initiate(&mut stream, &config(&key, 1, PURPOSE))?;
            Ok((stream, session))
        });
        Some((tunnel.ok()?, false))
    }

    /// One end of a socket pair, whose other end goes through the connection that `connect` makes
    /// in a thread.
    fn tunnel(
        &mut self,
        connect: impl FnOnce() -> io::Result<(TcpStream, Session)> + Send + 'static,
    ) -> io::Result<UnixStream> {
        let (near, far) = UnixStream::pair()?;
        let established = Arc::new(AtomicBool::new(false));
        let is_established = established.clone();
        let sender = thread("ferry-peer-out", move || {
            if let Ok((stream, session)) = connect() {
                is_established.store(true, Ordering::Relaxed);
                // If it breaks, the other end of the pair ends.
                let _ = relay(stream, session, &far);
            }
            let _ = far.shutdown(std::net::Shutdown::Both);
        })?;
        self.tunnels.push(Tunnel {
            established,
            sender,
        });
        Ok(near)
    }

    /// Waits until what was said is sent. The near ends of all tunnels are closed before.
    pub fn finish(&mut self) {
        self.sockets.clear();
        for tunnel in self.tunnels.drain(..) {
            if tunnel.established.load(Ordering::Relaxed) {
                let _ = tunnel.sender.join();
            }
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let builder = Builder::new().name(name.into());
    builder.stack_size(STACK_BYTES).spawn(run)
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

/// Passes on what comes from either side, until one ends.
fn relay(mut stream: TcpStream, session: Session, far: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    let (mut sealer, mut opener) = session.records();
    let (mut incoming, mut taker) = (stream.try_clone()?, far.try_clone()?);
    let _receiver = thread("ferry-peer-in", move || {
        while let Ok(bytes) = read_record(&mut incoming, &mut opener) {
            if taker.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = taker.shutdown(std::net::Shutdown::Both);
    })?;
    let mut far = far;
    let mut buffer = vec![0; RECORD_BYTES];
    loop {
        match far.read(&mut buffer)? {
            0 => break,
            n => write_record(&mut stream, &mut sealer, &buffer[..n])?,
        }
    }
    // Not before the other side has all.
    stream.shutdown(std::net::Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two launchers that find each other through the network only.
    #[test]
    fn launchers_speak_through_the_network() {
        let mut accepts = Network::default();
        let contact = accepts.contact(0x1f, "nobody-listens-by-this-name");
        assert_eq!(job_of(&contact), Some(0x1f));
        let mut calls = Network::default();
        let (mut there, is_local) = calls.connect(&contact).unwrap();
        assert!(!is_local);
        let mut here = loop {
            if let Some(stream) = accepts.accept() {
                break stream;
            }
            std::thread::yield_now();
        };
        for (mut from, mut to) in [(&there, &here), (&here, &there)] {
            from.write_all(b"hello").unwrap();
            let mut heard = [0; 5];
            to.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello");
        }
        there.write_all(b"last").unwrap();
        drop(there);
        calls.finish();
        let mut rest = String::new();
        here.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "last");
    }

    #[test]
    fn who_has_another_key_gets_nothing() {
        let mut accepts = Network::default();
        let contact = accepts.contact(1, "nobody-listens-by-this-name");
        let mut parts: Vec<&str> = contact.splitn(4, ':').collect();
        let other = JobKey::random().unwrap().to_hex().as_str().to_string();
        parts[2] = &other;
        let (there, _) = Network::default().connect(&parts.join(":")).unwrap();
        let here = loop {
            if let Some(stream) = accepts.accept() {
                break stream;
            }
            std::thread::yield_now();
        };
        for mut end in [&here, &there] {
            assert_eq!(end.read(&mut [0; 1]).unwrap(), 0);
        }
    }
}
