//! Short laps: a stream of short records that stays in the first 8 KiB of its ring, for processors
//! whose cores take long to write a line that has left the other's first-level cache.
//!
//! When the writer comes to a lap's end, it starts again at the ring's beginning if the reader has
//! read half of what lies before. It waits for that some microseconds, but not if the last such
//! wait was in vain, nor while the peer sends streams, too: it could wait in turn for this process
//! to read. Then the writer goes on, as it does without short laps.

use super::*;

/// At each multiple of this many bytes the writer starts again at the ring's beginning. The
/// first-level caches of both cores keep all lines. Measured (docs/measured/shm.md).
pub(super) const SHORT_LAP_BYTES: u64 = 8 * 1024;
/// Bytes after which the reader publishes its position, where laps are short. A choice: several
/// times a lap.
pub(super) const SHORT_LAP_PUBLISH_BYTES: u64 = SHORT_LAP_BYTES / 4;
/// Longest record of a short lap, bytes. A choice: a lap has several. The bodies of longer ones are
/// [copied past the caches](super::super::streaming_copy).
pub(super) const SHORT_LAP_RECORD_MAX_BYTES: u64 = PREFETCH_RECORD_MAX_BYTES;
/// Most lines of the opposite ring that this process reads from one boundary to the next if
/// messages count as going one way. A choice: answers to a stream, now and then.
const ONE_WAY_LINES_MAX: u32 = (SHORT_LAP_BYTES / LINE_BYTES as u64 / 16) as u32;
/// Bytes after which messages count as going one way again. A choice: more than a program has in
/// flight of short ones.
const TWO_WAY_BYTES: u64 = RING_DATA_BYTES as u64 / 4;
/// How often the writer looks whether the reader has made room in a short lap, before it goes on
/// without. A choice: a few microseconds.
const SHORT_LAP_POLLS_MAX: u32 = 400;

/// What a writer with short laps knows.
pub(super) struct ShortLaps {
    /// The position from which the present lap goes. Until the reader comes there, a lap's length
    /// is all the room.
    pub(super) begin: u64,
    /// What this process had read of the opposite ring when it last passed a boundary.
    opposite_read: u32,
    /// The position from which on messages count as going one way again.
    two_way_until: u64,
    /// The reader made room in time when the writer last needed it.
    reader_follows: bool,
    /// A split message is being written: it has found room for all its parts.
    in_split: bool,
}

impl Writer {
    /// The same for a processor whose cores take long to write a line that has left the other's
    /// first-level cache: a stream of short records begins again after a few lines. If the reader
    /// has not yet read enough of them the writer waits some microseconds, so each process must
    /// have a core of its own. Of a ring that was not written to.
    pub fn with_short_laps(mut self) -> Writer {
        self.boundary = SHORT_LAP_BYTES;
        self.short_laps = Some(ShortLaps {
            begin: 0,
            opposite_read: 0,
            two_way_until: 0,
            reader_follows: true,
            in_split: false,
        });
        self
    }

    /// Returns whether there is room, as [`Writer::has_room_for`] does, once the reader has come to
    /// the present short lap, if that does not take long.
    #[cold]
    #[inline(never)]
    pub(super) fn gets_room_for(&mut self, need: u64) -> bool {
        let in_lap = |laps: &ShortLaps| self.head < laps.begin;
        self.short_laps.as_ref().is_some_and(in_lap)
            && self.waits_for_reader(|writer| writer.has_room_for(need))
    }

    /// Looks some microseconds for what a reader that follows does soon. Returns whether it has.
    fn waits_for_reader(&mut self, has_read: impl Fn(&mut Writer) -> bool) -> bool {
        if !self
            .short_laps
            .as_ref()
            .is_some_and(|laps| laps.reader_follows)
        {
            return false;
        }
        let mut polls = 0..SHORT_LAP_POLLS_MAX;
        let follows = polls.any(|_| {
            std::hint::spin_loop();
            has_read(self)
        });
        if let Some(laps) = &mut self.short_laps {
            laps.reader_follows = follows;
        }
        follows
    }

    /// Tells whether the records written now are parts of a split message.
    pub(super) fn set_in_split(&mut self, in_split: bool) {
        if let Some(laps) = &mut self.short_laps {
            laps.in_split = in_split;
        }
    }

    /// Returns whether a short lap ends here, `end` bytes before the ring's end: messages go one
    /// way, and the reader has read at least half of what lies before. If it has not, it is waited
    /// for.
    pub(super) fn ends_short_lap(&mut self, end: u64, read: u32) -> bool {
        let Some(laps) = &mut self.short_laps else {
            return false;
        };
        let begun = RING_DATA_BYTES as u64 - end;
        let opposite_lines = read.wrapping_sub(std::mem::replace(&mut laps.opposite_read, read));
        if opposite_lines > ONE_WAY_LINES_MAX {
            laps.two_way_until = self.tail + TWO_WAY_BYTES;
        }
        // Until the reader has come there, only what it has read so far is room.
        let has_room = begun / 2 >= SHORT_LAP_RECORD_MAX_BYTES + LINE_BYTES as u64;
        if laps.in_split || !has_room || self.tail < laps.two_way_until {
            return false;
        }
        let has_read = |writer: &mut Writer| {
            writer.head = writer
                .memory
                .head()
                .load(Ordering::Acquire)
                .min(writer.tail);
            writer.tail - writer.head <= begun / 2
        };
        if has_read(self) {
            if let Some(laps) = &mut self.short_laps {
                laps.reader_follows = true;
            }
            return true;
        }
        self.waits_for_reader(has_read)
    }
}
