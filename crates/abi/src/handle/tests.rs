//! Handles against a model, and from several threads.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Operations of a program on handles.
#[derive(Clone, Debug)]
enum Step {
    Insert(u32, bool),
    /// Frees one of the handles made so far. It may be free already.
    Remove(prop::sample::Index, bool),
    /// Looks up arbitrary bits.
    Look(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<u32>(), any::<bool>()).prop_map(|(v, a)| Step::Insert(v, a)),
        3 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(w, a)| Step::Remove(w, a)),
        1 => any::<u64>().prop_map(Step::Look),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn it_is_a_map_from_handles_never_used_twice(steps in steps()) {
        let table: Table<u32> = Table::new();
        let (mut made, mut live) = (Vec::new(), HashMap::new());
        for step in steps {
            match step {
                Step::Insert(value, alone) => {
                    let handle = table.insert_if(alone, 9, value);
                    prop_assert!(!made.contains(&handle));
                    made.push(handle);
                    live.insert(handle, value);
                }
                Step::Remove(which, alone) if !made.is_empty() => {
                    let handle = *which.get(&made);
                    prop_assert_eq!(table.remove_if(alone, handle), live.remove(&handle));
                }
                Step::Remove(..) => {}
                Step::Look(bits) => prop_assert_eq!(table.get(bits), live.get(&bits)),
            }
        }
        for handle in made {
            prop_assert_eq!(table.get(handle), live.get(&handle));
            let early = (handle as u32) < 64;
            let found = live.get(&handle).filter(|_| early);
            prop_assert_eq!(table.get_early(handle), found);
        }
    }
}

#[test]
fn a_handle_finds_its_value_until_it_is_freed() {
    let table: Table<String> = Table::new();
    let a = table.insert(3, "a".into());
    let b = table.insert(3, "b".into());
    assert!(a >= PREDEFINED && a != b);
    assert_eq!(table.get(a).map(String::as_str), Some("a"));
    assert_eq!(table.remove(a).as_deref(), Some("a"));
    assert_eq!(table.get(a), None);
    assert_eq!(table.remove(a), None);
    let c = table.insert(3, "c".into());
    assert_eq!(c as u32, a as u32, "the slot is used again");
    assert_ne!(c, a);
    assert_eq!(table.get(a), None);
    assert_eq!(table.get(b).map(String::as_str), Some("b"));
}

#[test]
fn made_up_handles_are_recognised() {
    let table: Table<u8> = Table::new();
    let h = table.insert(5, 1);
    for bad in [
        0,
        1,
        4095,
        4096,
        u64::MAX,
        h ^ 1 << 32,
        h ^ 1 << 56,
        h + 1,
        h & 0xffff_ffff,
        0x7fff_1234_5678,
    ] {
        assert_eq!(table.get(bad), None, "{bad:#x}");
        assert_eq!(table.remove(bad), None, "{bad:#x}");
    }
    assert_eq!(table.handle_at(h as u32), Some(h));
    table.remove(h);
    assert_eq!(table.handle_at(h as u32), None);
    assert_eq!(table.handle_at(u32::MAX), None);
}

#[test]
fn it_grows_over_its_chunks() {
    let table: Table<u32> = Table::new();
    let all: Vec<_> = (0..5000).map(|n| table.insert(1, n)).collect();
    for (n, h) in all.iter().enumerate() {
        assert_eq!(table.get(*h), Some(&(n as u32)));
    }
    let places: std::collections::HashSet<_> =
        (0..5000).map(Table::<u32>::chunk_and_offset).collect();
    assert_eq!(places.len(), 5000);
}

#[test]
fn threads_share_it() {
    static TABLE: Table<u64> = Table::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut mine = Vec::new();
                for n in 0..2000 {
                    mine.push((TABLE.insert(2, thread << 32 | n), thread << 32 | n));
                    if n % 3 == 0 {
                        let (h, v) = mine.swap_remove(mine.len() / 2);
                        assert_eq!(TABLE.remove(h), Some(v));
                    }
                }
                for (h, v) in mine {
                    assert_eq!(TABLE.get(h), Some(&v));
                    assert_eq!(TABLE.remove(h), Some(v));
                }
            });
        }
    });
}

#[test]
fn an_index_finds_the_value_that_has_it_now() {
    for alone in [false, true] {
        let table: Table<u32> = Table::new();
        let first = table.insert_if(alone, 3, 10);
        let index = first as u32;
        assert_eq!(table.get_at(index), Some(&10));
        assert_eq!(table.remove_at_if(alone, index), Some(10));
        assert_eq!((table.get_at(index), table.get(first)), (None, None));
        assert_eq!(table.remove_at_if(alone, index), None);
        // The next value gets the index, under another handle.
        let second = table.insert_if(alone, 3, 20);
        assert!(second as u32 == index && second != first);
        assert_eq!((table.get_at(index), table.get(first)), (Some(&20), None));
        assert_eq!(table.get_at(index + 1), None);
        assert_eq!(table.remove_at_if(alone, 1 << 30), None);
    }
}
