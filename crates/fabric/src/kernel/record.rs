//! How commands and events lie in shared memory: one after the other, each with its time, kind and
//! bytes.

use crate::Time;

/// Bytes before a record's own.
const HEAD: usize = 16;
/// Most bytes that a command or an event can carry.
pub const RECORD_MAX: usize = 64 * 1024;
/// Kinds from here on are the kernel's own.
pub(super) const OWN_KINDS: u32 = 0xffff_0000;
/// What a rank's work has cost, by cause: sent when a rank leaves.
pub(super) const COST: u32 = OWN_KINDS;
/// A span of a rank's timeline.
pub(super) const SPAN: u32 = OWN_KINDS + 1;

/// Messages and bytes that the rank's program has sent: sent when a rank leaves, each time of all
/// so far.
pub(super) const SENT: u32 = OWN_KINDS + 2;

/// A record, as it is read.
#[derive(Debug, PartialEq)]
pub(super) struct Record<'a> {
    pub time: Time,
    pub kind: u32,
    pub bytes: &'a [u8],
}

/// Bytes of a record with so many of its own.
pub(super) const fn space(len: usize) -> usize {
    HEAD + len.next_multiple_of(8)
}

/// Adds a record at the end of `out`.
pub(super) fn put(out: &mut Vec<u8>, time: Time, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    out.extend(time.as_ps().to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend((len as u32).to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Takes the first record off `bytes`; `None` if they are none (which ends the reading: nothing
/// behind can be trusted).
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Record<'a>> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let time = u64::from_le_bytes(head[..8].try_into().ok()?);
    let kind = u32::from_le_bytes(head[8..12].try_into().ok()?);
    let len = u32::from_le_bytes(head[12..].try_into().ok()?) as usize;
    if len > RECORD_MAX {
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
    fn what_is_put_is_taken() {
        let mut out = Vec::new();
        put(&mut out, Time::us(3), 7, &[b"ab", b"", b"cde"]);
        put(&mut out, Time::us(4), 8, &[]);
        assert_eq!(out.len(), space(5) + space(0));
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
        put(&mut seed, Time::us(3), 7, &[b"some bytes"]);
        put(&mut seed, Time::us(4), 8, &[&[1; 100]]);
        ferry_fuzz::fuzz("fuzz_records", &[seed], |bytes| {
            let mut rest = bytes;
            let mut before = rest.len();
            while let Some(record) = take(&mut rest) {
                assert!(record.bytes.len() <= RECORD_MAX && rest.len() < before);
                before = rest.len();
            }
            before
        });
    }
}
