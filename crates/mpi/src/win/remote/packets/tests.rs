//! Packets are read as they were written, and foreign ones to an end.

use super::*;
use proptest::prelude::*;

fn elements() -> impl Strategy<Value = Elements> {
    (any::<i64>(), any::<u64>(), any::<u32>()).prop_map(|(offset, count, datatype)| Elements {
        offset,
        count,
        datatype,
    })
}

#[derive(Clone, Debug)]
struct Fields {
    which: u8,
    elements: Elements,
    number: u32,
    long: u64,
    flag: bool,
    bytes: Vec<u8>,
    text: String,
}

fn fields() -> impl Strategy<Value = Fields> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let plain = (any::<u8>(), any::<u32>(), any::<u64>(), any::<bool>());
    (plain, elements(), bytes, ".{0,20}").prop_map(|(plain, elements, bytes, text)| Fields {
        which: plain.0,
        elements,
        number: plain.1 >> 1,
        long: plain.2,
        flag: plain.3,
        bytes,
        text,
    })
}

impl Fields {
    fn request(&self) -> Request<'_> {
        let (elements, data) = (self.elements, &self.bytes[..]);
        match self.which % 11 {
            0 => Request::Put(elements, data),
            1 => Request::Get(elements),
            2 => Request::Accumulate {
                elements,
                op: self.number,
                fetches: self.flag,
                data,
            },
            3 => Request::CompareAndSwap(elements, data),
            4 => Request::LargePut(elements, self.number),
            5 => Request::LargeGet(elements, self.number),
            6 => Request::Type {
                slot: self.number,
                last: self.flag,
                bytes: data,
            },
            7 => Request::Lock {
                exclusive: self.flag,
            },
            8 => Request::Unlock(self.long),
            9 => Request::Flush(self.long),
            _ => Request::Complete,
        }
    }

    fn response(&self) -> Response<'_> {
        match self.which % 4 {
            0 => Response::Data(&self.bytes),
            1 => Response::Acknowledged(self.long),
            2 => {
                let refused = match self.number % 3 {
                    0 => Refused::Silent,
                    1 => Refused::Oldest,
                    _ => Refused::Large(self.number),
                };
                let kind = KINDS[self.long as usize % KINDS.len()];
                Response::Error(kind, refused, &self.text)
            }
            _ => Response::Post,
        }
    }
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(
        all in proptest::collection::vec(fields(), 0..20),
        head in (any::<u64>(), any::<u32>(), any::<bool>()),
    ) {
        let kind = if head.2 { PacketKind::Requests } else { PacketKind::Responses };
        let head = Head { context: head.0, rank: head.1, kind };
        let mut bytes = Vec::new();
        head.put(&mut bytes);
        prop_assert_eq!(bytes.len(), HEADER_BYTES);
        for fields in &all {
            let before = bytes.len();
            let data = fields.bytes.len();
            match kind {
                PacketKind::Requests => fields.request().put(&mut bytes),
                PacketKind::Responses => fields.response().put(&mut bytes),
            }
            prop_assert!(bytes.len() - before <= RECORD_MAX_BYTES + data.max(80));
        }
        prop_assert_eq!(Head::read(&bytes), Some(head));
        let mut records = Records::new(&bytes, HEADER_BYTES);
        for fields in &all {
            match kind {
                PacketKind::Requests => {
                    prop_assert_eq!(records.request(), Some(fields.request()));
                }
                PacketKind::Responses => {
                    prop_assert_eq!(records.response(), Some(fields.response()));
                }
            }
        }
        prop_assert_eq!(records.at, bytes.len());
        prop_assert_eq!((records.request(), records.response()), (None, None));
    }
}

#[test]
fn an_eight_byte_put_takes_fourteen_bytes() {
    let elements = Elements {
        offset: 64,
        count: 8,
        datatype: BYTES,
    };
    let mut bytes = Vec::new();
    Request::Put(elements, &[0; 8]).put(&mut bytes);
    assert_eq!(bytes.len(), 14);
}

/// Foreign bytes: each packet is read to an end, and what is understood is inside of it.
#[test]
fn fuzz_window_packets() {
    let elements = Elements {
        offset: -8,
        count: 3,
        datatype: 0x220,
    };
    let requests = [
        Request::Lock { exclusive: true },
        Request::Type {
            slot: 2,
            last: true,
            bytes: &[0, 1, 2],
        },
        Request::Put(elements, &[1; 24]),
        Request::Get(elements),
        Request::Accumulate {
            elements,
            op: 0x21,
            fetches: true,
            data: &[2; 24],
        },
        Request::CompareAndSwap(elements, &[3; 16]),
        Request::LargePut(elements, 70_000),
        Request::LargeGet(elements, 1 << 30),
        Request::Flush(300),
        Request::Complete,
        Request::Unlock(u64::MAX),
    ];
    let responses = [
        Response::Data(&[1; 24]),
        Response::Acknowledged(300),
        Response::Error(Kind::RmaRange, Refused::Large(7), "beyond"),
        Response::Error(Kind::Op, Refused::Oldest, ""),
        Response::Post,
    ];
    let seed = |kind, put: &dyn Fn(&mut Vec<u8>)| {
        let head = Head {
            context: 0x14,
            rank: 1,
            kind,
        };
        let mut bytes = Vec::new();
        head.put(&mut bytes);
        put(&mut bytes);
        bytes
    };
    let seeds = [
        seed(PacketKind::Requests, &|out| {
            requests.iter().for_each(|r| r.put(out));
        }),
        seed(PacketKind::Responses, &|out| {
            responses.iter().for_each(|a| a.put(out));
        }),
    ];
    ferry_fuzz::fuzz("window packets", &seeds, |bytes| {
        let Some(head) = Head::read(bytes) else {
            assert!(bytes.len() < HEADER_BYTES || bytes[HEADER_BYTES - 1] > 1);
            return (0, 0);
        };
        let mut records = Records::new(bytes, HEADER_BYTES);
        let (mut count, mut data) = (0, 0);
        loop {
            let before = records.at;
            let understood = match head.kind {
                PacketKind::Requests => records.request().map(|request| {
                    let mut again = Vec::new();
                    request.put(&mut again);
                    assert_eq!(Records::new(&again, 0).request(), Some(request));
                    again.len()
                }),
                PacketKind::Responses => records.response().map(|response| {
                    let mut again = Vec::new();
                    response.put(&mut again);
                    assert_eq!(Records::new(&again, 0).response(), Some(response));
                    again.len()
                }),
            };
            assert!(records.at <= bytes.len());
            let Some(len) = understood else {
                return (count, data);
            };
            assert!(records.at > before && len <= records.at - before);
            (count, data) = (count + 1, data + len);
        }
    });
}
