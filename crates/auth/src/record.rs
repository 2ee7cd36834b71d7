//! Records: what carries a connection's bytes when the user wants them encrypted.
//!
//! ```text
//! length of the payload, 4 bytes, little endian | payload, encrypted | tag, 16 bytes
//! ```
//!
//! AES-256-GCM (NIST SP 800-38D). Each direction has its own key; the nonce is the record's number,
//! which is not sent, so a record that is missing, doubled, in another place, or from another
//! connection fails to open. The length is authenticated with the payload. After 2^20 records the
//! key gives way to one derived from it, which keeps the amount of data under one key far below
//! AES-GCM's limit (RFC 8446 § 5.5).

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use zeroize::Zeroizing;

use crate::handshake::expand;

/// Bytes in front of a record's payload.
pub const HEADER: usize = 4;
/// Bytes behind a record's payload.
pub const TAG: usize = 16;
/// Longest payload of a record, bytes.
pub const PAYLOAD_MAX: usize = 64 << 10;
/// Records under one key.
const RECORDS_A_KEY: u64 = 1 << 20;

/// How many bytes follow a record's header (payload and tag); an error if no record of this
/// protocol can be that long.
pub fn body(header: &[u8; HEADER]) -> Result<usize, RecordError> {
    let length = u32::from_le_bytes(*header) as usize;
    if length > PAYLOAD_MAX {
        return Err(RecordError::TooLong);
    }
    Ok(length + TAG)
}

/// Why a record cannot be made or read. The connection must be closed: nothing that comes later on
/// it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordError {
    /// The buffer does not hold exactly one record.
    #[error("a record's buffer and its length do not agree")]
    Length,
    /// The payload would be, or claims to be, longer than [`PAYLOAD_MAX`].
    #[error("a record longer than is allowed")]
    TooLong,
    /// Changed on the way, left out, repeated or in the wrong order.
    #[error("a record was changed on the way, repeated or left out")]
    Forged,
    /// An earlier record of this connection was bad.
    #[error("an earlier record of this connection was bad")]
    Over,
}

/// What the keys of one direction of a connection come from; wiped when it is dropped.
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

    /// The next record's nonce; moves to the next key when it is time.
    fn nonce(&mut self) -> Nonce {
        if self.count == RECORDS_A_KEY {
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

    /// Makes a record in place. `record` has [`HEADER`] bytes of room, the payload, and [`TAG`]
    /// bytes of room; afterwards all of it is to be sent, and records must be sent in the order
    /// in which they were sealed.
    pub fn seal(&mut self, record: &mut [u8]) -> Result<(), RecordError> {
        let length = record
            .len()
            .checked_sub(HEADER + TAG)
            .ok_or(RecordError::Length)?;
        if length > PAYLOAD_MAX {
            return Err(RecordError::TooLong);
        }
        if self.0.over {
            return Err(RecordError::Over);
        }
        let (header, rest) = record.split_at_mut(HEADER);
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

    /// Checks and decrypts one whole record in place (header, payload and tag: [`HEADER`] plus what
    /// [`body`] said) and gives its payload. After an error every further record is refused.
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
            .split_first_chunk_mut::<HEADER>()
            .ok_or(RecordError::Length)?;
        if body(header)? != rest.len() {
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
