//! What becomes of a datatype on its way through bytes, and of bytes that are none.

use super::*;

fn int() -> &'static Arc<Datatype> {
    Datatype::basic(Basic::Int)
}

fn again(t: &Datatype) -> Arc<Datatype> {
    Datatype::decode(&t.encode().unwrap()).unwrap()
}

#[test]
fn predefined_types_stay_what_they_are() {
    for &basic in Basic::ALL.iter().filter(|b| b.exists()) {
        let bytes = Datatype::basic(basic).encode().unwrap();
        assert_eq!(bytes.len(), 3);
        let t = Datatype::decode(&bytes).unwrap();
        assert!(Arc::ptr_eq(&t, Datatype::basic(basic)));
    }
    let real = Datatype::f90_real(Some(15), None).unwrap();
    assert_eq!(again(&real).basic_kind(), Some(Basic::Real8));
    let long = Datatype::basic(Basic::Int64);
    let pair = Datatype::value_index(long, long).unwrap().unwrap();
    assert!(Arc::ptr_eq(&again(&pair), &pair));
    let dup = again(&Datatype::dup(int()).unwrap());
    assert_eq!((dup.basic_kind(), dup.size()), (None, 4));
}

#[test]
fn bytes_are_few() {
    let vector = Datatype::vector(1 << 40, 3, 7, int()).unwrap();
    assert!(vector.encode().unwrap().len() <= 16);
    let places: Vec<i64> = (0..1000).map(|i| i * 16 + i % 3).collect();
    let blocks = Datatype::hindexed_block(2, &places, int()).unwrap();
    assert!(blocks.encode().unwrap().len() < 1020);
    let sizes = [9; 6];
    let part = Datatype::subarray(&sizes, &[4; 6], &[2; 6], crate::Order::C, int()).unwrap();
    assert!(part.encode().unwrap().len() < 64);
}

#[test]
fn types_that_share_parts_do_not_grow() {
    // Each level has its part twice: 2^40 leaves.
    let mut t = int().clone();
    for _ in 0..40 {
        let extent = t.extent();
        t = Datatype::structure(&[1, 1], &[0, extent + 8], &[t.clone(), t]).unwrap();
    }
    let bytes = t.encode().unwrap();
    assert!(bytes.len() < 1000, "{}", bytes.len());
    assert_eq!(again(&t).signature(), t.signature());
}

#[test]
fn nesting_has_a_limit_on_both_sides() {
    let resized = |levels: usize| {
        let mut t = int().clone();
        for _ in 1..levels {
            t = Datatype::resized(0, 8, &t).unwrap();
        }
        t
    };
    let deepest = resized(LEVELS_MAX);
    assert_eq!(again(&deepest).extent(), 8);
    let text = resized(LEVELS_MAX + 1).encode().unwrap_err().to_string();
    assert!(text.contains("256 levels"), "{text}");
    // The same in bytes: a node more on top of the deepest.
    let mut bytes = deepest.encode().unwrap();
    let node = bytes[bytes.len() - 4..].to_vec();
    assert!(Datatype::decode(&bytes).is_ok());
    bytes.extend(node);
    assert_eq!(
        Datatype::decode(&bytes).unwrap_err(),
        TypeError::Malformed("nested too deep")
    );
    // Calls that change nothing do not count.
    let mut dups = Datatype::contiguous(3, int()).unwrap();
    for _ in 0..2000 {
        dups = Datatype::dup(&dups).unwrap();
    }
    assert_eq!(again(&dups).size(), 12);
}

#[test]
fn malformed_bytes_are_told() {
    let told = |bytes: &[u8]| Datatype::decode(bytes).unwrap_err();
    for (bytes, what) in [
        (&[][..], "no type"),
        (&[0], "it ends amid a number"),
        (&[0, 0x80], "it ends amid a number"),
        (&[0, 5], "no such predefined type"),
        (&[7], "an unknown node"),
        (&[2, 1, 1, 0, 1], "a part that is not there"),
        (&[2, 0, 1, 0, 1], "a part that is not there"),
        (&[5, 1], "more blocks than bytes"),
        (&[1, 0x89, 4, 0x9d, 4], "no such pair"),
        // MPI_COMPLEX4 has a number, but is not in this library.
        (&[0, 0xd3, 5], "a type that does not exist here"),
    ] {
        assert_eq!(told(bytes), TypeError::Malformed(what), "{bytes:?}");
    }
    let mut long = vec![0];
    long.extend([0xff; 9]);
    long.push(2);
    assert_eq!(
        told(&long),
        TypeError::Malformed("a number of more than 64 bits")
    );
    // Two ints, 2^62 times.
    let mut large = int().encode().unwrap();
    large.extend([2, 1]);
    large.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
    large.extend([0, 2]);
    assert!(matches!(told(&large), TypeError::Overflow(_)));
}

/// Whatever the bytes are: an error, or a type that can be measured, listed and encoded again.
#[test]
fn fuzz_encoded_types() {
    let types = [
        int().clone(),
        Datatype::vector(10, 2, 5, Datatype::basic(Basic::ShortInt)).unwrap(),
        Datatype::hindexed(&[1, 2, 3], &[0, -40, 90], int()).unwrap(),
        Datatype::hindexed_block(2, &[0, 40, 1 << 40], int()).unwrap(),
    ];
    let sum = Datatype::structure(&[1, 2, 1, 3], &[0, 400, 90, 2000], &types).unwrap();
    let pair = Datatype::value_index(Datatype::basic(Basic::Int64), int())
        .unwrap()
        .unwrap();
    let seeds: Vec<Vec<u8>> = types
        .iter()
        .chain([&sum, &Datatype::resized(-8, 1 << 20, &sum).unwrap(), &pair])
        .map(|t| t.encode().unwrap())
        .collect();
    ferry_fuzz::fuzz("fuzz_encoded_types", &seeds, |bytes| {
        let t = match Datatype::decode(bytes) {
            Ok(t) => t,
            Err(e) => return (0, format!("{e:?}")),
        };
        assert!(t.size() >= 0);
        let mut runs = Vec::with_capacity(64);
        for offset in [0, t.size() as u64 / 2] {
            runs.clear();
            t.runs(std::ptr::null_mut(), 2, offset, &mut runs);
        }
        let encoded = t.encode().expect("its levels are few");
        let again = Datatype::decode(&encoded).expect("what was encoded here");
        assert_eq!(
            (t.size(), t.lb(), t.extent()),
            (again.size(), again.lb(), again.extent())
        );
        assert_eq!(t.signature(), again.signature());
        assert_eq!(encoded, again.encode().unwrap());
        let basics = format!("{:?} {:?} {}", t.uniform_basic(), t.pair(), runs.len());
        (bytes.len().ilog2(), basics)
    });
}
