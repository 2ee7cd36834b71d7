//! Floods and silence at the door.

use std::time::{Duration, Instant};

use ferry_auth::{Drops, Porch, Rejected};

#[test]
fn a_flood_pushes_itself_out_and_not_those_who_know_the_key() {
    let now = Instant::now();
    let mut porch = Porch::new(4, Duration::from_secs(5));
    let (friend, none) = porch.enter("friend".to_owned(), now);
    assert_eq!(none, None);
    porch.know(friend);
    let mut pushed = Vec::new();
    for i in 0..100 {
        pushed.extend(porch.enter(format!("flood {i}"), now).1);
        assert!(porch.len() <= 4);
    }
    assert_eq!(
        pushed,
        (0..97).map(|i| format!("flood {i}")).collect::<Vec<_>>()
    );
    assert_eq!(porch.leave(friend).as_deref(), Some("friend"));
    assert_eq!(porch.leave(friend), None);
}

#[test]
fn replayed_hellos_cannot_fill_it_for_good() {
    let now = Instant::now();
    let mut porch = Porch::new(3, Duration::from_secs(5));
    for i in 0..3 {
        let (ticket, _) = porch.enter(i, now);
        porch.know(ticket);
    }
    // All have shown a good hello: the one that has waited longest goes.
    let (new, out) = porch.enter(3, now);
    assert_eq!(out, Some(0));
    assert_eq!(porch.one(new), Some(&mut 3));
    assert_eq!(porch.tickets().count(), 3);
}

#[test]
fn silence_ends() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut porch = Porch::new(10, 5 * second);
    assert_eq!((porch.deadline(), porch.late(start)), (None, None));
    let (first, _) = porch.enter('a', start);
    porch.enter('b', start + second);
    assert_eq!(porch.deadline(), Some(start + 5 * second));
    assert_eq!(porch.late(start + 4 * second), None);
    assert_eq!(porch.late(start + 5 * second), Some('a'));
    assert_eq!(porch.late(start + 5 * second), None);
    assert_eq!(porch.late(start + 60 * second), Some('b'));
    assert!(porch.is_empty() && porch.one(first).is_none());
}

#[test]
fn what_was_refused_is_counted_and_said_seldom() {
    let mut drops = Drops::default();
    assert_eq!(drops.to_string(), "0 connections refused");
    let said: Vec<u64> = (1..=1500)
        .filter(|_| drops.count(Rejected::Stranger))
        .collect();
    assert_eq!(said, [1, 10, 100, 1000]);
    assert_eq!(
        (drops.of(Rejected::Stranger), drops.of(Rejected::Late)),
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
        Rejected::Late,
        Rejected::Crowded,
        Rejected::Closed,
    ] {
        drops.count(why);
        assert!(!why.to_string().is_empty());
    }
    assert_eq!(
        (drops.total(), drops.misdirected, drops.versions),
        (1511, 5, 1)
    );
    assert_eq!(
        drops.to_string(),
        "1511 connections refused (1500 spoke something else, 1 of another version, 1 without proof, 5 misdirected, \
         1 crossed, 1 too slow, 1 too many at once, 1 gone early)"
    );
}
