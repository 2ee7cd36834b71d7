//! Bytes and CPU masks as text, for the values of a store; and random bytes.

use crate::error::JobError;
use crate::new_key;

/// CPUs as a value: one bit for each CPU, in hexadecimal. Cut to the longest value.
pub(super) fn cpu_mask(cpus: &[usize], value_max: usize) -> String {
    let mut bytes = vec![0u8; cpus.iter().max().map_or(1, |most| most / 8 + 1)];
    for cpu in cpus {
        bytes[cpu / 8] |= 1 << (cpu % 8);
    }
    bytes.truncate((value_max / 2).clamp(1, 400));
    hex(&bytes)
}

/// The CPUs of such a mask.
pub(super) fn mask_cpus(text: &str) -> Vec<usize> {
    let bytes = unhex(text).unwrap_or_default();
    (0..bytes.len() * 8)
        .filter(|cpu| bytes[cpu / 8] >> (cpu % 8) & 1 == 1)
        .collect()
}

/// Bytes as hexadecimal digits, which every launcher's store accepts.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal digits, or `None` if they are none.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |d: u8| (d as char).to_digit(16).map(|v| v as u8);
    digits
        .chunks(2)
        .map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?))
        .collect()
}

/// Bytes from the kernel's generator.
pub(super) fn random_bytes() -> Result<[u8; 32], JobError> {
    new_key().map_err(|cause| JobError::Refused {
        attempted: "making the job's key (getrandom)".into(),
        cause,
        advice: "Ferry needs the kernel's random numbers (Linux 3.17)",
    })
}
