//! The queues against the plainest reading of MPI 5.0 §3.5: one list of receives and one of
//! messages, each in order, whatever the context.

use super::*;
use crate::base::key::Tags;
use crate::base::message::Content;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Arrive(Key),
    Receive(Pattern),
    Probe(Pattern),
    /// Cancels the n-th receive ever made (modulo their number).
    Withdraw(usize),
}

#[derive(Default)]
struct Reference {
    posted: Vec<(Pattern, ReqId)>,
    /// Messages with their number, which stands in the length.
    unexpected: Vec<(Key, u64)>,
}

impl Reference {
    fn arrive(&mut self, key: Key, number: u64) -> Option<ReqId> {
        match self.posted.iter().position(|(p, _)| p.accepts(&key)) {
            Some(at) => Some(self.posted.remove(at).1),
            None => {
                self.unexpected.push((key, number));
                None
            }
        }
    }
    fn receive(&mut self, pattern: Pattern, req: ReqId) -> Option<u64> {
        match self
            .unexpected
            .iter()
            .position(|(key, _)| pattern.accepts(key))
        {
            Some(at) => Some(self.unexpected.remove(at).1),
            None => {
                self.posted.push((pattern, req));
                None
            }
        }
    }
    fn probe(&self, pattern: &Pattern) -> Option<u64> {
        self.unexpected
            .iter()
            .find(|(key, _)| pattern.accepts(key))
            .map(|m| m.1)
    }
    fn withdraw(&mut self, req: ReqId) -> bool {
        let before = self.posted.len();
        self.posted.retain(|p| p.1 != req);
        self.posted.len() < before
    }
}

fn context() -> impl Strategy<Value = ContextId> {
    prop_oneof![
        3 => Just(ContextId::WORLD),
        1 => Just(ContextId::WORLD.collective()),
        1 => Just(ContextId::SELF),
        2 => (0u32..3, 2u32..5).prop_map(|(leader, n)| ContextId::new(leader, n)),
    ]
}

/// Few sources and tags, so that many match; now and then others.
fn small() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..3, 1 => any::<u32>().prop_map(|v| v >> 1)]
}

fn key() -> impl Strategy<Value = Key> {
    (context(), small(), small()).prop_map(|(context, source, tag)| Key {
        context,
        source,
        tag,
    })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![12 => small().prop_map(Some), 1 => Just(None)];
    let tag = prop_oneof![
        24 => small().prop_map(Tags::one),
        1 => small().prop_map(|tag| Tags::masked(tag, 2)),
        2 => Just(Tags::ANY),
    ];
    (context(), source, tag).prop_map(|(context, source, tag)| Pattern {
        context,
        source,
        tag,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => key().prop_map(Step::Arrive),
        8 => pattern().prop_map(Step::Receive),
        2 => pattern().prop_map(Step::Probe),
        1 => any::<usize>().prop_map(Step::Withdraw),
    ]
}

fn message(key: Key, number: u64) -> Unexpected {
    let content = Content::Rts {
        slot: None,
        sync: false,
        address: 0,
        request: 0,
    };
    Unexpected {
        key,
        from: key.source,
        len: number,
        content,
    }
}

fn follow(steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut matcher, mut reference) = (Matcher::new(), Reference::default());
    let mut made: Vec<(ContextId, ReqId)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let number = number as u64;
        match step {
            Step::Arrive(key) => {
                let matched = matcher.match_message(key);
                prop_assert_eq!(matched, reference.arrive(*key, number));
                if matched.is_none() {
                    matcher.queue_unexpected(message(*key, number));
                }
            }
            Step::Receive(pattern) => {
                let req = ReqId(made.len() as u32);
                made.push((pattern.context, req));
                let matched = matcher.match_receive(pattern);
                prop_assert_eq!(matched.map(|m| m.len), reference.receive(*pattern, req));
                if reference.posted.last().is_some_and(|p| p.1 == req) {
                    matcher.post(*pattern, req);
                }
            }
            Step::Probe(pattern) => {
                prop_assert_eq!(
                    matcher.probe(pattern).map(|e| e.len),
                    reference.probe(pattern)
                );
            }
            Step::Withdraw(at) => {
                if made.is_empty() {
                    continue;
                }
                let (context, req) = made[at % made.len()];
                prop_assert_eq!(matcher.withdraw(context, req), reference.withdraw(req));
            }
        }
    }
    for (context, req) in made {
        let posted = reference.posted.iter().find(|p| p.1 == req).map(|p| p.0);
        prop_assert_eq!(matcher.posted_pattern(context, req), posted);
        let awaited = matcher.awaited_source(context, req);
        prop_assert!(awaited.is_none() || awaited == posted.and_then(|p| p.source));
        let first = reference.posted.iter().find(|p| p.0.context == context);
        if let Some(&(pattern, first)) = first
            && first == req
            && !matcher.has_table(context)
        {
            prop_assert_eq!(awaited, pattern.source);
        }
    }
    let mut contexts: Vec<ContextId> = reference.posted.iter().map(|p| p.0.context).collect();
    contexts.extend(reference.unexpected.iter().map(|m| m.0.context));
    for context in contexts {
        let posted = reference.posted.iter().filter(|p| p.0.context == context);
        let unexpected = reference.unexpected.iter();
        let unexpected: Vec<u64> = unexpected
            .filter(|m| m.0.context == context)
            .map(|m| m.1)
            .collect();
        let found = matcher.unexpected(context).map(|m| m.len);
        prop_assert_eq!(&found.collect::<Vec<_>>(), &unexpected);
        prop_assert_eq!(matcher.lengths(context), (posted.count(), unexpected.len()));
    }
    Ok(())
}

proptest! {
    #[test]
    fn matches_like_two_plain_lists(steps in prop::collection::vec(step(), 0..400)) {
        follow(&steps)?;
    }
}

#[test]
fn long_queues_keep_their_order() {
    let mut matcher = Matcher::new();
    let key = |n: u32| Key {
        context: ContextId::WORLD,
        source: n % 7,
        tag: n % 5,
    };
    for n in 0..5000 {
        assert_eq!(matcher.match_message(&key(n)), None);
        matcher.queue_unexpected(message(key(n), n.into()));
    }
    // Picking one source empties it in order, and leaves the others in theirs.
    let pattern = |source| Pattern {
        context: ContextId::WORLD,
        source,
        tag: Tags::ANY,
    };
    for n in (3..5000).step_by(7) {
        assert_eq!(
            matcher.match_receive(&pattern(Some(3))).map(|m| m.len),
            Some(n)
        );
    }
    for n in (0..5000).filter(|n| n % 7 != 3) {
        assert_eq!(
            matcher.match_receive(&pattern(None)).map(|m| m.len),
            Some(n)
        );
    }
    assert!(matcher.probe(&pattern(None)).is_none());
}

/// A message without a receive is first in the queue, while later ones arrive and are taken.
#[test]
fn an_unmatched_message_does_not_grow_the_queue() {
    let key = |tag| Key {
        context: ContextId::WORLD,
        source: 1,
        tag,
    };
    let mut waiting = UnexpectedQueue::default();
    for tag in 0..8 {
        waiting.push(message(key(tag), tag.into()));
    }
    for tag in 8..10_000 {
        waiting.push(message(key(tag), tag.into()));
        let one = Pattern {
            context: ContextId::WORLD,
            source: Some(1).filter(|_| tag % 2 == 0),
            tag: Tags::one(tag - 7),
        };
        let taken = waiting.take(&one).map(|m| m.len);
        assert_eq!(taken, Some((tag - 7).into()));
        assert!(waiting.slots() <= 32, "{}", waiting.slots());
    }
    let left: Vec<u64> = waiting.iter().map(|m| m.len).collect();
    assert_eq!(left, [0, 9993, 9994, 9995, 9996, 9997, 9998, 9999]);
}

#[test]
fn forgetting_contexts_forgets_no_message() {
    // Many communicators in turn; every hundredth still has something waiting when they are swept.
    let mut matcher = Matcher::new();
    let context = |n: u32| ContextId::new(1, n);
    let contexts = 40_000;
    for n in 2..contexts {
        let key = Key {
            context: context(n),
            source: 0,
            tag: n,
        };
        assert_eq!(matcher.match_message(&key), None);
        if n % 200 == 0 {
            matcher.queue_unexpected(message(key, n.into()));
        } else if n % 100 == 0 {
            matcher.post(
                Pattern {
                    context: context(n),
                    source: None,
                    tag: Tags::ANY,
                },
                ReqId(n),
            );
        }
    }
    assert!(
        matcher.queues.len() < contexts as usize,
        "nothing was ever swept"
    );
    for n in (2..contexts).filter(|n| n % 100 == 0) {
        let (pattern, key) = (
            Pattern {
                context: context(n),
                source: Some(0),
                tag: Tags::one(n),
            },
            Key {
                context: context(n),
                source: 5,
                tag: 6,
            },
        );
        if n % 200 == 0 {
            assert_eq!(
                matcher.match_receive(&pattern).map(|m| m.len),
                Some(n.into())
            );
        } else {
            assert_eq!(matcher.match_message(&key), Some(ReqId(n)));
        }
    }
}
