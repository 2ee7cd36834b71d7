//! Point-to-point messages on MPI_COMM_WORLD that a process has been sent and has not received when
//! it leaves the world model. A program that leaves some is wrong (MPI 5.0 §11.2.2): it is told so,
//! and goes on. Other communicators may be those of a session that others have begun and this
//! process will begin. Messages of collectives are looked at by `coll::pending_mismatch`.

use crate::device::{ContextId, Device, Unreceived};

/// The warning about messages that have come; `None`: all have been received.
pub fn warning(device: &mut Device) -> Option<String> {
    device.unreceived(ContextId::WORLD).map(line)
}

fn line(messages: Unreceived) -> String {
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
            "MPI_Finalize on MPI_COMM_WORLD: this rank has never received {n} messages; the first is {message}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Key;

    #[test]
    fn the_first_is_named() {
        for (count, said) in [
            (
                1,
                "has never received a message of 8 bytes from rank 4 with tag 6",
            ),
            (
                3,
                "has never received 3 messages; the first is a message of 8 bytes from rank 4 with tag 6",
            ),
        ] {
            let line = line(Unreceived {
                count,
                from: 4,
                key: Key {
                    context: ContextId::WORLD,
                    source: 1,
                    tag: 6,
                },
                len: 8,
            });
            assert!(line.ends_with(said), "{line}");
        }
    }
}
