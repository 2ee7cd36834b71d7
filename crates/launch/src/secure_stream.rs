//! Encrypted connections of launchers, to each other and to the server of names: the handshake of
//! ferry-auth over TCP, then records.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use ferry_auth::{HEADER_BYTES, Handshake, HandshakeConfig, Identity, JobKey, Opener};
use ferry_auth::{Sealer, Session, Step, TAG_BYTES};

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// The configuration of who is connected to (process 0) or of who connects (process 1).
/// `purpose`: what the handshake calls these connections.
pub(crate) fn config(key: &JobKey, process: u32, purpose: u16) -> HandshakeConfig {
    let identity = Identity {
        job: 0,
        process,
        purpose,
        encrypt: true,
    };
    HandshakeConfig::new(key, identity)
}

/// The handshake of who has connected. Blocks until it is done.
///
/// # Errors
/// The other side has another key, or the connection breaks.
pub(crate) fn initiate(stream: &mut TcpStream, config: &HandshakeConfig) -> io::Result<Session> {
    let (begun, hello) = config.initiate(0).map_err(|e| wrong(e.to_string()))?;
    stream.write_all(&hello)?;
    finish(stream, config, begun)
}

/// The handshake of who was connected to. As [`initiate`].
pub(crate) fn respond(stream: &mut TcpStream, config: &HandshakeConfig) -> io::Result<Session> {
    finish(stream, config, config.respond())
}

fn finish(
    stream: &mut TcpStream,
    config: &HandshakeConfig,
    mut handshake: Handshake,
) -> io::Result<Session> {
    loop {
        let mut bytes = vec![0; handshake.missing_bytes()];
        stream.read_exact(&mut bytes)?;
        let step = handshake.feed(config, &mut &bytes[..]);
        match step.map_err(|e| wrong(format!("the handshake fails: {e}")))? {
            Step::More => {}
            Step::Send(message) => stream.write_all(&message)?,
            Step::Done(session, message) => {
                stream.write_all(&message)?;
                return Ok(session);
            }
        }
    }
}

/// Sends one record.
pub(crate) fn write_record(
    stream: &mut TcpStream,
    sealer: &mut Sealer,
    bytes: &[u8],
) -> io::Result<()> {
    let mut record = vec![0; HEADER_BYTES];
    record.extend(bytes);
    record.extend([0; TAG_BYTES]);
    sealer.seal(&mut record).map_err(|e| wrong(e.to_string()))?;
    stream.write_all(&record)
}

/// Blocks until a record has come; returns its bytes.
pub(crate) fn read_record(stream: &mut TcpStream, opener: &mut Opener) -> io::Result<Vec<u8>> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let body = ferry_auth::body_bytes(&header).map_err(|e| wrong(e.to_string()))?;
    let mut record = header.to_vec();
    record.resize(HEADER_BYTES + body, 0);
    stream.read_exact(&mut record[HEADER_BYTES..])?;
    let opened = opener.open(&mut record).map_err(|e| wrong(e.to_string()))?;
    Ok(opened.to_vec())
}
