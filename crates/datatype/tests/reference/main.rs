//! Random nested datatypes against a naive reference: explicit type maps, built by the standard's
//! rules alone.

mod onesided;
mod types;

use ferry_datatype::{Basic, Datatype, Signature, Width};
use proptest::prelude::*;
use types::{Memory, bytes, data, extent, lb, nested};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn measures(p in nested()) {
        let (t, map) = (&p.t, &p.map);
        prop_assert_eq!(t.size(), data(map).map(|(b, _)| b.size()).sum::<i64>());
        prop_assert_eq!(t.lb(), lb(map));
        prop_assert_eq!(t.extent(), extent(map));
        let low = data(map).map(|(_, d)| d).min().unwrap_or(0);
        let high = data(map).map(|(b, d)| d + b.size()).max().unwrap_or(0);
        prop_assert_eq!((t.true_lb(), t.true_extent()), (low, high - low));
        let signature = data(map).fold(Signature::EMPTY, |s, (b, _)| s.then(Signature::of(b)));
        prop_assert_eq!(t.signature(), signature);
        let places = bytes(map, 3);
        let dense = places.iter().enumerate().all(|(i, p)| *p == i as i64);
        prop_assert_eq!(t.is_dense(), dense || t.size() == 0);
        if let Some((start, len)) = t.run(3) {
            prop_assert_eq!(len, places.len() as u64);
            prop_assert!(places.iter().enumerate().all(|(i, p)| *p == start + i as i64));
        }
        if let Some(b) = t.uniform_basic() {
            prop_assert!(b.class() == ferry_datatype::Class::Pair || data(map).all(|(e, _)|
                e == b));
        }
    }

    #[test]
    fn packing_from_any_offset(p in nested(), count in 0i64..12, from: u16, len: u16,
        commit: bool) {
        let places = bytes(&p.map, count);
        if commit {
            p.t.commit();
        }
        let mut memory = Memory::over(&places);
        let from = from as usize % (places.len() + 2);
        let len = len as usize % (places.len() + 2);
        let mut out = vec![0xee; len];
        // SAFETY: the memory has every byte of the elements.
        let n = unsafe { p.t.pack(memory.address(), count, from as u64, &mut out) };
        let expected: Vec<u8> = places.iter().skip(from).take(len).map(|p| memory.at(*p)).collect();
        prop_assert_eq!(n, expected.len());
        prop_assert_eq!(&out[..n], &expected[..]);
        prop_assert!(out[n..].iter().all(|b| *b == 0xee));
    }

    #[test]
    fn unpacking_in_pieces(p in nested(), count in 0i64..12, piece in 1usize..900) {
        let places = bytes(&p.map, count);
        let mut memory = Memory::over(&places);
        let before = memory.bytes.clone();
        let message: Vec<u8> = (0..places.len()).map(|i| (i * 11 + i / 200) as u8).collect();
        for (i, part) in message.chunks(piece).enumerate() {
            // SAFETY: the memory has every byte of the elements.
            let n = unsafe { p.t.unpack(memory.address(), count, (i * piece) as u64, part) };
            prop_assert_eq!(n, part.len());
        }
        let mut expected = before;
        for (b, p) in message.iter().zip(&places) {
            expected[(memory.base + p) as usize] = *b;
        }
        prop_assert_eq!(&memory.bytes, &expected);
    }

    #[test]
    fn runs_cover_the_same_bytes(p in nested(), count in 0i64..4, from: u16, room in 1usize..20) {
        let places = bytes(&p.map, count);
        let base = 1usize << 40;
        let mut offset = from as usize % (places.len() + 1);
        let mut seen = Vec::new();
        let start = offset;
        loop {
            let mut runs = Vec::with_capacity(room);
            let room = runs.capacity();
            let n = p.t.runs(std::ptr::without_provenance_mut(base), count, offset as u64,
                &mut runs);
            prop_assert!(runs.len() <= room);
            prop_assert_eq!(runs.iter().map(|r| r.1 as u64).sum::<u64>(), n);
            seen.extend(runs.iter().flat_map(|(p, len)| {
                let first = p.addr() as i64 - base as i64;
                first..first + *len as i64
            }));
            offset += n as usize;
            if n == 0 {
                break;
            }
        }
        prop_assert_eq!(&seen[..], &places[start..]);
    }

    #[test]
    fn elements(p in nested(), whole in 0u64..3, part: u16) {
        let sizes: Vec<u64> = data(&p.map).map(|(b, _)| b.size() as u64).collect();
        let size: u64 = sizes.iter().sum();
        prop_assume!(size > 0);
        let leaves = part as usize % sizes.len();
        let bytes = whole * size + sizes[..leaves].iter().sum::<u64>();
        let elements = whole * sizes.len() as u64 + leaves as u64;
        prop_assert_eq!(p.t.elements_in(bytes), Some(elements));
        prop_assert_eq!(p.t.bytes_of_elements(elements), Some(bytes));
        if sizes[leaves] > 1 {
            prop_assert_eq!(p.t.elements_in(bytes + 1), None);
        }
        prop_assert_eq!(p.t.count_in(bytes), bytes.is_multiple_of(size).then_some(bytes / size));
    }

    #[test]
    fn external32_there_and_back(p in nested(), count in 0i64..3) {
        // Distinct places only: what was written twice does not come back.
        let places = bytes(&p.map, count);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assume!(sorted.len() == places.len());
        let mut memory = Memory::over(&places);
        // Zero bytes are valid values of every type, and so are small numbers in the lowest byte.
        memory.bytes.fill(0);
        let ext = extent(&p.map);
        for i in 0..count {
            for (k, (b, d)) in data(&p.map).enumerate() {
                if b != Basic::LongDouble && b != Basic::CLongDoubleComplex {
                    memory.bytes[(memory.base + i * ext + d) as usize] = (k % 100) as u8;
                }
            }
        }
        let size = p.t.external_size().unwrap();
        prop_assert_eq!(size, data(&p.map).map(|(b, _)| b.external_size() as i64).sum::<i64>());
        let mut packed = vec![0; (size * count) as usize];
        let original = memory.bytes.clone();
        // SAFETY: the memory has every byte of the elements.
        unsafe {
            prop_assert_eq!(p.t.pack_external(memory.address(), count, &mut packed), Ok(packed
                .len()));
            memory.bytes.fill(0);
            prop_assert_eq!(p.t.unpack_external(memory.address(), count, &packed), Ok(packed
                .len()));
        }
        prop_assert_eq!(&memory.bytes, &original);
    }

    #[test]
    fn contents_make_the_same_type_again(p in nested(), large: bool) {
        let width = if large { Width::Large } else { Width::Int };
        let t = Datatype::new(p.t.constructor().clone(), width).unwrap();
        let c = t.contents();
        prop_assert_eq!(t.envelope(), [c.integers.len(), c.addresses.len(), c.counts.len(),
            c.datatypes.len()]);
        prop_assert_eq!((t.size(), t.extent(), t.signature()), (p.t.size(), p.t.extent(),
            p.t.signature()));
    }
}
