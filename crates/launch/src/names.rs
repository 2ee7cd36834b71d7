//! Published names between jobs (MPI 5.0 §11.10.4): the server `ferry names`, and how launchers ask
//! it.
//!
//! A question is one connection: the handshake of ferry-auth by the server's key, then one record
//! with the question and one with the answer. Names of ports hold tickets, so all is encrypted. The
//! key lies in a file that only its user can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ferry_auth::{HandshakeConfig, JobKey};
use ferry_job::{NameRequest, NameStore, encode_answer};

use crate::secure_stream::{config, initiate, read_record, respond, write_record};

/// The environment variable with the server's address.
pub const NAMES: &str = "FERRY_NAMES";
/// The environment variable with the file of the server's key.
pub const NAMES_KEY: &str = "FERRY_NAMES_KEY";
/// What the handshake calls these connections.
const PURPOSE: u16 = 0x200;
/// How long the other side of a connection may take. A choice: it answers at once.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at once. A choice: a question takes a millisecond.
const CONNECTIONS_MAX: usize = 64;

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// The file of the server's key.
fn key_file() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    match std::env::var_os(NAMES_KEY).filter(|f| !f.is_empty()) {
        Some(file) => file.into(),
        None => home().join(".ferry-names.key"),
    }
}

fn read_key(file: &Path) -> io::Result<JobKey> {
    let text = fs::read_to_string(file)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
    JobKey::from_hex(text.trim()).map_err(|_| wrong(format!("{} holds no key", file.display())))
}

/// The server's key, which is made if there is none.
fn own_key(file: &Path) -> io::Result<JobKey> {
    let key = JobKey::random().map_err(|e| wrong(e.to_string()))?;
    let new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    match new {
        Ok(mut new) => {
            writeln!(new, "{}", key.to_hex().as_str())?;
            Ok(key)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => read_key(file),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", file.display()))),
    }
}

fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)
}

/// Asks the server at `address`. Blocks until the answer is here, for seconds at most.
///
/// Errors: the server is not there, or refuses.
pub fn ask(address: &str, question: &[u8]) -> io::Result<Vec<u8>> {
    let key = read_key(&key_file())?;
    let mut all = address.to_socket_addrs()?;
    let at = all
        .next()
        .ok_or_else(|| wrong(format!("{address} is no address")))?;
    let mut stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
    set_timeouts(&stream)?;
    let session = initiate(&mut stream, &config(&key, 1, PURPOSE))?;
    let (mut sealer, mut opener) = session.records();
    write_record(&mut stream, &mut sealer, question)?;
    read_record(&mut stream, &mut opener)
}

/// The names of a server, and the file in which they outlive it.
struct Server {
    config: HandshakeConfig,
    names: Mutex<NameStore>,
    file: PathBuf,
    connections: AtomicUsize,
}

/// Names are written as hexadecimal digits: they may hold any character.
fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<String> {
    let digits = text.as_bytes().chunks(2);
    let byte = |d: &[u8]| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok();
    String::from_utf8(digits.map(byte).collect::<Option<_>>()?).ok()
}

fn load(file: &Path) -> io::Result<NameStore> {
    let mut names = NameStore::default();
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", file.display()))),
    };
    for line in text.lines() {
        let both = line.split_once(' ');
        let both = both.and_then(|(name, port)| Some((unhex(name)?, port.to_string())));
        let (service, port) =
            both.ok_or_else(|| wrong(format!("{} is no file of names", file.display())))?;
        names.ask(&NameRequest::Publish { service, port });
    }
    Ok(names)
}

impl Server {
    /// Writes all names to a new file that then takes the old one's place.
    fn save(&self, names: &NameStore) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        for (name, port) in names.iter() {
            writeln!(file, "{} {port}", hex(name))?;
        }
        File::sync_all(&file)?;
        fs::rename(new, &self.file)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        set_timeouts(&stream)?;
        let session = respond(&mut stream, &self.config)?;
        let (mut sealer, mut opener) = session.records();
        let question = read_record(&mut stream, &mut opener)?;
        let request = NameRequest::decode(&question).map_err(|e| wrong(e.to_string()))?;
        let answer = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            let before = names.clone();
            let answer = names.ask(&request);
            // What is not in the file would be lost with the server.
            if *names != before
                && let Err(e) = self.save(&names)
            {
                *names = before;
                return Err(e);
            }
            answer
        };
        write_record(&mut stream, &mut sealer, &encode_answer(&answer))
    }
}

/// Runs the name server until it is killed: listens at `address`, keeps the names in `file`. Prints
/// the address once it listens.
///
/// # Errors
/// The address cannot be listened at, or a file cannot be used.
pub fn serve(address: &str, file: Option<PathBuf>) -> io::Result<()> {
    let key_file = key_file();
    let server = Server {
        config: config(&own_key(&key_file)?, 0, PURPOSE),
        file: file.unwrap_or_else(|| key_file.with_extension("list")),
        names: Mutex::default(),
        connections: AtomicUsize::new(0),
    };
    *server.names.lock().unwrap_or_else(PoisonError::into_inner) = load(&server.file)?;
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    io::stdout().flush()?;
    std::thread::scope(|threads| {
        for stream in listener.incoming().flatten() {
            let server = &server;
            if server.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                server.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            threads.spawn(move || {
                // Who has no key gets no answer; what else is wrong concerns who asks alone.
                let _ = server.serve(stream);
                server.connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_the_server() {
        let folder = std::env::temp_dir().join(format!("ferry-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("names");
        let server = Server {
            config: config(&JobKey::from_bytes(&[1; 32]), 0, PURPOSE),
            file: file.clone(),
            names: Mutex::default(),
            connections: AtomicUsize::new(0),
        };
        let mut names = NameStore::default();
        for service in ["a", "with a space\nand a line", "ö"] {
            let port = "ferry2:AAAA".to_string();
            let service = service.to_string();
            names.ask(&NameRequest::Publish { service, port });
        }
        server.save(&names).unwrap();
        assert_eq!(load(&file).unwrap(), names);
        fs::write(&file, "nonsense\n").unwrap();
        assert!(load(&file).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
