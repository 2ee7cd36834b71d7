//! Messages on MPI_COMM_WORLD that a process has been sent and has not received when it leaves the
//! world model. A program that leaves some is wrong (MPI 5.0 §11.2.2): it is told so, and goes on.
//! Other communicators may be those of a session that others have begun and this process will
//! begin.

use crate::device::{ContextId, Device, Unreceived};

/// What is to be said of those that have come; `None`: all have been received.
pub fn told(device: &mut Device) -> Option<String> {
    // Who has nothing to wait for may not have looked for long.
    device.progress();
    [ContextId::WORLD, ContextId::WORLD.collective()]
        .into_iter()
        .find_map(|context| device.unreceived(context))
        .map(line)
}

fn line(messages: Unreceived) -> String {
    let Unreceived {
        count,
        from,
        key,
        len,
    } = messages;
    let how = if key.context.is_collective() {
        format!("in {}", crate::coll::called(key.tag))
    } else {
        format!("with tag {}", key.tag)
    };
    let message = format!("a message of {len} bytes from rank {from} {how}");
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
        for (count, context, said) in [
            (
                1,
                ContextId::WORLD,
                "has never received a message of 8 bytes from rank 4 with tag 6",
            ),
            (
                3,
                ContextId::WORLD.collective(),
                "has never received 3 messages; the first is a message of 8 bytes from rank 4 in \
                 MPI_Barrier",
            ),
        ] {
            let line = line(Unreceived {
                count,
                from: 4,
                key: Key {
                    context,
                    source: 1,
                    tag: 6,
                },
                len: 8,
            });
            assert!(line.ends_with(said), "{line}");
        }
    }
}
