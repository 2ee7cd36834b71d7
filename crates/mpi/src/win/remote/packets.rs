//! The packets of one-sided operations: the records that one active message holds.
//!
//! ```text
//! context u64 │ rank u32 │ kind u8 │ record │ record │ …
//! ```
//!
//! `context` names the window, `rank` is the sender's in it. Requests and responses never share a
//! packet: requests may wait for a lock at the target, and responses must not wait behind them.
//!
//! | request | tag | fields |
//! |---|---|---|
//! | put | 0 | elements, data |
//! | get | 1 | elements |
//! | accumulate | 2 | elements, op and whether it fetches, data |
//! | compare and swap | 3 | elements, two values as data |
//! | put by a message | 4 | elements, number of the message |
//! | get by a message | 5 | elements, number of the message |
//! | part of a datatype | 6 | slot, whether it is the last, bytes |
//! | lock | 7 | whether it is exclusive |
//! | unlock | 8 | number of the acknowledgement |
//! | flush | 9 | number of the acknowledgement |
//! | complete | 10 | |
//!
//! | response | tag | fields |
//! |---|---|---|
//! | data | 0 | bytes |
//! | acknowledgement | 1 | its number |
//! | error | 2 | class, what it answers, text |
//! | post | 3 | |
//!
//! Elements are an offset in bytes (an address in a dynamic window), a count and a type. Type 0 is
//! bytes, 1 to [`SLOTS`] a type that the sender has sent before, and others are handle values of
//! predefined types. Numbers are LEB128, signed ones zigzag. Data and texts begin with their
//! length. Gets and fetches are answered in the order in which they were asked, so they need no
//! number.
//!
//! The bytes come from another process: a packet that makes no sense is read as far as it does.

use crate::Kind;

/// Bytes before the first record.
pub(super) const HEADER_BYTES: usize = 13;
/// Bytes of a record beside its data, at most: a tag, elements, an op, a length.
pub(super) const RECORD_MAX_BYTES: usize = 48;
/// Types of the sender that the receiver remembers. A choice.
pub(super) const SLOTS: usize = 32;
/// The type of bytes.
pub(super) const BYTES: u32 = 0;

/// What the records of a packet are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketKind {
    Requests = 0,
    Responses = 1,
}

/// The beginning of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// The window's context.
    pub context: u64,
    /// The sender's rank in the window.
    pub rank: u32,
    pub kind: PacketKind,
}

impl Head {
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_le_bytes());
        out.extend_from_slice(&self.rank.to_le_bytes());
        out.push(self.kind as u8);
    }

    /// `None`: it is none.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let (context, rest) = bytes.split_first_chunk()?;
        let (rank, rest) = rest.split_first_chunk()?;
        Some(Head {
            context: u64::from_le_bytes(*context),
            rank: u32::from_le_bytes(*rank),
            kind: match rest.first()? {
                0 => PacketKind::Requests,
                1 => PacketKind::Responses,
                _ => return None,
            },
        })
    }
}

/// Elements in the target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Elements {
    /// From the beginning of the memory, bytes. An address in a dynamic window.
    pub offset: i64,
    pub count: u64,
    /// [`BYTES`], a slot plus 1, or the handle value of a predefined type.
    pub datatype: u32,
}

/// A record of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request<'a> {
    Put(Elements, &'a [u8]),
    Get(Elements),
    Accumulate {
        elements: Elements,
        /// The handle value of a predefined op.
        op: u32,
        /// The old values are the response.
        fetches: bool,
        /// Empty for MPI_NO_OP.
        data: &'a [u8],
    },
    /// The value that is expected, and the new one.
    CompareAndSwap(Elements, &'a [u8]),
    /// The data come as a message of this number.
    LargePut(Elements, u32),
    /// The data go as a message of this number.
    LargeGet(Elements, u32),
    /// A part of an encoded type, for this slot.
    Type {
        slot: u32,
        last: bool,
        bytes: &'a [u8],
    },
    Lock {
        exclusive: bool,
    },
    /// Ends the lock, and is acknowledged.
    Unlock(u64),
    /// Is acknowledged when all before it is done.
    Flush(u64),
    /// MPI_Win_complete.
    Complete,
}

/// What an error answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// An operation without a response of its own.
    Silent,
    /// The oldest get or fetch.
    Oldest,
    /// The get by the message of this number.
    Large(u32),
}

/// A record of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Response<'a> {
    Data(&'a [u8]),
    Acknowledged(u64),
    Error(Kind, Refused, &'a str),
    /// MPI_Win_post.
    Post,
}

fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    unsigned(out, (value << 1 ^ value >> 63) as u64);
}

fn data(out: &mut Vec<u8>, bytes: &[u8]) {
    unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Elements {
    fn put(self, out: &mut Vec<u8>) {
        signed(out, self.offset);
        unsigned(out, self.count);
        unsigned(out, self.datatype.into());
    }
}

impl Request<'_> {
    pub fn put(self, out: &mut Vec<u8>) {
        match self {
            Request::Put(elements, bytes) => {
                put_head(out, elements, bytes.len());
                out.extend_from_slice(bytes);
            }
            Request::Get(elements) => {
                out.push(1);
                elements.put(out);
            }
            Request::Accumulate {
                elements,
                op,
                fetches,
                data: bytes,
            } => {
                out.push(2);
                elements.put(out);
                unsigned(out, u64::from(op) << 1 | u64::from(fetches));
                data(out, bytes);
            }
            Request::CompareAndSwap(elements, values) => {
                out.push(3);
                elements.put(out);
                data(out, values);
            }
            Request::LargePut(elements, number) => {
                out.push(4);
                elements.put(out);
                unsigned(out, number.into());
            }
            Request::LargeGet(elements, number) => {
                out.push(5);
                elements.put(out);
                unsigned(out, number.into());
            }
            Request::Type { slot, last, bytes } => {
                out.push(6);
                unsigned(out, u64::from(slot) << 1 | u64::from(last));
                data(out, bytes);
            }
            Request::Lock { exclusive } => out.extend_from_slice(&[7, u8::from(exclusive)]),
            Request::Unlock(number) => {
                out.push(8);
                unsigned(out, number);
            }
            Request::Flush(number) => {
                out.push(9);
                unsigned(out, number);
            }
            Request::Complete => out.push(10),
        }
    }
}

/// The record of a put before its `len` bytes, which the caller adds.
pub(super) fn put_head(out: &mut Vec<u8>, elements: Elements, len: usize) {
    out.push(0);
    elements.put(out);
    unsigned(out, len as u64);
}

const KINDS: [Kind; 5] = [
    Kind::Other,
    Kind::RmaRange,
    Kind::Op,
    Kind::Type,
    Kind::Intern,
];

impl Response<'_> {
    /// The record of data before its `len` bytes, which the caller adds.
    pub fn data_head(out: &mut Vec<u8>, len: usize) {
        out.push(0);
        unsigned(out, len as u64);
    }

    pub fn put(self, out: &mut Vec<u8>) {
        match self {
            Response::Data(bytes) => {
                Response::data_head(out, bytes.len());
                out.extend_from_slice(bytes);
            }
            Response::Acknowledged(number) => {
                out.push(1);
                unsigned(out, number);
            }
            Response::Error(kind, refused, text) => {
                let kind = KINDS.iter().position(|k| *k == kind).unwrap_or(0);
                out.extend_from_slice(&[2, kind as u8]);
                let refused = match refused {
                    Refused::Silent => 0,
                    Refused::Oldest => 1,
                    Refused::Large(number) => u64::from(number) + 2,
                };
                unsigned(out, refused);
                data(out, text.as_bytes());
            }
            Response::Post => out.push(3),
        }
    }
}

/// Reads records from bytes.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    /// Where the next record begins.
    pub at: usize,
}

impl<'a> Records<'a> {
    /// The records of a packet from `at` on. The first begins behind the header.
    pub fn new(bytes: &'a [u8], at: usize) -> Records<'a> {
        Records { bytes, at }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn number(&mut self) -> Option<u32> {
        self.unsigned()?.try_into().ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn data(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.unsigned()?).ok()?;
        let end = self.at.checked_add(len)?;
        let data = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(data)
    }

    fn elements(&mut self) -> Option<Elements> {
        Some(Elements {
            offset: self.signed()?,
            count: self.unsigned()?,
            datatype: self.number()?,
        })
    }

    /// The next request. `None`: there is none, or it makes no sense.
    pub fn request(&mut self) -> Option<Request<'a>> {
        Some(match self.byte()? {
            0 => Request::Put(self.elements()?, self.data()?),
            1 => Request::Get(self.elements()?),
            2 => {
                let elements = self.elements()?;
                let op = self.number()?;
                Request::Accumulate {
                    elements,
                    op: op >> 1,
                    fetches: op & 1 != 0,
                    data: self.data()?,
                }
            }
            3 => Request::CompareAndSwap(self.elements()?, self.data()?),
            4 => Request::LargePut(self.elements()?, self.number()?),
            5 => Request::LargeGet(self.elements()?, self.number()?),
            6 => {
                let slot = self.number()?;
                Request::Type {
                    slot: slot >> 1,
                    last: slot & 1 != 0,
                    bytes: self.data()?,
                }
            }
            7 => Request::Lock {
                exclusive: self.byte()? != 0,
            },
            8 => Request::Unlock(self.unsigned()?),
            9 => Request::Flush(self.unsigned()?),
            10 => Request::Complete,
            _ => return None,
        })
    }

    /// The next response. `None`: there is none, or it makes no sense.
    pub fn response(&mut self) -> Option<Response<'a>> {
        Some(match self.byte()? {
            0 => Response::Data(self.data()?),
            1 => Response::Acknowledged(self.unsigned()?),
            2 => {
                let kind = *KINDS.get(usize::from(self.byte()?))?;
                let refused = match self.unsigned()? {
                    0 => Refused::Silent,
                    1 => Refused::Oldest,
                    number => Refused::Large(u32::try_from(number - 2).ok()?),
                };
                Response::Error(kind, refused, std::str::from_utf8(self.data()?).ok()?)
            }
            3 => Response::Post,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
