//! Floods and silence at the door.

use std::time::{Duration, Instant};

use ferry_auth::{HandshakeBacklog, Rejected, RejectionCounts};

#[test]
fn a_flood_pushes_itself_out_and_not_those_who_know_the_key() {
    let now = Instant::now();
    let mut backlog = HandshakeBacklog::new(4, Duration::from_secs(5));
    let (friend, none) = backlog.push("friend".to_owned(), now);
    assert_eq!(none, None);
    backlog.mark_verified(friend);
    let mut pushed = Vec::new();
    for i in 0..100 {
        pushed.extend(backlog.push(format!("flood {i}"), now).1);
        assert!(backlog.len() <= 4);
    }
    assert_eq!(
        pushed,
        (0..97).map(|i| format!("flood {i}")).collect::<Vec<_>>()
    );
    assert_eq!(backlog.remove(friend).as_deref(), Some("friend"));
    assert_eq!(backlog.remove(friend), None);
}

#[test]
fn replayed_hellos_cannot_fill_it_for_good() {
    let now = Instant::now();
    let mut backlog = HandshakeBacklog::new(3, Duration::from_secs(5));
    for i in 0..3 {
        let (id, _) = backlog.push(i, now);
        backlog.mark_verified(id);
    }
    // All have shown a good hello: the one that has waited longest goes.
    let (new, out) = backlog.push(3, now);
    assert_eq!(out, Some(0));
    assert_eq!(backlog.get_mut(new), Some(&mut 3));
    assert_eq!(backlog.ids().count(), 3);
}

#[test]
fn silence_ends() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut backlog = HandshakeBacklog::new(10, 5 * second);
    assert_eq!(
        (backlog.next_deadline(), backlog.pop_expired(start)),
        (None, None)
    );
    let (first, _) = backlog.push('a', start);
    backlog.push('b', start + second);
    assert_eq!(backlog.next_deadline(), Some(start + 5 * second));
    assert_eq!(backlog.pop_expired(start + 4 * second), None);
    assert_eq!(backlog.pop_expired(start + 5 * second), Some('a'));
    assert_eq!(backlog.pop_expired(start + 5 * second), None);
    assert_eq!(backlog.pop_expired(start + 60 * second), Some('b'));
    assert!(backlog.is_empty() && backlog.get_mut(first).is_none());
}

#[test]
fn what_was_refused_is_counted_and_said_seldom() {
    let mut counts = RejectionCounts::default();
    assert_eq!(counts.to_string(), "0 connections refused");
    let said: Vec<u64> = (1..=1500)
        .filter(|_| counts.count(Rejected::UnknownProtocol))
        .collect();
    assert_eq!(said, [1, 10, 100, 1000]);
    assert_eq!(
        (
            counts.of(Rejected::UnknownProtocol),
            counts.of(Rejected::TimedOut)
        ),
        (1500, 0)
    );
    for why in [
        Rejected::Version { theirs: 2 },
        Rejected::Proof,
        Rejected::Job,
        Rejected::Process,
        Rejected::Crossed,
        Rejected::Purpose,
        Rejected::Encryption,
        Rejected::Randomness,
        Rejected::TimedOut,
        Rejected::BacklogFull,
        Rejected::Closed,
    ] {
        counts.count(why);
        assert!(!why.to_string().is_empty());
    }
    assert_eq!(
        (counts.total(), counts.misdirected, counts.version),
        (1511, 5, 1)
    );
    assert_eq!(
        counts.to_string(),
        "1511 connections refused (1500 spoke something else, 1 of another version, \
         1 without proof, 5 misdirected, 1 crossed, 1 too slow, 1 too many at once, 1 gone early)"
    );
}
