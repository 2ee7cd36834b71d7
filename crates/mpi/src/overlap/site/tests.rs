//! Tests of a site's choice between overlapped and blocking calls.

use super::*;

fn site() -> Site {
    let key = Key {
        frames: Vec::new(),
        kind: Kind::Alltoall,
        class: 20,
    };
    Site::new([0; FRAMES_PER_SITE], key, Vec::new())
}

/// Makes `count` calls of a site. `times` gives the seconds of each call (overlapped, blocking).
/// Returns the number of overlapped calls.
fn calls(s: &mut Site, count: u64, times: impl Fn(u64) -> (f32, f32)) -> u64 {
    calls_and_later(s, count, times, |_| 0.1)
}

/// As [`calls`]. `later` gives the seconds from each call to a later one.
fn calls_and_later(
    s: &mut Site,
    count: u64,
    times: impl Fn(u64) -> (f32, f32),
    later: impl Fn(u64) -> f32,
) -> u64 {
    let mut overlapped = 0;
    for _ in 0..count {
        s.calls += 1;
        let (with, without) = times(s.calls);
        let seconds = match s.choose(true) {
            Choice::Overlap => {
                overlapped += 1;
                with
            }
            _ => without,
        };
        s.record_times(s.calls, [seconds, seconds + later(s.calls)]);
    }
    overlapped
}

#[test]
fn a_site_that_pays_overlaps_and_one_that_does_not_is_left() {
    let mut s = site();
    assert!(calls(&mut s, 1000, |_| (0.9, 1.0)) > 900);
    let mut s = site();
    assert!(calls(&mut s, 1000, |_| (1.1, 1.0)) < 20);
    let mut s = site();
    assert!(calls(&mut s, 1000, |_| (1.0, 1.0)) < 20, "no gain is none");
}

#[test]
fn the_first_calls_take_turns_unless_overlap_is_much_slower() {
    let mut s = site();
    assert_eq!(calls(&mut s, TRIAL_CALLS, |_| (1.05, 1.0)), 6);
    let mut s = site();
    assert_eq!(calls(&mut s, 2 * TRIAL_CALLS, |_| (1.6, 1.0)), 2);
}

#[test]
fn noise_in_one_call_does_not_end_the_trial_nor_decide() {
    for call in [2, 3, 6, 7, 10, 11] {
        let mut s = site();
        let slow = |n| (if n == call { 1.4 } else { 0.9 }, 1.0);
        assert_eq!(calls(&mut s, TRIAL_CALLS, slow), 6);
        assert_eq!(calls(&mut s, 8, slow), 8);
        let mut s = site();
        let fast = |n| (if n == call { 0.5 } else { 1.0 }, 1.0);
        assert_eq!(calls(&mut s, TRIAL_CALLS, fast), 6);
        assert_eq!(calls(&mut s, 8, fast), 0);
    }
}

#[test]
fn what_follows_every_second_call_decides_nothing() {
    // Something long follows each second call, with and without overlap.
    for odd in [0, 1] {
        let long = |n: u64| if n % 2 == odd { 1.0 } else { 0.0 };
        let mut s = site();
        let more = calls(&mut s, 1000, |n| (0.9 + long(n), 1.0 + long(n)));
        assert!(more > 900);
        let mut s = site();
        let more = calls(&mut s, 1000, |n| (1.05 + long(n), 1.0 + long(n)));
        assert!(more < 25);
    }
}

#[test]
fn a_site_whose_gain_is_lost_in_the_calls_that_follow_is_left() {
    let mut s = site();
    for _ in 0..1000 {
        s.calls += 1;
        let times = match s.choose(true) {
            Choice::Overlap => [0.8, 2.1],
            _ => [1.0, 2.0],
        };
        s.record_times(s.calls, times);
    }
    assert_eq!(s.pays, Some(false));
}

#[test]
fn a_site_left_blocking_is_tried_ever_more_rarely() {
    let tried: Vec<u64> = (0..2600).filter(|&n| is_retried(n)).collect();
    assert_eq!(tried, [16, 48, 112, 240, 496, 1008, 1520, 2032, 2544]);
}

#[test]
fn a_site_goes_by_what_all_have_decided() {
    let mut s = site();
    calls(&mut s, TRIAL_CALLS, |_| (1.1, 1.0));
    s.verdict.pays = Some(true);
    assert!(calls(&mut s, 100, |_| (1.1, 1.0)) > 90);
    s.verdict.pays = Some(false);
    assert!(calls(&mut s, 100, |_| (0.5, 1.0)) < 7);
}

#[test]
fn a_site_that_stops_paying_is_left_and_found_again() {
    let mut s = site();
    assert!(calls(&mut s, 200, |_| (0.9, 1.0)) > 180);
    // The site notices after a few calls.
    assert!(calls(&mut s, 200, |_| (1.3, 1.0)) < 64);
    assert!(calls(&mut s, 3000, |_| (0.8, 1.0)) > 1000);
}
