//! The job's key.

use std::fmt;

use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The secret that all processes of a job share: 32 random bytes, made once by the launcher. It
/// never belongs on a command line or into a file. Its memory is wiped when it is dropped. `Debug`
/// does not show it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct JobKey([u8; JobKey::BYTES]);

impl JobKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;

    /// A new key from the operating system's generator.
    pub fn random() -> Result<JobKey, NoRandomness> {
        let mut key = JobKey([0; JobKey::BYTES]);
        fill(&mut key.0)?;
        Ok(key)
    }

    /// The key that another process was given.
    pub fn from_bytes(bytes: &[u8; JobKey::BYTES]) -> JobKey {
        JobKey(*bytes)
    }

    /// A key from its 64 hexadecimal digits, as [`JobKey::to_hex`] gives them.
    pub fn from_hex(text: &str) -> Result<JobKey, InvalidKey> {
        let digits = text.as_bytes();
        if digits.len() != 2 * JobKey::BYTES {
            return Err(InvalidKey);
        }
        let digit = |d: u8| (d as char).to_digit(16).ok_or(InvalidKey);
        let mut key = JobKey([0; JobKey::BYTES]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(key)
    }

    /// Hides another key from whoever does not know this one, or shows it again. `number` must not
    /// be used for a second key.
    pub fn hide(&self, number: u64, key: &mut [u8; JobKey::BYTES]) {
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0);
        let mut pad = Zeroizing::new([0; JobKey::BYTES]);
        let (label, number) = (&b"hidden key"[..], number.to_le_bytes());
        let okm = secret
            .expand(&[label, &number], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut *pad));
        // One block of output is asked for, and the limit is 255.
        okm.expect("HKDF gives 32 bytes");
        key.iter_mut().zip(pad.iter()).for_each(|(k, p)| *k ^= p);
    }

    /// The bytes, to be passed to another process of the job over a channel that others cannot
    /// read.
    pub fn as_bytes(&self) -> &[u8; JobKey::BYTES] {
        &self.0
    }

    /// The bytes as 64 hexadecimal digits, for channels that carry text.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * JobKey::BYTES));
        for byte in self.0 {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(half.into(), 16).unwrap_or('0'));
            }
        }
        text
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// Fills `bytes` from the operating system's generator.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    SystemRandom::new().fill(bytes).map_err(|_| NoRandomness)
}

/// The operating system gave no random bytes. Nothing secret can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes (getrandom failed)")]
pub struct NoRandomness;

/// A text that should be a job's key is not 64 hexadecimal digits. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a job's key, which is 64 hexadecimal digits")]
pub struct InvalidKey;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_there_and_back() {
        let key = JobKey::random().unwrap();
        let back = JobKey::from_hex(&key.to_hex()).unwrap();
        assert_eq!(key.as_bytes(), back.as_bytes());
        assert_ne!(key.as_bytes(), JobKey::random().unwrap().as_bytes());
        for wrong in [
            "",
            "00",
            &"0".repeat(63),
            &"0".repeat(65),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert_eq!(JobKey::from_hex(wrong).unwrap_err(), InvalidKey);
        }
    }

    #[test]
    fn debug_does_not_show_it() {
        let (mut hidden, secret) = ([7; 32], JobKey::from_bytes(&[1; 32]));
        secret.hide(5, &mut hidden);
        assert_ne!(hidden, [7; 32]);
        secret.hide(6, &mut hidden);
        assert_ne!(hidden, [7; 32], "another number");
        secret.hide(6, &mut hidden);
        secret.hide(5, &mut hidden);
        assert_eq!(hidden, [7; 32]);
        let key = JobKey::from_bytes(&[0xab; 32]);
        let shown = format!("{key:?} {key:#?}");
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }
}
