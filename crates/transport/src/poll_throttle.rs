//! The unexpected-message poll throttle: while a peer's messages are unexpected, a poll takes one
//! message at a time.
//!
//! An unexpected message is kept in memory of its own and copied once more. Many are unexpected if
//! a peer has sent many and the program receives them one by one, each by a call of its own. Then a
//! poll ends with each message: the program may have waited for it, and post a receive for the
//! next. Programs that post their receives in time lose a little by that. So it ends when the
//! messages have been expected for a while.

/// Expected messages in a row after which a poll takes several again. A choice: a window of that
/// many posted receives loses only once. What the throttle gains is measured (docs/measured/shm.md,
/// docs/measured/tcp.md).
const STOPS_AFTER_UNEXPECTED: u32 = 64;

/// The throttle of one peer: the number of messages that still end a poll each.
#[derive(Default)]
pub(crate) struct PollThrottle(u32);

impl PollThrottle {
    /// Takes note of one or several messages. `unexpected`: at least one of them was. Returns
    /// whether the poll ends here.
    #[inline]
    pub fn stops_after(&mut self, unexpected: bool) -> bool {
        if unexpected {
            self.0 = STOPS_AFTER_UNEXPECTED;
            return true;
        }
        let stops = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        stops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_ends_with_each_message_until_messages_have_been_expected_for_a_while() {
        let mut throttle = PollThrottle::default();
        assert!(!throttle.stops_after(false), "none was unexpected so far");
        assert!(throttle.stops_after(true));
        for _ in 0..STOPS_AFTER_UNEXPECTED {
            assert!(throttle.stops_after(false));
        }
        assert!(!throttle.stops_after(false));
    }
}
