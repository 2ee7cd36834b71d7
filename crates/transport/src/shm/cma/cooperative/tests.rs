use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

fn table() -> &'static CopyTable {
    // SAFETY: a copy table is all atomics, for which zeros are valid.
    Box::leak(Box::new(unsafe { std::mem::zeroed() }))
}

proptest! {
    /// Each byte is copied once, whichever process copies its chunk.
    #[test]
    fn chunks_cover_the_message(len in 1u64..1 << 34, helps in prop::collection::vec(0u8..3,
        0..200)) {
        let table = table();
        let mut receiver = CopyReceiver::new(table);
        let mut begun = receiver.begin(1 << 40, 1 << 50, len).unwrap();
        let mut pieces = Vec::new();
        let mut helps = helps.into_iter();
        loop {
            let (done, chunk) = match helps.next() {
                Some(0) => match table.claim() {
                    Some((at, chunk)) => { table.complete(at, chunk); (true, Some(chunk)) }
                    None => (true, None),
                },
                Some(1) => match table.claim() {
                    Some((at, chunk)) => { table.refuse(at, chunk); (false, Some(chunk)) }
                    None => (false, None),
                },
                _ => (true, receiver.next(&mut begun)),
            };
            match chunk {
                Some(chunk) if done => pieces.push(chunk),
                Some(_) => {}
                None => break,
            }
        }
        while let Some(chunk) = receiver.next(&mut begun) {
            pieces.push(chunk);
        }
        prop_assert!(receiver.ended(&begun));
        pieces.sort_by_key(|c| c.source);
        let mut at = 0;
        for c in &pieces {
            prop_assert_eq!((c.source, c.target), ((1 << 40) + at, (1 << 50) + at));
            at += c.len;
        }
        prop_assert_eq!(at, len);
    }

    /// Whatever a peer writes on the table, assisting ends, and no chunk is outside of what the
    /// peer has named.
    #[test]
    fn nonsense_is_survived(words in prop::collection::vec(any::<u64>(), 7)) {
        let table = table();
        let copy = &table.copies[2];
        copy.source.store(words[0], Ordering::Relaxed);
        copy.target.store(words[1], Ordering::Relaxed);
        copy.len.store(words[2], Ordering::Relaxed);
        copy.chunk.store(words[3], Ordering::Relaxed);
        copy.claim.store(words[4], Ordering::Relaxed);
        copy.done.store(words[5], Ordering::Relaxed);
        copy.refused.store(words[6], Ordering::Relaxed);
        let mut helped = 0;
        while let Some((at, chunk)) = table.claim() {
            prop_assert_eq!(at, 2);
            prop_assert!(chunk.len <= words[2]);
            table.complete(at, chunk);
            helped += 1;
        }
        prop_assert!(helped <= 64);
    }
}

#[test]
fn a_full_table_says_so_and_has_room_again() {
    let mut receiver = CopyReceiver::new(table());
    let mut begun: Vec<_> = (0..COPIES_MAX as u64)
        .map(|i| receiver.begin(i, i, 100_000).unwrap())
        .collect();
    assert!(receiver.begin(9, 9, 100_000).is_none());
    let mut first = begun.remove(0);
    while receiver.next(&mut first).is_some() {}
    assert!(receiver.ended(&first));
    assert!(receiver.begin(9, 9, 100_000).is_some());
}

/// Two threads copy many messages between two arrays, one after the other, through the same slots.
#[test]
fn both_sides_at_once() {
    const LEN: usize = 1 << 20;
    let table = table();
    let source: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut target = vec![0u8; LEN];
    let copy = |c: Chunk| {
        // SAFETY: a chunk is within both arrays, and only the thread that has claimed it uses it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                c.source as *const u8,
                c.target as *mut u8,
                c.len as usize,
            )
        }
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                match table.claim() {
                    Some((at, chunk)) if chunk.number % 5 == 4 => table.refuse(at, chunk),
                    Some((at, chunk)) => {
                        copy(chunk);
                        table.complete(at, chunk);
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
        let mut receiver = CopyReceiver::new(table);
        for round in 0..300usize {
            let len = (round * 7919) % LEN + 1;
            target.fill(0);
            let mut begun = receiver
                .begin(
                    source.as_ptr() as u64,
                    target.as_mut_ptr() as u64,
                    len as u64,
                )
                .unwrap();
            while let Some(chunk) = receiver.next(&mut begun) {
                copy(chunk);
            }
            while !receiver.ended(&begun) {
                if let Some(chunk) = receiver.next(&mut begun) {
                    copy(chunk);
                }
                std::thread::yield_now();
            }
            assert!(target[..len] == source[..len], "round {round}");
            assert!(target[len..].iter().all(|&b| b == 0), "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
