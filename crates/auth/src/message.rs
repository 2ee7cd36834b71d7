//! The bytes of the handshake: its three messages, their lengths and the clear text in front.
//!
//! ```text
//! hello     76 bytes: magic 6 | version 2 | ephemeral key 32 | encrypted claim 20 | tag 16
//! response  56 bytes: magic 6 | version 2 | ephemeral key 32 | tag 16
//! finished  20 bytes: an empty record: length 4 | tag 16
//!
//! claim     job 8 | from 4 | to 4 | purpose 2 | flags 2, little endian
//! ```

use std::fmt;
use std::ops::Deref;

use crate::handshake::Identity;
use crate::record::{HEADER_BYTES, TAG_BYTES};
use crate::rejected::Rejected;

/// The version of handshake and records. Processes of different versions do not speak to each
/// other. Version 1 was a handshake of HMACs without forward secrecy.
pub const VERSION: u16 = 2;

/// Length of the first message, from the initiator.
pub const HELLO_BYTES: usize = PREFIX_BYTES + EPHEMERAL_BYTES + CLAIM_BYTES + TAG_BYTES;
/// Length of the second message, from the responder.
pub const RESPONSE_BYTES: usize = PREFIX_BYTES + EPHEMERAL_BYTES + TAG_BYTES;
/// Length of the third message, from the initiator.
pub const FINISHED_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Length of magic and version.
pub(crate) const PREFIX_BYTES: usize = 8;
/// Length of an X25519 public key.
const EPHEMERAL_BYTES: usize = 32;
/// Length of an encoded [`Claim`].
pub(crate) const CLAIM_BYTES: usize = 20;

/// The first byte is no letter, so that no text protocol begins like this.
const MAGIC: [u8; 6] = *b"\x89FERRY";
/// Set in a claim's flags if records follow the handshake.
const FLAG_ENCRYPT: u16 = 1;

/// What hello and response begin with, in clear text. Both sides hash it into the handshake as
/// Noise's prologue.
pub(crate) const PREFIX: [u8; PREFIX_BYTES] = {
    let [a, b, c, d, e, f] = MAGIC;
    let [low, high] = VERSION.to_le_bytes();
    [a, b, c, d, e, f, low, high]
};

/// Checks the part of magic and version that has arrived. Whoever speaks another protocol is
/// rejected by its first wrong byte.
pub(crate) fn check_prefix(bytes: &[u8]) -> Result<(), Rejected> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(Rejected::UnknownProtocol);
    }
    if let Some(prefix) = bytes.first_chunk::<PREFIX_BYTES>() {
        let theirs = u16::from_le_bytes([prefix[6], prefix[7]]);
        if theirs != VERSION {
            return Err(Rejected::Version { theirs });
        }
    }
    Ok(())
}

/// What an initiator says of itself, and which process it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    job: u64,
    pub(crate) from: u32,
    to: u32,
    purpose: u16,
    flags: u16,
}

impl Claim {
    pub(crate) fn new(local: Identity, to: u32) -> Claim {
        Claim {
            job: local.job,
            from: local.process,
            to,
            purpose: local.purpose,
            flags: if local.encrypt { FLAG_ENCRYPT } else { 0 },
        }
    }

    pub(crate) fn encode(self) -> [u8; CLAIM_BYTES] {
        let mut out = [0; CLAIM_BYTES];
        out[..8].copy_from_slice(&self.job.to_le_bytes());
        out[8..12].copy_from_slice(&self.from.to_le_bytes());
        out[12..16].copy_from_slice(&self.to.to_le_bytes());
        out[16..18].copy_from_slice(&self.purpose.to_le_bytes());
        out[18..].copy_from_slice(&self.flags.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; CLAIM_BYTES]) -> Claim {
        let number = |at: usize, len: usize| {
            let digits = bytes[at..at + len].iter().rev();
            digits.fold(0u64, |n, &byte| n << 8 | u64::from(byte))
        };
        Claim {
            job: number(0, 8),
            from: number(8, 4) as u32,
            to: number(12, 4) as u32,
            purpose: number(16, 2) as u16,
            flags: number(18, 2) as u16,
        }
    }

    /// Checks that the initiator wants `local`.
    pub(crate) fn check(self, local: Identity) -> Result<(), Rejected> {
        let wanted = Claim::new(local, local.process);
        if self.job != wanted.job {
            return Err(Rejected::Job);
        }
        if self.to != wanted.to || self.from == self.to {
            return Err(Rejected::Process);
        }
        if self.purpose != wanted.purpose {
            return Err(Rejected::Purpose);
        }
        if self.flags != wanted.flags {
            return Err(Rejected::Encryption);
        }
        Ok(())
    }
}

/// A message of the handshake, to be sent unchanged. It is empty if there is nothing to send.
#[derive(Clone, Copy)]
pub struct Message {
    bytes: [u8; HELLO_BYTES],
    length: u8,
}

impl Message {
    pub(crate) fn new(text: &[u8]) -> Message {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..text.len()].copy_from_slice(text);
        Message {
            bytes,
            length: text.len() as u8,
        }
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_encoded_and_decoded() {
        let local = Identity {
            job: 0x0102_0304_0506_0708,
            process: 0x1112_1314,
            purpose: 0x2122,
            encrypt: true,
        };
        let claim = Claim::new(local, 0x3132_3334);
        let bytes = claim.encode();
        assert_eq!(Claim::decode(&bytes), claim);
        assert_eq!(
            bytes,
            [
                8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x34, 0x33, 0x32, 0x31, 0x22, 0x21,
                1, 0
            ]
        );
    }
}
