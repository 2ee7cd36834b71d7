//! Partitioned communication (MPI 5.0 chapter 4): persistent messages whose partitions the program
//! releases, and sees arrive, one by one.
//!
//! The two sides match once, in the order in which they were initialised. The sender announces a
//! context of its own, its number of partitions and their size. Messages in that context carry its
//! partitions, whatever the receiver's are:
//!
//! - *Larger ones* than [`AGGREGATED_MAX_BYTES`] are a message each, whose tag is the partition's
//!   number. It is received directly into its place in the receive buffer.
//! - *Smaller ones* are aggregated: they wait until there are [`FLUSH_BYTES`] of them, until the
//!   last is released, or until the sender makes progress, as in its next wait. While they are
//!   released one right after the other, they wait for up to [`RUN_MAX_BYTES`]. Those that lie side
//!   by side then go as one message, a *run*, whose tag is the first one's number.
//!
//! The receiver does not know which run comes next. It receives into the place of the partitions
//! that are missing, if these lie side by side: mostly they come in order. A run of others is moved
//! to its place. All that it can overwrite is still to come.

mod receive;
mod send;

pub use receive::receive_init;
pub use send::send_init;

use crate::buffer::message_len;
use crate::device::ContextId;
use crate::pt2pt::PersistentBuffer;
use crate::{Result, err};
use std::time::Duration;

/// Partitions of up to so many bytes are aggregated. An estimate: larger ones cost more to copy
/// than a message of their own does.
const AGGREGATED_MAX_BYTES: u64 = 4 << 10;
/// Maximum length of a run. Shared memory still sends such a message eagerly.
const RUN_MAX_BYTES: u64 = 64 << 10;
/// So many bytes of released partitions are sent, unless the first of them was released within
/// [`BURST_MAX`].
const FLUSH_BYTES: u64 = 16 << 10;
/// Maximum time between the releases of a run's first and last partition that make it longer than
/// [`FLUSH_BYTES`]. An estimate: a message's latency between nodes.
const BURST_MAX: Duration = Duration::from_micros(5);

/// Are partitions of so many bytes aggregated? Both sides know it from the announcement.
fn is_aggregated(bytes: u64) -> bool {
    (1..=AGGREGATED_MAX_BYTES).contains(&bytes)
}

/// Operations on a partitioned request.
pub trait Partitioned: Send + Sync {
    /// Has the operation been started, and not been completed since? All other methods require it.
    fn is_active(&self) -> bool;
    /// Releases a partition of a send (MPI_Pready).
    ///
    /// Errors: no such partition, released already, or this is a receive.
    fn ready(&self, partition: i32) -> Result<()>;
    /// Has a partition of a receive arrived (MPI_Parrived)? Makes progress.
    ///
    /// Errors: no such partition, or this is a send.
    fn arrived(&self, partition: i32) -> Result<bool>;
}

/// Checks a partition's number.
fn check_partition(partition: i32, partitions: usize) -> Result<usize> {
    usize::try_from(partition)
        .ok()
        .filter(|&p| p < partitions)
        .ok_or_else(|| {
            err!(
                Arg,
                "partition is {partition}, but the operation has {partitions} partitions"
            )
        })
}

/// Bytes of an encoded [`Announcement`]: three words of 8 bytes.
const ANNOUNCEMENT_BYTES: usize = 24;
/// Set in the source of announcements. MPI_Comm_create_group uses the same context and the
/// program's tags, with plain ranks as sources.
const ANNOUNCEMENT_SOURCE: u32 = 1 << 31;

struct Announcement {
    channel: ContextId,
    partitions: u64,
    /// Bytes of one partition.
    bytes: u64,
}

impl Announcement {
    fn encode(&self) -> Box<[u8]> {
        [self.channel.0, self.partitions, self.bytes]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect()
    }
    fn decode(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Announcement {
        let field = |at: usize| {
            bytes[at..]
                .first_chunk::<8>()
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        Announcement {
            channel: ContextId(field(0)),
            partitions: field(8),
            bytes: field(16),
        }
    }
}

/// One side's buffer: `partitions` times `part.count` elements, contiguous from `part.address` on.
struct Parts {
    part: PersistentBuffer,
    partitions: usize,
}

// SAFETY: the address is the user's, lent to MPI; it is used under the device's lock.
unsafe impl Sync for Parts {}

impl Parts {
    fn address(&self, partition: usize) -> *mut u8 {
        let step = self.part.count * self.part.datatype.extent();
        self.part
            .address
            .wrapping_offset(partition as isize * step as isize)
    }
    fn bytes(&self) -> u64 {
        message_len(self.part.count, &self.part.datatype) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_reads_back() {
        let a = Announcement {
            channel: ContextId(5 << 32 | 8),
            partitions: 7,
            bytes: 1 << 33,
        };
        let bytes: [u8; ANNOUNCEMENT_BYTES] = (*a.encode()).try_into().unwrap();
        let b = Announcement::decode(&bytes);
        assert_eq!(
            (b.channel, b.partitions, b.bytes),
            (a.channel, a.partitions, a.bytes)
        );
    }
}
