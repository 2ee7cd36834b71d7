//! The reading side of a ring.

use super::*;

impl Reader {
    /// The reading end of the ring at `memory`.
    ///
    /// # Safety
    /// As for [`Writer::new`], and this is its only reader.
    pub unsafe fn new(memory: Base) -> Reader {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(memory) };
        Reader {
            memory,
            head: 0,
            peeked: 0,
            published: 0,
            publish_bytes: PUBLISH_BYTES,
            told: 0,
            lap_start: 0,
        }
    }

    /// The same for a writer [with short laps](Writer::with_short_laps): it soon needs to know what
    /// was read.
    pub fn with_short_laps(mut self) -> Reader {
        self.publish_bytes = SHORT_LAP_PUBLISH_BYTES;
        self
    }

    /// Returns whether a record is there, or the mark that skips the ring's end.
    #[inline]
    pub fn ready(&self) -> bool {
        self.memory.word(self.head).load(Ordering::Acquire) != 0
    }

    /// Returns whether all of the ring has been read at least once, so that its pages are there.
    #[inline]
    pub fn has_read_all_once(&self) -> bool {
        self.head - self.lap_start >= RING_DATA_BYTES as u64
    }

    /// How far this process has read: low bits, in lines. The caller tells it to the peer.
    #[inline]
    pub fn tell(&mut self) -> u32 {
        self.told = self.head;
        (self.head / LINE_BYTES as u64) as u32
    }

    /// Returns the next record. [`Reader::release`] frees it.
    #[inline]
    pub fn peek(&mut self) -> Found<'_> {
        loop {
            let w = self.memory.word(self.head).load(Ordering::Acquire);
            if w == 0 {
                return Found::Nothing;
            }
            let (message, shape) = ((w >> 16) & 0xff, Shape::of(w));
            let (offset, len) = (shape.payload_offset, shape.len);
            if w & VALID == 0 || len > RECORD_MAX_BYTES || !(8..=LINE_BYTES).contains(&offset) {
                return Found::Malformed;
            }
            if message == SKIP {
                if !self.skip_end() {
                    return Found::Malformed;
                }
                continue;
            }
            if shape.span() > to_end(self.head) {
                return Found::Malformed;
            }
            self.peeked = shape.span();
            // SAFETY: the writer published these bytes with the word and does not touch them before
            // `head` passes them.
            let bytes = unsafe { self.memory.bytes(self.head, offset, len) };
            return Found::Record {
                message: message as u8,
                bytes,
                more: w & MORE != 0,
                in_cell: w & IN_CELL != 0,
                read: (w >> 24) as u32,
            };
        }
    }

    /// Goes on at the ring's beginning. False: the reader is there already, so the mark is
    /// nonsense.
    #[cold]
    #[inline(never)]
    fn skip_end(&mut self) -> bool {
        let end = to_end(self.head);
        // A peer that writes only marks must not send its reader around for ever.
        if end == RING_DATA_BYTES as u64 {
            return false;
        }
        let whole = self.has_read_all_once() || end < SPAN_MAX_BYTES;
        self.head += end;
        if !whole {
            self.lap_start = self.head;
        }
        true
    }

    /// Frees the record last peeked at. True: the writer sleeps for room, and the caller must wake
    /// it.
    #[inline]
    pub fn release(&mut self) -> bool {
        self.head += std::mem::take(&mut self.peeked);
        let since = self.head - self.published;
        let told = self.head - self.told < self.publish_bytes;
        if since < self.publish_bytes || told && since < PUBLISH_BYTES {
            return false;
        }
        self.publish()
    }

    /// Publishes the reader's position. True: the writer must be woken.
    fn publish(&mut self) -> bool {
        self.published = self.head;
        self.memory.head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        self.must_wake()
    }

    /// Returns whether the writer sleeps for room and must be woken now that there is some. What
    /// made room must have been written with a full barrier.
    #[inline]
    pub fn must_wake(&self) -> bool {
        let wakeup_requested = self.memory.wakeup_requested();
        wakeup_requested.load(Ordering::Relaxed) != 0
            && wakeup_requested.swap(0, Ordering::SeqCst) != 0
    }
}
