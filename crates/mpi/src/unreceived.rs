//! The warning of MPI_Finalize about point-to-point messages on MPI_COMM_WORLD that were sent to
//! this process and never received.
//!
//! Such a program is in error (MPI 5.0 §11.2.2). It gets the warning and continues. Other
//! communicators are not checked: they may belong to a session that this process has still to open.
//! `coll::pending_mismatch` checks messages of collectives.

use crate::device::{ContextId, Device, Unreceived};

/// The warning about messages that have arrived. `None` if all have been received.
pub fn warning(device: &mut Device) -> Option<String> {
    device.unreceived(ContextId::WORLD).map(text)
}

fn text(messages: Unreceived) -> String {
    let Unreceived {
        count,
        from,
        key,
        len,
    } = messages;
    let tag = key.tag;
    let message = format!("a message of {len} bytes from rank {from} with tag {tag}");
    match count {
        1 => {
            format!("MPI_Finalize on MPI_COMM_WORLD: this rank has never received {message}")
        }
        n => format!(
            "MPI_Finalize on MPI_COMM_WORLD: this rank has never received {n} messages; the first \
             is {message}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Key;

    #[test]
    fn the_first_is_named() {
        for (count, expected) in [
            (
                1,
                "has never received a message of 8 bytes from rank 4 with tag 6",
            ),
            (
                3,
                "has never received 3 messages; the first is a message of 8 bytes from rank 4 with \
                 tag 6",
            ),
        ] {
            let text = text(Unreceived {
                count,
                from: 4,
                key: Key {
                    context: ContextId::WORLD,
                    source: 1,
                    tag: 6,
                },
                len: 8,
            });
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
