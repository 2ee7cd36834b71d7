//! The connections whose handshake is not over: a bounded number, each for a bounded time.

use std::time::{Duration, Instant};

/// Connections whose handshake is not over. Their number and the time of each are bounded. So
/// neither a flood nor connections that never say anything keep the job's own from coming in.
///
/// `T` is what the transport keeps for one, for example a socket and a [`crate::Handshake`]. The
/// owner feeds the handshakes and removes finished ones.
#[derive(Debug)]
pub struct HandshakeBacklog<T> {
    /// By rising id, which is the order of arrival.
    entries: Vec<Entry<T>>,
    capacity: usize,
    timeout: Duration,
    next_id: u64,
}

#[derive(Debug)]
struct Entry<T> {
    id: u64,
    deadline: Instant,
    verified: bool,
    value: T,
}

impl<T> HandshakeBacklog<T> {
    /// Room for `capacity` connections (at least 1), each for at most `timeout`.
    pub fn new(capacity: usize, timeout: Duration) -> HandshakeBacklog<T> {
        HandshakeBacklog {
            entries: Vec::new(),
            capacity: capacity.max(1),
            timeout,
            next_id: 0,
        }
    }

    /// Adds a connection and returns its id. If there is no room, the oldest one without a verified
    /// hello is evicted and returned, or the oldest of all if every hello is verified (see
    /// [`HandshakeBacklog::mark_verified`]).
    pub fn push(&mut self, value: T, now: Instant) -> (u64, Option<T>) {
        let evicted = if self.entries.len() < self.capacity {
            None
        } else {
            let at = self.entries.iter().position(|e| !e.verified).unwrap_or(0);
            Some(self.entries.remove(at).value)
        };
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push(Entry {
            id,
            deadline: now + self.timeout,
            verified: false,
            value,
        });
        (id, evicted)
    }

    /// Marks a connection whose hello is verified ([`crate::Handshake::hello_verified`]). It is
    /// evicted only after all that are not.
    pub fn mark_verified(&mut self, id: u64) {
        if let Ok(at) = self.find(id) {
            self.entries[at].verified = true;
        }
    }

    /// The connection with this id, unless it has been removed.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let at = self.find(id).ok()?;
        Some(&mut self.entries[at].value)
    }

    /// Removes a connection whose handshake is over, whether it succeeded or failed.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let at = self.find(id).ok()?;
        Some(self.entries.remove(at).value)
    }

    /// Removes one connection whose time is over. Call it until it returns `None`.
    pub fn pop_expired(&mut self, now: Instant) -> Option<T> {
        // All have the same timeout, so the oldest expires first.
        if self.entries.first()?.deadline > now {
            return None;
        }
        Some(self.entries.remove(0).value)
    }

    /// When the next connection expires.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.entries.first().map(|e| e.deadline)
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The ids of all connections, oldest first.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|e| e.id)
    }

    fn find(&self, id: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |e| e.id)
    }
}
