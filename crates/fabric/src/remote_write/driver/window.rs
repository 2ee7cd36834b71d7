//! Segments of the rank's window, and PUT into those of others.
//!
//! The window is pinned memory with contiguous physical addresses, so an entry of any length can be
//! written into it, and nothing is locked or translated. The card has no get, and it does not tell
//! when bytes have been written: a message that follows does not overtake them.

use super::{Posted, RemoteWriteDriver};
use crate::kernel::{Client, Event, Rank};
use crate::mapped_window::MappedWindow;
use crate::remote_memory::{Offer, RemoteError, RemoteMemory, SegmentKey};
use crate::remote_write::entry::{DONE, NOTICE_AT, OPEN, SEGMENT, WAKE, WINDOW_AT, head};
use crate::remote_write::figures::Figures;
use std::collections::VecDeque;
use std::ops::Range;

/// What the driver keeps of its window.
pub(super) struct Window {
    memory: MappedWindow,
    /// Events that came while a put waited for an entry.
    postponed: VecDeque<Event>,
    notifications: VecDeque<(Rank, u8)>,
}

impl Window {
    pub fn new(f: &Figures) -> Window {
        Window {
            memory: MappedWindow::new(f.window_bytes()),
            postponed: VecDeque::new(),
            notifications: VecDeque::new(),
        }
    }

    /// Returns whether no event was postponed.
    pub fn is_idle(&self) -> bool {
        self.postponed.is_empty()
    }

    /// The next event: one that was postponed, or the client's.
    pub fn next_event(&mut self, c: &mut Client) -> Option<Event> {
        self.postponed.pop_front().or_else(|| c.event())
    }

    /// A peer has notified this rank.
    pub fn notified(&mut self, from: Rank, number: u8) {
        self.notifications.push_back((from, number));
    }
}

impl RemoteWriteDriver {
    /// Blocks until the LME has room for an entry. The card alone makes that room.
    fn await_entry(&mut self, c: &mut Client) {
        while !self.has_entry() {
            c.charge("polling", self.f.poll.value);
            c.sync();
            let mut ended = false;
            while let Some(event) = c.event() {
                if event.kind != DONE {
                    self.window.postponed.push_back(event);
                    continue;
                }
                ended = true;
                if let (Some(interrupt), [WAKE]) = (&self.f.interrupt, &event.bytes[..]) {
                    c.charge("interrupts", interrupt.value);
                }
                if let Some(Posted::Data { to, stream, len }) = self.posted.pop_front() {
                    self.on_data_sent(to, stream, len);
                }
            }
            if !ended {
                c.wait(self.f.poll.value);
            }
        }
    }
}

impl RemoteMemory for RemoteWriteDriver {
    fn offer(&self) -> Offer {
        Offer {
            // The card does less for a put than for a message, whatever its length.
            put_max: usize::MAX,
            get_max: 0,
            flush: false,
            notify: true,
            strided: false,
        }
    }

    fn range(&self, c: &Client) -> Range<usize> {
        MappedWindow::range(c)
    }

    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize> {
        self.window.memory.allocate(c, bytes, alignment)
    }

    fn release(&mut self, c: &Client, address: usize) -> bool {
        self.window.memory.release(c, address)
    }

    fn register(&mut self, c: &mut Client, address: usize, bytes: usize) -> Option<SegmentKey> {
        let at = WINDOW_AT + MappedWindow::offset(c, address, bytes)?;
        let bytes = bytes as u64;
        c.command(SEGMENT, &[&head(0, OPEN, at), &bytes.to_le_bytes()]);
        Some(SegmentKey { at, bytes })
    }

    fn deregister(&mut self, c: &mut Client, key: SegmentKey) {
        c.command(SEGMENT, &[&head(0, 0, key.at), &key.bytes.to_le_bytes()]);
    }

    fn put(
        &mut self,
        c: &mut Client,
        to: Rank,
        key: SegmentKey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        let at = key.address(offset, bytes.len())?;
        let entry_max = self.f.entry.value.0 as usize;
        let shared = self.shared_memory(to).is_some();
        for (number, part) in (0..).zip(bytes.chunks(entry_max)) {
            self.await_entry(c);
            if shared {
                c.charge("copying", self.copy_rate(to).time_of(part.len() as u64));
            }
            let at = at + number * entry_max as u64;
            self.put_entry(c, to, false, at, &[part], Posted::Window);
        }
        Ok(())
    }

    fn get(
        &mut self,
        _c: &mut Client,
        _from: Rank,
        _key: SegmentKey,
        _offset: u64,
        _into: &mut [u8],
    ) -> Result<(), RemoteError> {
        Err(RemoteError::NotOffered)
    }

    fn flush(&mut self, _c: &mut Client, _peer: Rank) -> Result<(), RemoteError> {
        Err(RemoteError::NotOffered)
    }

    fn notify(&mut self, c: &mut Client, peer: Rank, number: u8) -> Result<(), RemoteError> {
        self.await_entry(c);
        let at = NOTICE_AT + u64::from(number);
        self.put_entry(c, peer, true, at, &[], Posted::Window);
        Ok(())
    }

    fn notification(&mut self) -> Option<(Rank, u8)> {
        self.window.notifications.pop_front()
    }
}
