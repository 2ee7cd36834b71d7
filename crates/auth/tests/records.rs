//! Records: what was sealed is opened, once and in order, and nothing else is.

use ferry_auth::{
    HEADER_BYTES, HandshakeConfig, Identity, JobKey, Opener, PAYLOAD_MAX_BYTES, RecordError,
    Sealer, Step, TAG_BYTES, body_bytes,
};
use ferry_fuzz::fuzz;
use proptest::prelude::*;

/// Both ends of a connection: what each sends and opens.
fn connection() -> [(Sealer, Opener); 2] {
    let key = JobKey::from_bytes(&[5; 32]);
    let identity = |process| Identity {
        job: 1,
        process,
        purpose: 0,
        encrypt: true,
    };
    let (zero, one) = (
        HandshakeConfig::new(&key, identity(0)),
        HandshakeConfig::new(&key, identity(1)),
    );
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut responder = one.respond();
    let Ok(Step::Send(response)) = responder.feed(&one, &mut &hello[..]) else {
        panic!()
    };
    let Ok(Step::Done(here, finished)) = initiator.feed(&zero, &mut &response[..]) else {
        panic!()
    };
    let Ok(Step::Done(there, _)) = responder.feed(&one, &mut &finished[..]) else {
        panic!()
    };
    assert!(here.encrypt() && there.encrypt());
    [here.records(), there.records()]
}

fn sealed(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0x55; HEADER_BYTES];
    record.extend_from_slice(payload);
    record.extend_from_slice(&[0xaa; TAG_BYTES]);
    sealer.seal(&mut record).unwrap();
    record
}

#[test]
fn both_directions() {
    let [(mut to_one, mut from_one), (mut to_zero, mut from_zero)] = connection();
    for length in [
        0,
        1,
        15,
        16,
        17,
        1000,
        PAYLOAD_MAX_BYTES - 1,
        PAYLOAD_MAX_BYTES,
    ] {
        let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
        let (mut there, mut back) = (
            sealed(&mut to_one, &payload),
            sealed(&mut to_zero, &payload),
        );
        assert_ne!(there, back, "each direction has its own key");
        assert!(length < 16 || there[HEADER_BYTES..HEADER_BYTES + length] != payload[..]);
        assert_eq!(
            body_bytes(there.first_chunk().unwrap()),
            Ok(length + TAG_BYTES)
        );
        assert_eq!(from_zero.open(&mut there).unwrap(), payload);
        assert_eq!(from_one.open(&mut back).unwrap(), payload);
    }
}

#[test]
fn equal_payloads_look_different() {
    let [(mut sealer, _), _] = connection();
    let [(mut other, _), _] = connection();
    let records: Vec<_> = (0..4)
        .map(|_| sealed(&mut sealer, &[0; 64]))
        .chain([sealed(&mut other, &[0; 64])])
        .collect();
    for (i, a) in records.iter().enumerate() {
        for b in &records[..i] {
            assert_ne!(a[HEADER_BYTES..], b[HEADER_BYTES..]);
        }
    }
}

#[test]
fn every_flipped_bit_ends_the_connection() {
    for length in [0, 1, 33] {
        for bit in 0..(HEADER_BYTES + length + TAG_BYTES) * 8 {
            let [(mut sealer, _), (_, mut opener)] = connection();
            let good = sealed(&mut sealer, &vec![3; length]);
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let why = opener.open(&mut bad).unwrap_err();
            assert_eq!(
                why == RecordError::Forged,
                bit >= HEADER_BYTES * 8,
                "{why:?}"
            );
            assert_eq!(opener.open(&mut good.clone()), Err(RecordError::Over));
        }
    }
}

#[test]
fn a_changed_length_with_matching_bytes() {
    // Someone shortens or lengthens a record and its header together.
    let [(mut sealer, _), (_, mut opener)] = connection();
    let mut short = sealed(&mut sealer, b"abcdefgh");
    short[0] -= 1;
    short.pop();
    assert_eq!(opener.open(&mut short), Err(RecordError::Forged));
    let [(mut sealer, _), (_, mut opener)] = connection();
    let mut long = sealed(&mut sealer, b"abcdefgh");
    long[0] += 1;
    long.push(0);
    assert_eq!(opener.open(&mut long), Err(RecordError::Forged));
}

#[test]
fn every_truncation() {
    for left in 0..HEADER_BYTES + 8 + TAG_BYTES {
        let [(mut sealer, _), (_, mut opener)] = connection();
        let mut record = sealed(&mut sealer, b"abcdefgh");
        record.truncate(left);
        assert_eq!(opener.open(&mut record), Err(RecordError::Length));
    }
}

/// All orders in which three of four records can arrive: only the true one opens.
#[test]
fn left_out_repeated_or_out_of_order() {
    for order in 0..64usize {
        let order = [order & 3, order >> 2 & 3, order >> 4 & 3];
        let [(mut sealer, _), (_, mut opener)] = connection();
        let records: Vec<_> = (0..4u8).map(|i| sealed(&mut sealer, &[i; 9])).collect();
        for (at, &i) in order.iter().enumerate() {
            let good = order[..=at].iter().enumerate().all(|(a, &b)| a == b);
            assert_eq!(
                opener.open(&mut records[i].clone()).is_ok(),
                good,
                "{order:?} at {at}"
            );
        }
    }
}

#[test]
fn not_from_another_connection_nor_back_to_the_sender() {
    let [(mut sealer, mut own), _] = connection();
    let [_, (_, mut other)] = connection();
    let record = sealed(&mut sealer, b"abc");
    assert_eq!(own.open(&mut record.clone()), Err(RecordError::Forged));
    assert_eq!(other.open(&mut record.clone()), Err(RecordError::Forged));
}

#[test]
fn too_long() {
    let [(mut sealer, _), (_, mut opener)] = connection();
    let mut record = vec![0; HEADER_BYTES + PAYLOAD_MAX_BYTES + 1 + TAG_BYTES];
    assert_eq!(sealer.seal(&mut record), Err(RecordError::TooLong));
    assert_eq!(
        sealer.seal(&mut [0; HEADER_BYTES + TAG_BYTES - 1]),
        Err(RecordError::Length)
    );
    for claim in [PAYLOAD_MAX_BYTES as u32 + 1, u32::MAX, u32::MAX - 15] {
        assert_eq!(body_bytes(&claim.to_le_bytes()), Err(RecordError::TooLong));
        record[..4].copy_from_slice(&claim.to_le_bytes());
    }
    assert_eq!(opener.open(&mut record), Err(RecordError::TooLong));
    // A refused buffer used no nonce: the sealer goes on.
    let [(mut sealer, _), (_, mut opener)] = connection();
    assert!(
        sealer
            .seal(&mut vec![
                0;
                HEADER_BYTES + PAYLOAD_MAX_BYTES + 1 + TAG_BYTES
            ])
            .is_err()
    );
    assert!(opener.open(&mut sealed(&mut sealer, b"x")).is_ok());
}

/// The key changes after 2^20 records, and nobody notices; a repeat of a record from before the
/// change does not open.
#[test]
fn the_key_changes_under_way() {
    let [(mut sealer, _), (_, mut opener)] = connection();
    let mut first = Vec::new();
    for i in 0..(1u32 << 20) + 3 {
        let mut record = sealed_small(&mut sealer, i);
        if i == 0 {
            first = record.to_vec();
        }
        assert_eq!(
            opener.open(&mut record).unwrap(),
            i.to_le_bytes(),
            "record {i}"
        );
    }
    assert_eq!(opener.open(&mut first), Err(RecordError::Forged));
}

fn sealed_small(sealer: &mut Sealer, number: u32) -> [u8; HEADER_BYTES + 4 + TAG_BYTES] {
    let mut record = [0; HEADER_BYTES + 4 + TAG_BYTES];
    record[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&number.to_le_bytes());
    sealer.seal(&mut record).unwrap();
    record
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Payloads of any lengths, both ways, in any mixture.
    #[test]
    fn a_conversation(
        turns in prop::collection::vec((any::<bool>(), 0..3000usize, any::<u8>()), 1..40)
    ) {
        let [mut zero, mut one] = connection();
        for (way, length, fill) in turns {
            let (from, to) = if way {
                (&mut zero.0, &mut one.1)
            } else {
                (&mut one.0, &mut zero.1)
            };
            let payload: Vec<u8> = (0..length).map(|i| fill.wrapping_add(i as u8)).collect();
            let mut record = sealed(from, &payload);
            prop_assert_eq!(to.open(&mut record).unwrap(), payload);
        }
    }
}

#[test]
fn fuzz_records() {
    let [(mut sealer, _), _] = connection();
    let seeds = [
        sealed(&mut sealer, b""),
        sealed(&mut sealer, b"hello"),
        vec![0; HEADER_BYTES + TAG_BYTES],
    ];
    fuzz("records", &seeds, |bytes| {
        let [_, (_, mut opener)] = connection();
        let mut record = bytes.to_vec();
        opener
            .open(&mut record)
            .map(|_| ())
            .expect_err("a made-up record opens")
    });
}
