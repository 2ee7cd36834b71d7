//! Bytes as text: the names of ports.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bytes as text, by base64url without padding (RFC 4648 §5).
pub(super) fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 3);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |w, &b| w << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            out.push(DIGITS[(word >> (18 - 6 * digit) & 63) as usize].into());
        }
    }
    out
}

/// The bytes of a text by [`to_base64`]. `None`: it is none.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for digit in chunk {
            word = word << 6 | DIGITS.iter().position(|d| d == digit)? as u32;
        }
        let missing = 4 - chunk.len();
        if missing == 3 {
            return None;
        }
        word <<= 6 * missing;
        out.extend(&word.to_be_bytes()[1..4 - missing]);
    }
    Some(out)
}
