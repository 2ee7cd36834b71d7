//! What launchers of several jobs find together.

use super::*;

fn sleeping(sent: u64, received: u64) -> Sleeping {
    Sleeping {
        traffic: Traffic {
            sent,
            received,
            has_finished: false,
        },
        report: format!("job with {sent} messages\n"),
    }
}

/// The launchers of three jobs: 1 has spawned 2, and 2 is connected with 3.
fn three() -> [Peers; 3] {
    let mut one = Peers::new(1, None);
    let mut two = Peers::new(2, Some((one.link_to_spawned().unwrap(), 1)));
    let mut three = Peers::new(3, None);
    let (near, far) = UnixStream::pair().unwrap();
    two.add_link(near, true);
    three.add_link(far, true);
    [one, two, three]
}

/// All publish what they know, three times, so that each has read what the others forward.
fn publish_all(all: &mut [&mut Peers], said: &[(&[u64], Option<Sleeping>)]) {
    for _ in 0..3 {
        for (peers, (known, sleeping)) in all.iter_mut().zip(said) {
            peers.update(&known.iter().copied().collect(), sleeping.clone());
        }
    }
}

#[test]
fn jobs_hang_when_all_do_that_they_know() {
    let [mut a, mut b, mut c] = three();
    assert!(b.is_spawned() && b.family() == 1 && !c.is_spawned());
    let chain = |b| {
        let [one, three] = [Some(sleeping(3, 1)), Some(sleeping(1, 2))];
        [(&[2u64][..], one), (&[1, 3][..], b), (&[2][..], three)]
    };
    publish_all(&mut [&mut a, &mut b, &mut c], &chain(None));
    assert!(a.find_hang().is_none() && c.find_hang().is_none());
    publish_all(&mut [&mut a, &mut b, &mut c], &chain(Some(sleeping(1, 1))));
    // A message is under way.
    assert_eq!(a.find_hang(), None);
    publish_all(&mut [&mut a, &mut b, &mut c], &chain(Some(sleeping(1, 2))));
    let hang = c.find_hang().unwrap().0;
    assert_eq!(hang.jobs, BTreeSet::from([1, 2, 3]));
    // One of each family prints.
    assert_eq!(hang.printers, BTreeSet::from([1, 3]));
    assert_eq!(hang.report.lines().count(), 3);
    assert_eq!(c.families_in(&hang), (false, true));
    assert_eq!(b.families_in(&hang), (true, true));
    c.announce(&hang);
    assert_eq!(b.announced_hang(), Some(&hang));
    assert_eq!(a.announced_hang(), Some(&hang));
}

#[test]
fn disconnected_jobs_do_not_matter_to_each_other() {
    let [mut a, mut b, mut c] = three();
    let (one, other) = (sleeping(3, 1), sleeping(1, 3));
    let said = [
        (&[][..], None),
        (&[3][..], Some(one)),
        (&[2][..], Some(other)),
    ];
    publish_all(&mut [&mut a, &mut b, &mut c], &said);
    let hang = b.find_hang().unwrap().0;
    assert_eq!(hang.jobs, BTreeSet::from([2, 3]));
    assert_eq!(hang.printers, hang.jobs);
    b.announce(&hang);
    assert_eq!(c.announced_hang(), Some(&hang));
    assert_eq!(a.announced_hang(), None);
}

#[test]
fn an_ended_job_takes_no_messages() {
    let [mut a, mut b, mut c] = three();
    let said = [
        (&[2][..], Some(sleeping(3, 1))),
        (&[1, 3][..], Some(sleeping(1, 2))),
        (&[2][..], None),
    ];
    publish_all(&mut [&mut a, &mut b, &mut c], &said);
    assert_eq!(b.find_hang(), None);
    c.announce_end();
    publish_all(&mut [&mut a, &mut b], &said[..2]);
    let hang = a.find_hang().unwrap().0;
    assert_eq!(hang.jobs, BTreeSet::from([1, 2]));
    // As does one whose launcher was killed.
    drop(b);
    let alone = [(&[2][..], Some(sleeping(4, 1)))];
    publish_all(&mut [&mut a], &alone);
    assert_eq!(a.find_hang().unwrap().0.jobs, BTreeSet::from([1]));
}

#[test]
fn fuzz_messages_of_launchers() {
    let hang = Hang {
        jobs: BTreeSet::from([1, 2]),
        printers: BTreeSet::from([1]),
        report: "all hang".into(),
    };
    let statement = statement_message(7, &Statement::default());
    let seeds = [hang_message(&hang), ended_message(3), statement];
    ferry_fuzz::fuzz("messages of launchers", &seeds, |bytes| {
        let mut peers = Peers::new(1, None);
        let (near, _far) = UnixStream::pair().unwrap();
        peers.add_link(near, true);
        peers.handle_message(0, bytes);
        peers.announced_hang.is_some() || !peers.ended_jobs.is_empty()
    });
}
