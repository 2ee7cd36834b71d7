//! The tag of a collective's messages: a sequence number, by which they match, and the signature of
//! the call, which the receiver compares.
//!
//! ```text
//! bit 31       26 25     21 20           19        0
//!     function    root      persistent   sequence
//!     └─── signature ────┘  └────── matched ───────┘
//! ```
//!
//! The signature is the function and the root. A message from a rank that calls another function,
//! gives another root, or blocks where others do not, matches all the same and is an error there
//! (MPI 5.0 §6.1, §6.12). Open MPI's libnbc and MPICH's schedules use the sequence number alone.

use super::signature::{Form, Function, Signature};
use crate::device::Tags;
use crate::{Comm, Kind};
use std::sync::atomic::{AtomicU16, Ordering};

/// Bits of a sequence number. A number is used again after 2^20 collectives on its communicator.
const SEQUENCE_BITS: u32 = 20;
/// The lowest bits of a tag: those that decide what matches.
const MATCHED_BITS: u32 = SEQUENCE_BITS + 1;

const _: () = assert!(MATCHED_BITS + Signature::BITS == u32::BITS);

/// The last sequence number before they begin anew.
const LAST: u64 = (1 << SEQUENCE_BITS) - 1;
/// Set for persistent collectives. Theirs stay in use for long, so they are apart from the others'.
const PERSISTENT: u32 = 1 << SEQUENCE_BITS;
/// The last numbers of each round, kept for the collectives by which a communicator sets itself up.
const INTERNAL_COUNT: u64 = 6;

/// What a receive asks for that takes the message with `tag`'s number, whatever its signature.
#[inline]
pub(super) fn any_signature(tag: u32) -> Tags {
    Tags::masked(tag, (1 << MATCHED_BITS) - 1)
}

/// The signature in the tag of a collective's message.
#[inline]
pub(super) fn signature_of(tag: u32) -> Signature {
    Signature::from_bits(tag >> MATCHED_BITS)
}

/// What a receive would ask for that takes the messages of ranks that have [given
/// up](CollTag::gave_up) calls of a form, whatever their numbers.
pub(super) fn any_gave_up(form: Form) -> Tags {
    let tag = Signature::gave_up(form, Kind::Other).bits() << MATCHED_BITS;
    // The lowest bit of the root tells the kind.
    Tags::masked(tag, !0 << (MATCHED_BITS + 1))
}

/// What the tags of one collective's messages are made from.
#[derive(Clone, Copy)]
pub(crate) struct CollTag {
    /// Collectives started before on the communicator.
    sequence: u64,
    /// Collectives started before on an intercommunicator's local communicator.
    local_sequence: u64,
    signature: Signature,
}

impl CollTag {
    /// That of the next collective on `comm`. All members take their numbers in the same order.
    #[inline]
    pub(crate) fn next(comm: &Comm, function: Function, root: i32) -> CollTag {
        // The two groups of an intercommunicator name the root in different ways.
        let root = if comm.is_inter() { -1 } else { root };
        let signature = Signature::new(function, root);
        let take = |c: &Comm| loop {
            let number = c.collectives.fetch_add(1, Ordering::Relaxed);
            if number & LAST <= LAST - INTERNAL_COUNT {
                c.coll.history.record(number, signature);
                return number;
            }
        };
        CollTag {
            sequence: take(comm),
            local_sequence: comm.local.as_deref().map_or(0, take),
            signature,
        }
    }

    /// That of the `which`-th collective (below 6) by which a communicator sets itself up for the
    /// call `function`, once in its life. No call of the program's has these numbers.
    pub(crate) fn internal(which: u64, function: Function, root: i32) -> CollTag {
        CollTag {
            sequence: LAST - which,
            local_sequence: 0,
            signature: Signature::new(function, root),
        }
    }

    /// Collectives started before on its communicator. The same at all members.
    pub(crate) fn sequence(self) -> u64 {
        self.sequence
    }

    /// The program's how-manieth call on this communicator it belongs to, from 1 on. The call that
    /// sets up its communicator has not taken its number yet.
    pub(super) fn ordinal(self, comm: &Comm) -> u64 {
        1 + if is_internal(self.sequence) {
            comm.collectives.load(Ordering::Relaxed)
        } else {
            self.sequence
        }
    }

    pub(crate) fn signature(self) -> Signature {
        self.signature
    }

    /// The tags of the two messages by which a rank tells a member of `comm` that it has given up
    /// this call: one that a receive of the call takes, and one that none ever takes.
    pub(super) fn gave_up(self, kind: Kind) -> [u32; 2] {
        let form = self.signature.function().form();
        let signature = Signature::gave_up(form, kind);
        [self.sequence, LAST].map(|sequence| CollTag { signature, ..self }.with(sequence))
    }

    /// The tag of its messages in its communicator.
    #[inline]
    pub(super) fn tag(self) -> u32 {
        self.with(self.sequence)
    }

    /// The tag of its messages in an intercommunicator's local communicator.
    #[inline]
    pub(super) fn local_tag(self) -> u32 {
        self.with(self.local_sequence)
    }

    #[inline]
    fn with(self, sequence: u64) -> u32 {
        let persistent = match self.signature.function().form() {
            Form::Persistent => PERSISTENT,
            _ => 0,
        };
        (sequence & LAST) as u32 | persistent | self.signature.bits() << MATCHED_BITS
    }
}

fn is_internal(sequence: u64) -> bool {
    sequence & LAST > LAST - INTERNAL_COUNT
}

/// Calls whose signature a communicator remembers: 64 bytes. Most programs end, or meet a
/// collective in which all wait for all, soon after a mismatch.
const HISTORY_CALLS: u64 = 32;

/// The signatures of a communicator's last calls, to name them when a peer's message is found to
/// belong to another one.
#[derive(Default)]
pub(crate) struct History([AtomicU16; HISTORY_CALLS as usize]);

/// What this rank did where a peer sent a message of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnCall {
    /// A call with this signature.
    Called(Signature),
    /// It has not come to that call.
    NotCalled,
    /// It is too long ago.
    Forgotten,
}

impl History {
    #[inline]
    fn record(&self, sequence: u64, signature: Signature) {
        let at = (sequence % HISTORY_CALLS) as usize;
        self.0[at].store(signature.bits() as u16, Ordering::Relaxed);
    }

    fn get(&self, sequence: u64) -> Signature {
        let at = (sequence % HISTORY_CALLS) as usize;
        Signature::from_bits(u32::from(self.0[at].load(Ordering::Relaxed)))
    }

    /// The last one of `started` calls.
    pub(super) fn last(&self, started: u64) -> Option<Signature> {
        started.checked_sub(1).map(|sequence| self.get(sequence))
    }

    /// The own call with the number of a peer's message that has `tag`, after `started` calls.
    pub(super) fn own_call(&self, tag: u32, started: u64) -> OwnCall {
        let number = u64::from(tag) & LAST;
        // A message of its set-up bears no call's number: it belongs to the last one.
        let back = if is_internal(number) {
            1
        } else {
            started.wrapping_sub(number) & LAST
        };
        match back {
            1.. if back > started => OwnCall::NotCalled,
            1..=HISTORY_CALLS => OwnCall::Called(self.get(started - back)),
            0 => OwnCall::NotCalled,
            _ if back > LAST / 2 => OwnCall::NotCalled,
            _ => OwnCall::Forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_schedule::{Collective, Root};

    fn bcast(root: u32, form: Form) -> Function {
        let root = Root::Rank(root);
        Function::of(&Collective::Bcast { root, bytes: 1 }, form)
    }

    #[test]
    fn a_tag_has_number_signature_and_the_persistent_bit() {
        for form in [Form::Blocking, Form::NonBlocking, Form::Persistent] {
            let signature = Signature::new(bcast(3, form), 3);
            let coll = |sequence| CollTag {
                sequence,
                local_sequence: 7,
                signature,
            };
            let tag = coll(LAST + 6).tag();
            assert_eq!(signature_of(tag), signature);
            assert_eq!(tag & LAST as u32, 5);
            assert_eq!(tag & PERSISTENT != 0, form == Form::Persistent);
            assert_eq!(coll(0).local_tag() & LAST as u32, 7);
        }
    }

    #[test]
    fn the_own_call_is_found_by_the_number_of_a_message() {
        let history = History::default();
        let signature = |root| Signature::new(bcast(0, Form::Blocking), root);
        let tag = |sequence: u64| CollTag {
            sequence,
            local_sequence: 0,
            signature: signature(1),
        };
        assert_eq!(history.own_call(tag(0).tag(), 0), OwnCall::NotCalled);
        let started = LAST + 40;
        for sequence in 0..40 {
            history.record(LAST + sequence, signature((sequence % 4) as i32));
        }
        let own = |sequence| history.own_call(tag(sequence).tag(), started);
        assert_eq!(own(LAST + 39), OwnCall::Called(signature(3)));
        assert_eq!(own(LAST + 9), OwnCall::Called(signature(1)));
        assert_eq!(own(LAST + 2), OwnCall::Forgotten);
        assert_eq!(own(LAST + 40), OwnCall::NotCalled);
        assert_eq!(own(LAST + 60), OwnCall::NotCalled);
    }
}
