//! Records: what carries a connection's bytes when the user wants them encrypted.
//!
//! ```text
//! length of the payload, 4 bytes, little endian | payload, encrypted | tag, 16 bytes
//! ```
//!
//! The cipher is AES-256-GCM (NIST SP 800-38D), in place. Each direction has its own key. The nonce
//! is the record's number, which is not sent. So a record that is missing, repeated, moved or from
//! another connection fails to open. The length is authenticated with the payload. After 2^20
//! records the key is replaced by one derived from it. This keeps the data under one key far below
//! AES-GCM's limit (RFC 8446, section 5.5).
//!
//! The first record of the initiator is empty and ends the handshake.
//!
//! Why not Noise's transport messages: snow copies each message from one buffer to another, and
//! they hold at most 65535 bytes. `examples/records.rs` measures both; docs/security.md has the
//! figures.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use zeroize::Zeroizing;

/// Bytes in front of a record's payload.
pub const HEADER_BYTES: usize = 4;
/// Bytes behind a record's payload.
pub const TAG_BYTES: usize = 16;
/// Longest payload of a record. A choice: the fixed cost of a record (about 0.1 us) is then near
/// 1 % of the cipher's, and a record fits into a core's second-level cache.
pub const PAYLOAD_MAX_BYTES: usize = 64 << 10;
/// Number of records under one key: 2^20 of 64 KiB are 2^36 bytes. RFC 8446, section 5.5 allows
/// about 2^38.
const RECORDS_PER_KEY: u64 = 1 << 20;

/// How many bytes (payload and tag) follow a record's header. Error: a record cannot be that long.
pub fn body_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, RecordError> {
    let length = u32::from_le_bytes(*header) as usize;
    if length > PAYLOAD_MAX_BYTES {
        return Err(RecordError::TooLong);
    }
    Ok(length + TAG_BYTES)
}

/// Why a record cannot be made or read. The connection must be closed, because nothing that comes
/// later on it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordError {
    /// The buffer does not hold exactly one record.
    #[error("a record's buffer and its length do not agree")]
    Length,
    /// The payload would be, or claims to be, longer than [`PAYLOAD_MAX_BYTES`].
    #[error("a record longer than is allowed")]
    TooLong,
    /// Changed on the way, left out, repeated or in the wrong order.
    #[error("a record was changed on the way, repeated or left out")]
    Forged,
    /// An earlier record of this connection was bad.
    #[error("an earlier record of this connection was bad")]
    Over,
}

/// What the keys of one direction of a connection come from. It is wiped when it is dropped.
pub(crate) struct Secret(pub(crate) Zeroizing<[u8; 32]>);

impl Secret {
    fn derive(&self, label: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &*self.0);
        expand(&secret, &[label], &mut bytes);
        bytes
    }

    fn key(&self) -> LessSafeKey {
        let bytes = self.derive(b"record key");
        let key = UnboundKey::new(&AES_256_GCM, &*bytes);
        LessSafeKey::new(key.expect("AES-256 keys have 32 bytes"))
    }
}

/// One direction's key and how many records it has seen.
struct Direction {
    secret: Secret,
    key: LessSafeKey,
    count: u64,
    over: bool,
}

impl Direction {
    fn new(secret: Secret) -> Direction {
        let key = secret.key();
        Direction {
            secret,
            key,
            count: 0,
            over: false,
        }
    }

    /// The next record's nonce. Replaces the key when it has sealed its number of records.
    fn nonce(&mut self) -> Nonce {
        if self.count == RECORDS_PER_KEY {
            self.secret = Secret(self.secret.derive(b"next secret"));
            self.key = self.secret.key();
            self.count = 0;
        }
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Seals the records of one direction.
pub struct Sealer(Direction);

impl Sealer {
    pub(crate) fn new(secret: Secret) -> Sealer {
        Sealer(Direction::new(secret))
    }

    /// Makes a record in place. `record` has [`HEADER_BYTES`] of room, the payload, and
    /// [`TAG_BYTES`] of room. Afterwards all of it is to be sent. Records must be sent in the
    /// order in which they were sealed.
    pub fn seal(&mut self, record: &mut [u8]) -> Result<(), RecordError> {
        let length = record
            .len()
            .checked_sub(HEADER_BYTES + TAG_BYTES)
            .ok_or(RecordError::Length)?;
        if length > PAYLOAD_MAX_BYTES {
            return Err(RecordError::TooLong);
        }
        if self.0.over {
            return Err(RecordError::Over);
        }
        let (header, rest) = record.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&(length as u32).to_le_bytes());
        let (payload, tag) = rest.split_at_mut(length);
        let nonce = self.0.nonce();
        match self
            .0
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), payload)
        {
            Ok(made) => tag.copy_from_slice(made.as_ref()),
            Err(_) => {
                self.0.over = true;
                return Err(RecordError::TooLong);
            }
        }
        Ok(())
    }
}

/// Opens the records of one direction.
pub struct Opener(Direction);

impl Opener {
    pub(crate) fn new(secret: Secret) -> Opener {
        Opener(Direction::new(secret))
    }

    /// Checks and decrypts one whole record in place and gives its payload. `record` is header,
    /// payload and tag: [`HEADER_BYTES`] plus what [`body_bytes`] said. After an error every
    /// further record is refused.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<&'a mut [u8], RecordError> {
        let payload = self.check(record);
        self.0.over |= payload.is_err();
        payload
    }

    fn check<'a>(&mut self, record: &'a mut [u8]) -> Result<&'a mut [u8], RecordError> {
        if self.0.over {
            return Err(RecordError::Over);
        }
        let (header, rest) = record
            .split_first_chunk_mut::<HEADER_BYTES>()
            .ok_or(RecordError::Length)?;
        if body_bytes(header)? != rest.len() {
            return Err(RecordError::Length);
        }
        let nonce = self.0.nonce();
        let opened = self.0.key.open_in_place(nonce, Aad::from(&*header), rest);
        opened.map_err(|_| RecordError::Forged)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("records", &self.0.count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("records", &self.0.count)
            .finish_non_exhaustive()
    }
}

/// HKDF-Expand to 32 bytes (RFC 5869, section 2.3).
fn expand(secret: &hkdf::Prk, info: &[&[u8]], out: &mut [u8; 32]) {
    let okm = secret
        .expand(info, hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(out));
    // One block of output is asked for, and the limit is 255.
    okm.expect("HKDF gives 32 bytes");
}
