use super::*;
use crate::shm::test_ring::TestRing;
use std::collections::VecDeque;

/// Both sides of a pair's cells, and the records between them as they would go through the rings.
struct Two {
    _memory: [TestRing; 2],
    sides: [Cells; 2],
    /// On their way to each side: the record, and the byte that fills its body.
    coming: [VecDeque<(Vec<u8>, u8)>; 2],
}

impl Two {
    fn new(cells: usize) -> Two {
        let mut memory = [TestRing::new(), TestRing::new()];
        let [there, back] = memory.each_mut().map(TestRing::base);
        // SAFETY: the memory outlives both sides, of which there is one each.
        let sides = unsafe {
            [
                Cells::new(there, back, true, cells),
                Cells::new(back, there, false, cells),
            ]
        };
        Two {
            _memory: memory,
            sides,
            coming: Default::default(),
        }
    }

    /// One side writes a record, if it owns a cell. Returns the cell.
    fn write(&mut self, side: usize, byte: u8) -> Option<usize> {
        if !self.sides[side].has(1) {
            return None;
        }
        let cell_ref = self.sides[side].write(usize::from(byte), |out| out.fill(byte));
        let record = [&cell_ref.word()[..], b"head"].concat();
        self.coming[1 - side].push_back((record, byte));
        Some(cell_ref.cell)
    }

    /// One side reads the next record, if there is one. Returns the cell.
    fn read(&mut self, side: usize) -> Option<usize> {
        let (record, byte) = self.coming[side].pop_front()?;
        let (cell_ref, bytes, _) = self.sides[side].bytes(&record).expect("sound");
        assert_eq!(&bytes[..4], b"head");
        assert_eq!(bytes[4..], vec![byte; usize::from(byte)]);
        self.sides[side].read(cell_ref);
        Some(cell_ref.cell)
    }

    /// Checks that each cell is owned by one side, given back, or in a record under way.
    fn check(&self) {
        let [lower, upper] = &self.sides;
        let returned = |c: &Cells| c.memory.returned_to_peer().load(Ordering::Relaxed);
        let own = |c: &Cells| {
            c.own[..c.count].iter().fold(0, |bits, &cell| {
                assert_eq!(bits >> cell & 1, 0);
                bits | 1u64 << cell
            })
        };
        assert_eq!((own(lower), own(upper)), (lower.own_bits, upper.own_bits));
        let under_way = self.coming.iter().flatten();
        let places = [
            lower.own_bits,
            upper.own_bits,
            returned(lower),
            returned(upper),
        ]
        .into_iter()
        .chain(under_way.map(|(r, _)| 1 << r[0]));
        let seen = places.fold(0, |seen: u64, place| {
            assert_eq!(seen & place, 0, "a cell is in two places");
            seen | place
        });
        assert_eq!(seen, lower.all);
    }
}

/// A reply goes into the cell of the request. A process that only replies uses no other.
#[test]
fn replies_use_the_cell_of_the_request() {
    let mut two = Two::new(CELLS_PER_PAIR);
    let first = two.write(0, 9);
    assert_eq!(first, Some(0), "the lowest one first");
    for i in 0..100 {
        assert_eq!(two.read((i + 1) % 2), first);
        assert_eq!(two.write((i + 1) % 2, i as u8), first);
        two.check();
    }
}

/// In any order of writes and reads no cell is lost or doubled, and a side that has read everything
/// owns enough.
#[test]
fn no_cell_is_lost() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 32) % n
    };
    for cells in [4, CELLS_PER_PAIR / 2, CELLS_PER_PAIR] {
        let mut two = Two::new(cells);
        for round in 0..400 {
            // From one way only to both ways alike.
            let bias = round % 9;
            for _ in 0..below(60) {
                let side = usize::from(below(8) < bias);
                if below(2) == 0 {
                    two.write(side, below(200) as u8);
                } else {
                    two.read(side);
                }
                two.check();
            }
            for side in [0, 1] {
                while two.read(side).is_some() {}
            }
            two.check();
            assert!(two.sides.iter_mut().all(Cells::has_enough));
        }
    }
}

#[test]
fn both_sides_know_which_memory_is_used_for_the_first_time() {
    let mut two = Two::new(CELLS_PER_PAIR);
    for (i, len) in [1, 1, 7, 2].into_iter().enumerate() {
        // To and fro: the same cell.
        for side in [0, 1] {
            two.write(side, len);
            two.read(1 - side);
        }
        let touches = [1, 1, 2, 2][i];
        assert_eq!(two.sides.each_ref().map(Cells::first_touches), [touches; 2]);
    }
}

/// Nonsense from a peer is refused, and gives no cell twice.
#[test]
fn made_up_cells_are_refused() {
    let mut two = Two::new(CELLS_PER_PAIR / 2);
    let mine = two.sides[0].own[0];
    let word = |cell: u32, len: u32| (u64::from(cell) | u64::from(len) << 32).to_le_bytes();
    let theirs = (CELLS_PER_PAIR / 2) as u32;
    let body = CELL_BODY_MAX_BYTES as u32;
    assert!(two.sides[0].bytes(&word(theirs, body)).is_some());
    for record in [
        word(theirs, body + 1),
        word(CELLS_PER_PAIR as u32, 1),
        word(u32::MAX, u32::MAX),
        // Not one of this pair's cells, which has half of them.
        word(theirs - 1, 1),
        word(u32::from(mine), 1),
    ] {
        assert!(two.sides[0].bytes(&record).is_none());
    }
    assert!(two.sides[0].bytes(&word(theirs, 1)[..7]).is_none());
    let long = [&word(theirs, 1)[..], &[0; HEAD_MAX_BYTES + 1]].concat();
    assert!(two.sides[0].bytes(&long).is_none());
    // The peer gives all cells back, again and again.
    for _ in 0..3 {
        let given = two.sides[0].memory.returned_by_peer();
        given.store(u64::MAX, Ordering::Relaxed);
        two.sides[0].take_back();
        assert_eq!(two.sides[0].own_bits, two.sides[0].all);
        assert_eq!(two.sides[0].count, CELLS_PER_PAIR / 2);
    }
}
