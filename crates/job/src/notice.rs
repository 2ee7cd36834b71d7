//! What a rank tells its launcher through the socket.

/// Longest text of a notice, bytes; longer ones are cut.
pub const TEXT_MAX: usize = 16 * 1024;
const ABORT: u32 = u32::from_le_bytes(*b"abrt");

/// A message of a rank to its launcher: one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// End the whole job (MPI_Abort, or the fatal error handler).
    Abort {
        /// Exit code for the job.
        code: i32,
        /// What to print; may be empty.
        text: String,
    },
}

impl Notice {
    /// The notice as one packet.
    pub fn encode(&self) -> Vec<u8> {
        let Notice::Abort { code, text } = self;
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut out = Vec::with_capacity(8 + end);
        out.extend(ABORT.to_le_bytes());
        out.extend(code.to_le_bytes());
        out.extend(&text.as_bytes()[..end]);
        out
    }

    /// Reads a packet; `None` if it is none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Notice> {
        let kind = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let code = i32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        (kind == ABORT && bytes.len() <= 8 + TEXT_MAX).then(|| Notice::Abort {
            code,
            text: String::from_utf8_lossy(&bytes[8..]).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_as_it_went(code in any::<i32>(), text in ".{0,200}") {
            let notice = Notice::Abort { code, text };
            prop_assert_eq!(Notice::decode(&notice.encode()), Some(notice));
        }
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Notice::decode(&bytes);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notice = Notice::Abort {
            code: 1,
            text: "ö".repeat(TEXT_MAX),
        };
        let Some(Notice::Abort { text, .. }) = Notice::decode(&notice.encode()) else {
            panic!("not read")
        };
        assert_eq!(text, "ö".repeat(TEXT_MAX / 2));
    }
}
