//! Models of the announcements that their sender may withdraw.

use crate::announcements::AnnouncementWords;
use crate::check;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// Sender and receiver both want to decide: exactly one does. The receiver gives back the slot if
/// and only if the sender did.
#[test]
fn one_of_the_two_decides() {
    check(3, || {
        let words = Arc::new(AnnouncementWords::free());
        words.open(5);
        let receiver = {
            let words = words.clone();
            thread::spawn(move || words.claim(5))
        };
        let withdrawn = words.withdraw(5);
        let claimed = receiver.join().unwrap();
        assert!(withdrawn != claimed);
        assert_eq!(words.take_returned(), if withdrawn { 1 << 5 } else { 0 });
    });
}

/// A slot that came back is used again, and the receiver sees what was written before: what it
/// claims the second time is the second announcement.
#[test]
fn a_slot_that_came_back_is_another_announcement() {
    check(3, || {
        let words = Arc::new(AnnouncementWords::free());
        let message = Arc::new(AtomicU32::new(1));
        words.open(0);
        let receiver = {
            let (words, message) = (words.clone(), message.clone());
            thread::spawn(move || {
                if words.claim(0) {
                    assert_eq!(message.load(Ordering::Relaxed), 1);
                    return;
                }
                for _ in 0..2 {
                    // As a later message that names the slot tells it.
                    if message.load(Ordering::Acquire) == 2 {
                        assert!(words.claim(0), "nobody withdraws the second one");
                        return;
                    }
                    thread::yield_now();
                }
            })
        };
        if words.withdraw(0) && words.take_returned() == 1 {
            words.open(0);
            message.store(2, Ordering::Release);
        }
        receiver.join().unwrap();
    });
}
