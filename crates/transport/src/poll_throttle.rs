//! Programs whose receives come late: they receive one message after the other, each by a call of
//! its own, from a peer that has sent many.
//!
//! What is read before its receive is there is kept in memory of its own and copied once more. As
//! long as a program is so, a poll ends with each message: the program may have waited for it, and
//! post a receive for the next. Programs that have posted their receives before lose a little by
//! that, and so it ends when messages have met their receives for a while.

/// Messages in a row that have met their receives before a poll goes on behind one.
const STOPS_AFTER_UNEXPECTED: u32 = 64;

/// Of one peer: how many messages more a poll ends with.
#[derive(Default)]
pub(crate) struct PollThrottle(u32);

impl PollThrottle {
    /// One or some have come, at least one before its receive if `kept`. Returns whether the poll
    /// ends here.
    #[inline]
    pub fn stops_after(&mut self, kept: bool) -> bool {
        if kept {
            self.0 = STOPS_AFTER_UNEXPECTED;
            return true;
        }
        let ends = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_ends_with_each_message_until_receives_have_been_there_for_a_while() {
        let mut throttle = PollThrottle::default();
        assert!(!throttle.stops_after(false), "as long as none was late");
        assert!(throttle.stops_after(true));
        for _ in 0..STOPS_AFTER_UNEXPECTED {
            assert!(throttle.stops_after(false));
        }
        assert!(!throttle.stops_after(false));
    }
}
