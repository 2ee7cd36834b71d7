//! The hellos that a process has answered, so that it answers none of them twice.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::message::HELLO_BYTES;
use crate::record::TAG_BYTES;

/// Number of hellos that are remembered. Each process of a job sends one for each connection, so
/// this is enough for jobs of 65536 processes. It takes at most 2 MiB.
const REMEMBERED_MAX: usize = 1 << 16;

/// The tags of the hellos that were answered. Only whoever knows the job's key can add one.
///
/// A repeated hello opens no connection even without this: the handshake's last message would be
/// missing. But an answer costs the responder two X25519 operations, and a refusal only hashes.
#[derive(Default)]
pub(crate) struct AnsweredHellos {
    tags: Mutex<HashSet<[u8; TAG_BYTES]>>,
}

impl AnsweredHellos {
    /// Whether this hello has not been answered before. When as many as are remembered have been
    /// answered, further ones are always new.
    pub(crate) fn insert(&self, hello: &[u8; HELLO_BYTES]) -> bool {
        let tag = hello.last_chunk::<TAG_BYTES>().copied();
        let (Some(tag), Ok(mut tags)) = (tag, self.tags.lock()) else {
            return false;
        };
        if tags.len() < REMEMBERED_MAX {
            tags.insert(tag)
        } else {
            !tags.contains(&tag)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let answered = AnsweredHellos::default();
        let hello = |i: u32| {
            let mut hello = [0; HELLO_BYTES];
            hello[HELLO_BYTES - TAG_BYTES..][..4].copy_from_slice(&i.to_le_bytes());
            hello
        };
        let count = REMEMBERED_MAX as u32;
        assert!((0..count).all(|i| answered.insert(&hello(i))));
        assert!((0..count).all(|i| !answered.insert(&hello(i))));
        // One more is answered each time.
        assert!(answered.insert(&hello(count)) && answered.insert(&hello(count)));
        assert_eq!(answered.tags.lock().unwrap().len(), REMEMBERED_MAX);
    }
}
