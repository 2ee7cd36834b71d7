//! Frames that are cut anywhere, and bytes that are no frames.

use super::*;
use ferry_fuzz::fuzz;

/// Keeps what is delivered. Names a buffer for streams whose number is even.
#[derive(Default)]
struct Keep {
    whole: Vec<(u8, Vec<u8>)>,
    streams: Vec<u8>,
    direct: Vec<u8>,
    filled: usize,
}

impl Inbox for Keep {
    fn on_message(&mut self, _from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.whole.push((message, bytes.to_vec()));
        false
    }
    fn stream_buffer(
        &mut self,
        _from: ProcId,
        message: u8,
        _head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        if message % 2 == 1 {
            return None;
        }
        self.direct.resize(self.filled + left.min(1000), 0);
        Some(&mut self.direct[self.filled..])
    }
    fn stream_written(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: usize) {
        self.filled += bytes;
        self.direct.truncate(self.filled);
    }
    fn stream_part(&mut self, _from: ProcId, message: u8, _head: &[u8], bytes: &[u8]) {
        if message.is_multiple_of(2) {
            self.direct.truncate(self.filled);
            self.direct.extend_from_slice(bytes);
            self.filled += bytes.len();
        } else {
            self.streams.extend_from_slice(bytes);
        }
    }
}

fn bytes_of(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(7).wrapping_add(salt))
        .collect()
}

fn whole(message: u8, body: &[u8]) -> Vec<u8> {
    [&header(Kind::Whole, message, 0, body.len())[..], body].concat()
}

fn stream(message: u8, head: &[u8], body: &[u8]) -> Vec<u8> {
    let start = header(Kind::Stream, message, head.len(), head.len() + body.len());
    [&start[..], head, body].concat()
}

/// Gives `bytes` to a reader as a socket would: at most `piece` at once, into the space that the
/// reader names.
fn deliver(bytes: &[u8], piece: usize, keep: &mut Keep) -> Result<Found, &'static str> {
    deliver_to(bytes, piece, keep)
}

fn deliver_to(bytes: &[u8], piece: usize, keep: &mut dyn Inbox) -> Result<Found, &'static str> {
    let (mut reader, mut all) = (Reader::new(), Found::default());
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = piece.min(rest.len());
        let place = reader.space(0, keep).map(|space| {
            let n = n.min(space.bytes.len());
            space.bytes[..n].copy_from_slice(&rest[..n]);
            (space.filled, n)
        });
        let (found, n) = match place {
            Some((filled, n)) => (reader.filled(0, keep, filled, n)?, n),
            None => (reader.feed(0, &rest[..n], keep)?, n),
        };
        all.delivered += found.delivered;
        all.opened |= found.opened;
        all.close_notify = found.close_notify;
        rest = &rest[n..];
    }
    Ok(all)
}

#[test]
fn frames_come_out_as_they_went_in_however_they_are_cut() {
    let large = bytes_of(5000, 1);
    let wire = [
        header(Kind::Open, 0, 0, 0).to_vec(),
        whole(1, b""),
        whole(2, b"hello"),
        stream(4, &[1, 2, 3, 4], &large),
        stream(5, &[9], &large),
        whole(3, &large),
        header(Kind::CloseNotify, 0, 0, 0).to_vec(),
    ]
    .concat();
    for piece in [1, 2, 3, 7, 8, 9, 100, 4096, 5012, wire.len()] {
        let mut keep = Keep::default();
        let found = deliver(&wire, piece, &mut keep).unwrap();
        assert!(found.opened && found.close_notify, "pieces of {piece}");
        let expected = [(1, Vec::new()), (2, b"hello".to_vec()), (3, large.clone())];
        assert_eq!(keep.whole, expected, "pieces of {piece}");
        assert_eq!(
            (&keep.direct, &keep.streams),
            (&large, &large),
            "pieces of {piece}"
        );
    }
}

/// Takes whole messages as they come, and appends their bodies to each other.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    filled: usize,
    begun: usize,
    whole: usize,
    /// Offers that are still to be refused: no receive is posted yet.
    refuses: usize,
}

impl Inbox for Early {
    fn on_message(&mut self, _from: ProcId, _message: u8, bytes: &[u8]) -> bool {
        self.whole += 1;
        self.stream_part(0, 0, &[], &bytes[4..]);
        false
    }
    fn on_message_start(
        &mut self,
        _from: ProcId,
        _message: u8,
        start: &[u8],
        len: usize,
    ) -> Option<usize> {
        if start.len() < 4 {
            return None;
        }
        assert!(len > start.len());
        if self.refuses > 0 {
            self.refuses -= 1;
            return None;
        }
        self.begun += 1;
        Some(4)
    }
    fn stream_buffer(&mut self, _: ProcId, _: u8, head: &[u8], left: usize) -> Option<&mut [u8]> {
        assert_eq!(head, b"head");
        self.bytes.resize(self.filled + left, 0);
        Some(&mut self.bytes[self.filled..])
    }
    fn stream_written(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: usize) {
        self.filled += bytes;
        self.bytes.truncate(self.filled);
    }
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: &[u8]) {
        self.bytes.truncate(self.filled);
        self.bytes.extend_from_slice(bytes);
        self.filled += bytes.len();
    }
}

#[test]
fn a_large_whole_message_can_be_taken_as_it_comes() {
    let large = bytes_of(DIRECT_MIN_BYTES + 1000, 1);
    let body = [b"head", &large[..]].concat();
    let wire = [
        whole(2, b"headhello"),
        whole(1, &body),
        whole(1, &body),
        whole(2, b"headbye"),
    ]
    .concat();
    let expected = [b"hello", &large[..], &large[..], b"bye"].concat();
    for piece in [1, 7, 11, 12, 13, 100, 9000, wire.len()] {
        let mut inbox = Early::default();
        deliver_to(&wire, piece, &mut inbox).unwrap();
        inbox.bytes.truncate(inbox.filled);
        assert!(inbox.bytes == expected, "pieces of {piece}");
        assert_eq!(inbox.begun + inbox.whole, 4, "pieces of {piece}");
        // The head has come and the rest has not, so both are taken as they come.
        let early = [12, 13, 100].contains(&piece);
        assert!(!early || inbox.begun > 0, "pieces of {piece}");
    }
}

#[test]
fn a_large_whole_message_is_taken_when_its_receive_comes_late() {
    let large = bytes_of(DIRECT_MIN_BYTES + 1000, 1);
    let first = whole(1, &[b"head", &large[..]].concat());
    let wire = [&first[..], &whole(2, b"headbye")].concat();
    for piece in [13, 100, 1000, 5000] {
        for refuses in 0..4 {
            let mut inbox = Early {
                refuses,
                ..Early::default()
            };
            deliver_to(&wire, piece, &mut inbox).unwrap();
            inbox.bytes.truncate(inbox.filled);
            assert!(
                inbox.bytes == [&large[..], b"bye"].concat(),
                "pieces of {piece}"
            );
            // A message is offered when its beginning has come, and before each further read.
            let begun = usize::from(refuses < first.len().div_ceil(piece));
            assert_eq!(inbox.begun, begun, "pieces of {piece}, {refuses} times");
        }
    }
}

#[test]
fn what_is_no_frame_is_refused() {
    let mark = |mut h: [u8; HEADER_BYTES]| {
        h[7] ^= 1;
        h
    };
    for bad in [
        mark(header(Kind::Whole, 1, 0, 3)),
        header(Kind::Whole, 1, 1, 3),
        header(Kind::Whole, 1, 0, WHOLE_MAX_BYTES + 1),
        header(Kind::Stream, 1, HEAD_MAX_BYTES + 1, 1000),
        header(Kind::Stream, 1, 4, 4),
        header(Kind::Stream, 1, 4, 5 + STREAM_MAX_BYTES),
        header(Kind::Open, 1, 0, 1),
        header(Kind::CloseNotify, 1, 1, 0),
        [1, 0, 0, 0, 1, 0, 4, MARK],
    ] {
        assert!(
            Reader::new().feed(0, &bad, &mut Keep::default()).is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn fuzz_frames() {
    let seeds = [
        whole(1, b"hello"),
        stream(4, &[1, 2, 3, 4], &bytes_of(300, 2)),
        stream(5, &[1, 2], &bytes_of(300, 3)),
        [
            whole(7, &bytes_of(200, 4)),
            whole(8, b"x"),
            stream(2, &[1], b"abc"),
        ]
        .concat(),
        header(Kind::Open, 0, 0, 0).to_vec(),
        header(Kind::CloseNotify, 0, 0, 0).to_vec(),
    ];
    fuzz("frames", &seeds, |bytes| {
        // However the bytes are divided, the result is the same.
        let came = |piece: usize| {
            let mut keep = Keep::default();
            let end = deliver(bytes, piece, &mut keep).map(|f| f.opened);
            (end, keep.whole, keep.direct, keep.streams)
        };
        let one = came(bytes.len().max(1));
        assert_eq!(one, came(1));
        assert_eq!(one, came(13));
        (one.0, one.1.len(), one.2.len(), one.3.len())
    });
}

/// Says of each stream whether its receive is not posted.
struct Late(bool);

impl Inbox for Late {
    fn on_message(&mut self, _from: ProcId, _message: u8, _bytes: &[u8]) -> bool {
        false
    }
    fn stream_is_unexpected(&self, from: ProcId, message: u8, head: &[u8]) -> bool {
        assert_eq!((from, message, head), (0, 5, &[1, 2][..]));
        self.0
    }
}

#[test]
fn a_stream_whose_receive_is_not_posted_is_unexpected_when_it_begins() {
    let wire = stream(5, &[1, 2], &[0; 300]);
    for late in [false, true] {
        for begins in [10, 11, 100, wire.len()] {
            let (mut reader, mut inbox) = (Reader::new(), Late(late));
            let found = reader.feed(0, &wire[..begins], &mut inbox).unwrap();
            assert_eq!(found.unexpected, late, "{begins} bytes");
            let found = reader.feed(0, &wire[begins..], &mut inbox).unwrap();
            assert!(!found.unexpected && reader.is_between_frames());
        }
    }
}
