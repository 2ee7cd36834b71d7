//! The encoding of commands and events in a mailbox: one record after the other, each with its
//! time, kind and bytes.
//!
//! ```text
//! 0         8       12       16              16 + length, to the next multiple of 8
//! | time ps | kind  | length | bytes … | pad |
//! ```

use crate::time::Time;

/// Bytes of a record before its own.
const HEADER_BYTES: usize = 16;
/// Most bytes that a command or an event can carry.
pub const RECORD_MAX_BYTES: usize = 64 * 1024;
/// Kinds from here on are the kernel's own.
pub(super) const KERNEL_KINDS: u32 = 0xffff_0000;
/// What a rank's work has cost, by cause. A rank sends it when it leaves.
pub(super) const COST: u32 = KERNEL_KINDS;
/// A span of a rank's timeline.
pub(super) const SPAN: u32 = KERNEL_KINDS + 1;
/// Messages and bytes that the rank's program has sent since it started. A rank sends it each time
/// it leaves.
pub(super) const SENT: u32 = KERNEL_KINDS + 2;

/// A decoded record.
#[derive(Debug, PartialEq)]
pub(super) struct Record<'a> {
    pub time: Time,
    pub kind: u32,
    pub bytes: &'a [u8],
}

/// Bytes of a record that carries `len` bytes.
pub(super) const fn encoded_len(len: usize) -> usize {
    HEADER_BYTES + len.next_multiple_of(8)
}

/// Appends a record to `out`.
pub(super) fn append(out: &mut Vec<u8>, time: Time, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    out.extend(time.as_ps().to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend((len as u32).to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Takes the first record off `bytes`. Returns `None` if there is none; nothing behind it can be
/// trusted then.
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Record<'a>> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let time = u64::from_le_bytes(header[..8].try_into().ok()?);
    let kind = u32::from_le_bytes(header[8..12].try_into().ok()?);
    let len = u32::from_le_bytes(header[12..].try_into().ok()?) as usize;
    if len > RECORD_MAX_BYTES {
        return None;
    }
    let (own, rest) = rest.split_at_checked(len.next_multiple_of(8))?;
    *bytes = rest;
    Some(Record {
        time: Time::ps(time),
        kind,
        bytes: &own[..len],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back() {
        let mut out = Vec::new();
        append(&mut out, Time::us(3), 7, &[b"ab", b"", b"cde"]);
        append(&mut out, Time::us(4), 8, &[]);
        assert_eq!(out.len(), encoded_len(5) + encoded_len(0));
        let mut bytes = &out[..];
        let first = take(&mut bytes).unwrap();
        assert_eq!(
            (first.time, first.kind, first.bytes),
            (Time::us(3), 7, &b"abcde"[..])
        );
        assert_eq!(take(&mut bytes).unwrap().kind, 8);
        assert!(bytes.is_empty() && take(&mut bytes).is_none());
    }

    #[test]
    fn fuzz_records() {
        let mut seed = Vec::new();
        append(&mut seed, Time::us(3), 7, &[b"some bytes"]);
        append(&mut seed, Time::us(4), 8, &[&[1; 100]]);
        ferry_fuzz::fuzz("fuzz_records", &[seed], |bytes| {
            let mut rest = bytes;
            let mut before = rest.len();
            while let Some(record) = take(&mut rest) {
                assert!(record.bytes.len() <= RECORD_MAX_BYTES && rest.len() < before);
                before = rest.len();
            }
            before
        });
    }
}
