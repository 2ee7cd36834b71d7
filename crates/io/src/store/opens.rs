//! What opens of a file tell each other, in whatever processes: by locks of bytes behind all data.
//!
//! Who sieves a write needs that all others lock theirs; who never meets a sieving one should not
//! pay for locks. Each open has a place, a byte that it locks. Who is to sieve locks all other
//! places, which only goes while nobody else has one. Who comes later gets no place, and knows that
//! its writes have to be locked.
//!
//! ```text
//! open A enters     x........   writes without locks
//! open A claims     xxxxxxxxx   sieves under locks
//! open B enters     refused     locks its writes, sieves none
//! ```
//!
//! The locks are those of the open file (`F_OFD_SETLK`). They end with it.

use rustix::io::Errno;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The places. The last byte that can be locked is not among them (`keep_writes_to_their_bytes`).
pub(super) const PLACES: Range<u64> = i64::MAX as u64 - 1 - (1 << 32)..i64::MAX as u64 - 1;

/// How an open has entered a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// At this place. Nobody sieves writes but who claims the file for this place.
    At(u64),
    /// Another open has claimed the file before.
    Late,
}

/// Sets or ends the lock of places. Returns whether that went.
fn set(fd: BorrowedFd<'_>, kind: i32, places: Range<u64>) -> io::Result<bool> {
    if places.is_empty() {
        return Ok(true);
    }
    let lock = of_range(kind, &places);
    // SAFETY: the descriptor is open, and the call only reads the structure.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        _ => Err(error),
    }
}

fn of_range(kind: i32, range: &Range<u64>) -> libc::flock {
    // SAFETY: all fields are numbers, and zeros are a value of each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = range.start as i64;
    lock.l_len = (range.end - range.start) as i64;
    lock
}

/// Takes a place at random. Two opens that hit on the same one are no harm: the second is late.
pub(super) fn enter(fd: BorrowedFd<'_>) -> io::Result<Entry> {
    let random = RandomState::new().hash_one(fd.as_raw_fd());
    let place = PLACES.start + random % (PLACES.end - PLACES.start);
    if set(fd, libc::F_WRLCK, place..place + 1)? {
        return Ok(Entry::At(place));
    }
    let mut other = of_range(libc::F_WRLCK, &(place..place + 1));
    // SAFETY: the descriptor is open, and the structure is the call's.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut other) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A lock of all the file is a program's own: Ferry's writes must not wait for it.
    let claimed =
        other.l_type == libc::F_UNLCK as libc::c_short || other.l_start >= PLACES.start as i64;
    match claimed {
        true => Ok(Entry::Late),
        false => Err(Errno::NOLCK.into()),
    }
}

/// Locks all places but one. By one thread at a time.
pub(super) fn claim(fd: BorrowedFd<'_>, place: u64) -> io::Result<bool> {
    let below = PLACES.start..place;
    if !set(fd, libc::F_WRLCK, below.clone())? {
        return Ok(false);
    }
    match set(fd, libc::F_WRLCK, place + 1..PLACES.end) {
        Ok(true) => Ok(true),
        other => {
            // Unlocking what is locked cannot fail, but for a server that is gone.
            let _ = set(fd, libc::F_UNLCK, below);
            other
        }
    }
}

/// Unlocks all places.
pub(super) fn leave(fd: BorrowedFd<'_>) {
    let _ = set(fd, libc::F_UNLCK, PLACES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    fn opens(name: &str) -> [File; 3] {
        let path = std::env::temp_dir().join(format!("ferry-opens-{name}-{}", std::process::id()));
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let opens = [open(), open(), open()];
        std::fs::remove_file(&path).unwrap();
        opens
    }

    fn place(file: &File) -> u64 {
        match enter(file.as_fd()).unwrap() {
            Entry::At(place) => place,
            Entry::Late => panic!("the file is claimed"),
        }
    }

    #[test]
    fn who_is_alone_may_claim_and_later_ones_are_late() {
        let [a, b, c] = opens("late");
        let place_of_a = place(&a);
        assert!(claim(a.as_fd(), place_of_a).unwrap() && claim(a.as_fd(), place_of_a).unwrap());
        assert_eq!(enter(b.as_fd()).unwrap(), Entry::Late);
        leave(a.as_fd());
        let place_of_c = place(&c);
        assert!(claim(c.as_fd(), place_of_c).unwrap());
    }

    #[test]
    fn nobody_claims_while_two_have_entered() {
        let [a, b, c] = opens("two");
        let (place_of_a, place_of_b) = (place(&a), place(&b));
        assert!(!claim(a.as_fd(), place_of_a).unwrap());
        assert!(!claim(b.as_fd(), place_of_b).unwrap());
        // Nothing is left of a claim that failed.
        let place_of_c = place(&c);
        leave(a.as_fd());
        leave(b.as_fd());
        assert!(claim(c.as_fd(), place_of_c).unwrap());
    }

    #[test]
    fn another_process_of_the_group_may_claim() {
        let [a, b, c] = opens("group");
        let place_of_a = place(&a);
        assert!(claim(b.as_fd(), place_of_a).unwrap());
        assert_eq!(enter(c.as_fd()).unwrap(), Entry::Late);
    }

    #[test]
    fn a_lock_of_all_the_file_is_not_taken_for_a_claim() {
        let [a, b, _] = opens("all");
        assert!(set(a.as_fd(), libc::F_WRLCK, 0..i64::MAX as u64).unwrap());
        assert!(enter(b.as_fd()).is_err());
    }
}
