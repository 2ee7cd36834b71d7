//! What a connection makes of how its bytes arrive.

use super::*;
use crate::ProcId;
use crate::connected::conn::Path;
use crate::connected::conn::frame::{DIRECT_MIN_BYTES, Kind, header};
use crate::tcp::socket;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Takes long messages as they come.
#[derive(Default)]
struct Direct {
    bytes: Vec<u8>,
    filled: usize,
    whole: usize,
}

impl Inbox for Direct {
    fn on_message(&mut self, _from: ProcId, _message: u8, _bytes: &[u8]) -> bool {
        self.whole += 1;
        false
    }
    fn on_message_start(&mut self, _: ProcId, _: u8, _: &[u8], _: usize) -> Option<usize> {
        Some(0)
    }
    fn stream_buffer(&mut self, _: ProcId, _: u8, _: &[u8], left: usize) -> Option<&mut [u8]> {
        self.bytes.resize(self.filled + left, 0);
        Some(&mut self.bytes[self.filled..])
    }
    fn stream_written(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: usize) {
        self.filled += bytes;
    }
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: &[u8]) {
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(bytes);
        self.filled += bytes.len();
    }
}

/// A connection, and the socket at its other end.
fn connection() -> (Conn, OwnedFd) {
    let limit = Duration::from_secs(5);
    let ip: IpAddr = "127.0.0.1".parse().unwrap();
    let (listening, port) = socket::listener(ip).unwrap();
    let far = socket::start_connect(SocketAddr::new(ip, port), limit).unwrap();
    let near = socket::accept(&listening, limit).unwrap().unwrap();
    let path = Path {
        medium: 0,
        node: 0,
        ops: &crate::tcp::TcpOps,
    };
    (Conn::new(1, path, near, None), far)
}

fn send(far: &OwnedFd, bytes: &[u8]) {
    let flags = rustix::net::SendFlags::empty();
    assert_eq!(rustix::net::send(far, bytes, flags).unwrap(), bytes.len());
}

#[test]
fn parts_of_one_message_are_no_burst_and_nothing_is_read_before_the_next_begins() {
    const BODY: usize = 4 * DIRECT_MIN_BYTES;
    let (mut conn, far) = connection();
    let (mut scratch, mut inbox) = (vec![0; SCRATCH_BYTES], Direct::default());
    conn.set_read_mode(ReadMode::Busy);
    let message = [&header(Kind::Whole, 1, 0, BODY)[..], &[7; BODY]].concat();
    for n in 1..4 {
        for part in [&message[..BODY / 2], &message[BODY / 2..]] {
            assert!(!conn.brings_bursts());
            send(&far, part);
            conn.receive(&mut scratch, &mut inbox).unwrap();
            assert!(conn.brings_bulk() == (n > 1 || part.len() > BODY / 2));
        }
        assert_eq!((inbox.filled, inbox.whole), (n * BODY, 0));
        assert!(!conn.is_empty(), "more may have come behind the last bytes");
        assert_eq!(conn.receive(&mut scratch, &mut inbox).unwrap().delivered, 0);
        assert!(conn.is_empty());
    }
    send(&far, &message[..100]);
    assert!(!conn.is_empty(), "the next one has begun");
    conn.receive(&mut scratch, &mut inbox).unwrap();
    conn.receive(&mut scratch, &mut inbox).unwrap();
    assert!(!conn.is_empty(), "it is read from until it is complete");
    send(&far, &[&message[100..], &message[..]].concat());
    conn.receive(&mut scratch, &mut inbox).unwrap();
    conn.receive(&mut scratch, &mut inbox).unwrap();
    assert_eq!(inbox.filled, 5 * BODY);
}

#[test]
fn several_messages_at_once_are_a_burst() {
    let (mut conn, far) = connection();
    let (mut scratch, mut inbox) = (vec![0; SCRATCH_BYTES], Direct::default());
    let message = [&header(Kind::Whole, 1, 0, 1000)[..], &[7; 1000]].concat();
    send(&far, &[&message[..], &message].concat());
    conn.receive(&mut scratch, &mut inbox).unwrap();
    assert!(conn.brings_bursts() && inbox.whole == 2);
}
