//! Small puts that origins leave with a target, which writes them into its own memory when the
//! epoch ends.
//!
//! A system call takes longer than all the rest of a short epoch. Where the target takes part in
//! its end, by MPI_Win_wait or MPI_Win_fence, none is needed. Only windows of MPI_Win_create have
//! inboxes: other memory is mapped.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of an inbox. A choice: 20 puts of 8 bytes. More go by a system call.
const WORDS: usize = 63;
/// Words of a record before its bytes: address and length.
const HEAD_WORDS: usize = 2;

/// The inboxes of one member.
///
/// Two serve fences, in turns: a member that has not taken out its puts after one fence may be left
/// those for the next. Those for the fence after that are left only when it has come to the next
/// fence, and thus has taken out the first.
#[repr(C, align(64))]
pub(super) struct Inboxes {
    fences: [Inbox; 2],
    /// For MPI_Win_complete.
    pub groups: Inbox,
}

impl Inboxes {
    /// That of a fence: the first of the window has number 1.
    #[inline]
    pub fn fence(&self, number: u64) -> &Inbox {
        &self.fences[(number % 2) as usize]
    }
}

/// An inbox, in shared memory. All zeros: it is empty.
#[repr(C, align(64))]
pub(super) struct Inbox {
    /// Words that origins have reserved. If they are more than there are, the reservations from
    /// the first on that did not fit are empty.
    reserved: AtomicU64,
    /// Records. All words behind the last one are zeros.
    words: [AtomicU64; WORDS],
}

impl Inbox {
    /// Leaves puts here: addresses and lengths in `runs`, and their bytes one after the other.
    /// Returns false if there is no room; nothing is left then.
    ///
    /// The caller tells the target afterwards, with release ordering.
    pub fn leave(&self, runs: &[(u64, usize)], bytes: &[u8]) -> bool {
        let words = |len: usize| HEAD_WORDS + len.div_ceil(8);
        let needed: usize = runs.iter().map(|(_, len)| words(*len)).sum();
        if needed > WORDS {
            return false;
        }
        let at = self.reserved.fetch_add(needed as u64, Ordering::Relaxed);
        let room = usize::try_from(at).ok().and_then(|at| self.words.get(at..));
        let Some(mut room) = room.filter(|room| room.len() >= needed) else {
            return false;
        };
        let mut bytes = bytes;
        for &(address, len) in runs {
            let (own, rest) = bytes.split_at(len);
            let (record, behind) = room.split_at(words(len));
            record[0].store(address, Ordering::Relaxed);
            record[1].store(len as u64, Ordering::Relaxed);
            for (word, part) in record[HEAD_WORDS..].iter().zip(own.chunks(8)) {
                let mut whole = [0; 8];
                whole[..part.len()].copy_from_slice(part);
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            }
            (bytes, room) = (rest, behind);
        }
        true
    }

    /// Is nothing left here, and have all puts been written that were? Anyone may ask, after the
    /// origins have told it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.reserved.load(Ordering::SeqCst) == 0
    }

    /// Takes all puts, and calls `write` with the address and the bytes of each. For the target,
    /// after all origins have told it.
    pub fn take(&self, mut write: impl FnMut(u64, &[u8])) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if reserved == 0 {
            return;
        }
        let used = usize::try_from(reserved).unwrap_or(WORDS).min(WORDS);
        let mut left = &self.words[..used];
        while let Some((head, rest)) = left.split_first_chunk::<HEAD_WORDS>() {
            let [address, len] = head.each_ref().map(|word| word.load(Ordering::Relaxed));
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let words = len.div_ceil(8);
            if len == 0 || words > rest.len() {
                break;
            }
            let mut bytes = [0; 8 * WORDS];
            for (to, word) in bytes.chunks_mut(8).zip(&rest[..words]) {
                to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            write(address, &bytes[..len]);
            left = &rest[words..];
        }
        for word in &self.words[..used] {
            word.store(0, Ordering::Relaxed);
        }
        // Last: who finds it empty sees what was written.
        self.reserved.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Inbox {
        Inbox {
            reserved: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    fn taken(inbox: &Inbox) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        inbox.take(|address, bytes| all.push((address, bytes.to_vec())));
        all
    }

    #[test]
    fn puts_are_taken_once_and_in_order() {
        let inbox = empty();
        assert!(inbox.leave(&[(100, 8), (7, 3)], b"8 bytes!abc"));
        assert!(inbox.leave(&[(u64::MAX, 17)], &[9; 17]));
        let all = [
            (100, b"8 bytes!".to_vec()),
            (7, b"abc".to_vec()),
            (u64::MAX, vec![9; 17]),
        ];
        assert!(!inbox.is_empty());
        assert_eq!(taken(&inbox), all);
        assert!(inbox.is_empty());
        assert_eq!(taken(&inbox), []);
    }

    #[test]
    fn what_does_not_fit_leaves_nothing() {
        let inbox = empty();
        assert!(!inbox.leave(&[(1, 8 * WORDS)], &[1; 8 * WORDS]));
        // What an earlier use has left is not taken for a record.
        assert!(inbox.leave(&[(1, 480)], &[1; 480]));
        assert_eq!(taken(&inbox).len(), 1);
        assert!(inbox.leave(&[(2, 200)], &[2; 200]));
        assert!(!inbox.leave(&[(3, 400)], &[3; 400]));
        assert!(!inbox.leave(&[(4, 8)], &[4; 8]));
        assert_eq!(taken(&inbox), [(2, vec![2; 200])]);
        assert!(inbox.leave(&[(5, 8)], &[5; 8]));
        assert_eq!(taken(&inbox), [(5, vec![5; 8])]);
    }

    #[test]
    fn threads_leave_puts_at_once() {
        for round in 0..200u64 {
            let inbox = empty();
            let left: usize = std::thread::scope(|s| {
                let all = [0, 1, 2].map(|who: u64| {
                    let inbox = &inbox;
                    s.spawn(move || {
                        let puts = (0..20u64).filter(|put| {
                            let len = 1 + (who * 7 + put * 5 + round) as usize % 30;
                            inbox.leave(&[(who << 32 | *put, len)], &vec![who as u8; len])
                        });
                        puts.count()
                    })
                });
                all.map(|one| one.join().unwrap()).into_iter().sum()
            });
            let all = taken(&inbox);
            assert_eq!(all.len(), left);
            for who in 0..3 {
                let own: Vec<_> = all.iter().filter(|(at, _)| at >> 32 == who).collect();
                assert!(own.is_sorted_by_key(|(at, _)| *at));
                for (at, bytes) in own {
                    let len = 1 + (who * 7 + (at & 0xff) * 5 + round) as usize % 30;
                    assert!(bytes.len() == len && bytes.iter().all(|b| u64::from(*b) == who));
                }
            }
        }
    }
}
