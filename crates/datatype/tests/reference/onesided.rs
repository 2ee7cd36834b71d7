//! What one-sided operations do with a type: encode it, copy from it and to it, visit its elements.

use crate::types::{Entry, Map, Memory, Pair, bytes, data, extent, nested};
use ferry_datatype::{Basic, Datatype, Form, TypeError};
use proptest::prelude::*;

/// Packed bytes that a test copies, all different from their neighbours.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 13 + i / 250) as u8).collect()
}

/// Returns whether no byte belongs to two elements.
fn distinct(places: &[i64]) -> bool {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|w| w[0] != w[1])
}

/// The places of `count` pairs of the type, in packed order.
fn pair_places(map: &Map, count: i64) -> Vec<i64> {
    let values: Vec<i64> = data(map).step_by(2).map(|(_, at)| at).collect();
    let ext = extent(map);
    (0..count)
        .flat_map(|i| values.iter().map(move |at| i * ext + at))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn an_encoded_type_is_the_same_type(p in nested()) {
        let encoded = p.t.encode().unwrap();
        let t = Datatype::decode(&encoded).unwrap();
        prop_assert_eq!((t.size(), t.lb(), t.extent()), (p.t.size(), p.t.lb(), p.t.extent()));
        prop_assert_eq!((t.true_lb(), t.true_extent()), (p.t.true_lb(), p.t.true_extent()));
        prop_assert_eq!((t.signature(), t.is_dense()), (p.t.signature(), p.t.is_dense()));
        prop_assert_eq!((t.uniform_basic(), t.pair()), (p.t.uniform_basic(), p.t.pair()));
        prop_assert_eq!((t.basic_kind(), t.run(1)), (p.t.basic_kind(), p.t.run(1)));
        let places = bytes(&p.map, 3);
        let mut memory = Memory::over(&places);
        let (mut packed, mut again) = (vec![0; places.len()], vec![0; places.len()]);
        // SAFETY: the memory has every byte of the elements.
        unsafe {
            p.t.pack(memory.address(), 3, 0, &mut packed);
            t.pack(memory.address(), 3, 0, &mut again);
        }
        prop_assert_eq!(packed, again);
        prop_assert_eq!(t.encode().unwrap(), encoded);
    }

    #[test]
    fn cut_and_changed_bytes_never_panic(p in nested(), at: prop::sample::Index, byte: u8) {
        let mut encoded = p.t.encode().unwrap();
        let at = at.index(encoded.len());
        let _ = Datatype::decode(&encoded[..at]);
        encoded[at] = byte;
        if let Ok(t) = Datatype::decode(&encoded) {
            prop_assert!(t.encode().is_ok());
        }
    }

    #[test]
    fn spans_cover_the_bytes(p in nested(), count in 0i64..5) {
        let places = bytes(&p.map, count);
        let low = places.iter().min().copied().unwrap_or(0);
        let end = places.iter().max().map_or(0, |p| p + 1);
        prop_assert_eq!(p.t.span(count), Ok((low, end)));
        prop_assert_eq!(p.t.packed_size(count), Ok(places.len() as i64));
    }

    #[test]
    fn copies_between_two_layouts(from in nested(), to in nested(), counts in (0i64..9, 0i64..9),
        shape in 0..4) {
        // Either side may be one run.
        let dense = |len: usize| Pair {
            t: Datatype::basic(Basic::Byte).clone(),
            map: vec![Entry::Data(Basic::Byte, 0); len.min(1)],
        };
        let (mut from, mut from_count) = (from, counts.0);
        let (mut to, mut to_count) = (to, counts.1);
        if shape & 1 == 1 {
            from_count = bytes(&from.map, from_count).len() as i64;
            from = dense(1);
        }
        if shape & 2 == 2 {
            to_count = bytes(&to.map, to_count).len() as i64;
            to = dense(1);
        }
        let (sources, targets) = (bytes(&from.map, from_count), bytes(&to.map, to_count));
        let (mut source, mut target) = (Memory::over(&sources), Memory::over(&targets));
        let packed = pattern(sources.len());
        for (at, byte) in sources.iter().zip(&packed) {
            source.bytes[(source.base + at) as usize] = *byte;
        }
        let packed: Vec<u8> = sources.iter().map(|at| source.at(*at)).collect();
        let mut expected = target.bytes.clone();
        for (at, byte) in targets.iter().zip(&packed) {
            expected[(target.base + at) as usize] = *byte;
        }
        // SAFETY: both memories have every byte of their elements.
        unsafe {
            Datatype::copy_typed(
                (source.address().cast_const(), from_count, &from.t),
                (target.address(), to_count, &to.t),
            );
        }
        prop_assert_eq!(target.bytes, expected);
    }

    #[test]
    fn copies_within_one_layout(p in nested(), count in 0i64..30) {
        let places = bytes(&p.map, count);
        prop_assume!(distinct(&places));
        let (mut source, mut target) = (Memory::over(&places), Memory::over(&places));
        target.bytes.fill(0xee);
        let mut expected = target.bytes.clone();
        for at in &places {
            expected[(target.base + at) as usize] = source.at(*at);
        }
        // SAFETY: both memories have every byte of the elements.
        unsafe {
            let from = (source.address().cast_const(), count, &*p.t);
            Datatype::copy_typed(from, (target.address(), count, &p.t));
        }
        prop_assert_eq!(target.bytes, expected);
    }

    #[test]
    fn every_element_is_visited_in_packed_order(p in nested(), count in 0i64..6) {
        let base = 1usize << 40;
        let mut seen = Vec::new();
        p.t.elements_at(std::ptr::without_provenance_mut(base), count, |at, n, stride| {
            assert!(n > 0);
            for i in 0..n as i64 {
                seen.push(at.addr() as i64 + i * stride - base as i64);
            }
        });
        let expected = match p.t.uniform_basic() {
            None => Vec::new(),
            Some(basic) if matches!(basic.form(), Form::Pair(..)) => pair_places(&p.map, count),
            Some(_) => {
                let ext = extent(&p.map);
                let places: Vec<i64> = data(&p.map).map(|(_, at)| at).collect();
                (0..count).flat_map(|i| places.iter().map(move |at| i * ext + at)).collect()
            }
        };
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn large_copies_go_through_several_chunks() {
    let int = Datatype::basic(Basic::Int);
    let from = Datatype::vector(50_000, 1, 2, int).unwrap();
    let to = Datatype::vector(25_000, 2, 3, int).unwrap();
    let source: Vec<i32> = (0..100_000).collect();
    let mut target = vec![-1; 75_000];
    // SAFETY: both hold one element of their type.
    unsafe {
        Datatype::copy_typed(
            (source.as_ptr().cast(), 1, &from),
            (target.as_mut_ptr().cast(), 1, &to),
        );
    }
    for (i, v) in target[..74_999].iter().enumerate() {
        let n = (i / 3 * 2 + i % 3) as i32;
        assert_eq!(*v, if i % 3 == 2 { -1 } else { 2 * n }, "at {i}");
    }
}

#[test]
fn single_moves_of_every_size_may_overlap() {
    let byte = Datatype::basic(Basic::Byte);
    for len in 0..80 {
        let mut memory = pattern(100);
        let mut expected = memory.clone();
        expected.copy_within(..len as usize, 5);
        // SAFETY: both runs lie in the memory.
        unsafe {
            let from = memory.as_mut_ptr();
            Datatype::copy_typed((from.cast_const(), len, byte), (from.add(5), len, byte));
        }
        assert_eq!(memory, expected, "{len} bytes");
    }
}

#[test]
fn neighbouring_elements_come_together() {
    let visits = |t: &Datatype, count| {
        let mut visits = Vec::new();
        let start = std::ptr::without_provenance_mut(4096);
        t.elements_at(start, count, |at, n, stride| {
            visits.push((at.addr() - 4096, n, stride))
        });
        visits
    };
    let double = Datatype::basic(Basic::Double);
    assert_eq!(visits(double, 1000), [(0, 1000, 8)]);
    assert_eq!(
        visits(&Datatype::contiguous(10, double).unwrap(), 7),
        [(0, 70, 8)]
    );
    assert_eq!(
        visits(&Datatype::vector(9, 1, 2, double).unwrap(), 1),
        [(0, 9, 16)]
    );
    assert_eq!(
        visits(&Datatype::vector(2, 5, 8, double).unwrap(), 1),
        [(0, 5, 8), (64, 5, 8)]
    );
    let pair = Datatype::basic(Basic::DoubleInt);
    assert_eq!(
        visits(&Datatype::contiguous(10, pair).unwrap(), 7),
        [(0, 70, 16)]
    );
    let short = Datatype::basic(Basic::ShortInt);
    assert_eq!(
        visits(&Datatype::vector(2, 3, 4, short).unwrap(), 1),
        [(0, 3, 8), (32, 3, 8)]
    );
    let long = Datatype::basic(Basic::Int64);
    let unnamed = Datatype::value_index(long, long).unwrap().unwrap();
    assert_eq!(visits(&unnamed, 3), [(0, 3, 16)]);
    assert_eq!(visits(double, -1), []);
}

#[test]
fn spans_beyond_64_bits_are_errors() {
    let int = Datatype::basic(Basic::Int);
    assert_eq!(int.span(1 << 62), Err(TypeError::Overflow("span")));
    assert_eq!(
        int.packed_size(1 << 62),
        Err(TypeError::Overflow("packed size"))
    );
    assert_eq!((int.span(-5), int.packed_size(-5)), (Ok((0, 0)), Ok(0)));
    let down = Datatype::resized(0, -8, int).unwrap();
    assert_eq!(down.span(3), Ok((-16, 4)));
    let missing = Datatype::basic(Basic::Complex4);
    assert!(matches!(missing.span(1), Err(TypeError::Unusable(_))));
    assert!(matches!(
        missing.packed_size(1),
        Err(TypeError::Unusable(_))
    ));
}
