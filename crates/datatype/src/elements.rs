//! Numbers of elements in a number of bytes (MPI 5.0 §3.2.5, §5.1.11).

use crate::constructor::Expansion;
use crate::{Datatype, Form};

impl Datatype {
    /// Whole elements in `bytes` received bytes (MPI_Get_count). `None` (MPI_UNDEFINED): not a
    /// whole number.
    pub fn count_in(&self, bytes: u64) -> Option<u64> {
        match self.shape.size as u64 {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// Basic elements in `bytes` received bytes, where the last element may be incomplete
    /// (MPI_Get_elements). A pair's value and index count one each. `None` (MPI_UNDEFINED): the
    /// last basic element is incomplete, or the type has none.
    pub fn elements_in(&self, bytes: u64) -> Option<u64> {
        match self.shape.size as u64 {
            0 => (bytes == 0).then_some(0),
            size => {
                Some(bytes / size * self.shape.signature.leaves() + self.leaves_in(bytes % size)?)
            }
        }
    }

    /// Basic elements in the first `bytes` bytes, less than the whole type has.
    fn leaves_in(&self, mut bytes: u64) -> Option<u64> {
        if bytes == 0 {
            return Some(0);
        }
        match self.expansion() {
            Expansion::Leaf(basic) => match basic.form() {
                Form::Pair(value, _) if bytes == value.form().size() as u64 => Some(1),
                _ => None,
            },
            Expansion::Repeat { old, .. } => old.elements_in(bytes),
            Expansion::List(blocks) => {
                let mut leaves = 0;
                for (_, block, old) in blocks {
                    let all = old.shape.size as u64 * block as u64;
                    if bytes < all {
                        return Some(leaves + old.elements_in(bytes)?);
                    }
                    bytes -= all;
                    leaves += old.shape.signature.leaves() * block as u64;
                }
                Some(leaves)
            }
        }
    }

    /// Bytes of the first `elements` basic elements (MPI_Status_set_elements). `None`: more bytes
    /// than 63 bits hold, or the type has no elements.
    pub fn bytes_of_elements(&self, elements: u64) -> Option<u64> {
        let leaves = self.shape.signature.leaves();
        if leaves == 0 {
            return (elements == 0).then_some(0);
        }
        let whole = (elements / leaves).checked_mul(self.shape.size as u64)?;
        whole
            .checked_add(self.bytes_of(elements % leaves))
            .filter(|b| i64::try_from(*b).is_ok())
    }

    /// Bytes of the first `leaves` basic elements, fewer than the whole type has.
    fn bytes_of(&self, mut leaves: u64) -> u64 {
        if leaves == 0 {
            return 0;
        }
        let part = |old: &Datatype, leaves: u64| {
            let each = old.shape.signature.leaves();
            leaves / each * old.shape.size as u64 + old.bytes_of(leaves % each)
        };
        match self.expansion() {
            Expansion::Leaf(basic) => match basic.form() {
                Form::Pair(value, _) => value.form().size() as u64,
                _ => 0,
            },
            Expansion::Repeat { old, .. } => part(old, leaves),
            Expansion::List(blocks) => {
                let mut bytes = 0;
                for (_, block, old) in blocks {
                    let all = old.shape.signature.leaves() * block as u64;
                    if leaves < all {
                        return bytes + part(old, leaves);
                    }
                    leaves -= all;
                    bytes += old.shape.size as u64 * block as u64;
                }
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Basic, Datatype};

    #[test]
    fn elements_of_a_structure_received_in_part() {
        let types = [
            Datatype::basic(Basic::Int).clone(),
            Datatype::basic(Basic::Double).clone(),
        ];
        let t = Datatype::structure(&[2, 3], &[0, 8], &types).unwrap();
        assert_eq!(t.size(), 32);
        for (bytes, count, elements) in [
            (0, Some(0), Some(0)),
            (4, None, Some(1)),
            (8, None, Some(2)),
            (12, None, None),
            (16, None, Some(3)),
        ] {
            assert_eq!(
                (t.count_in(bytes), t.elements_in(bytes)),
                (count, elements),
                "{bytes} bytes"
            );
        }
        assert_eq!(
            (t.count_in(64), t.elements_in(64 + 24)),
            (Some(2), Some(14))
        );
        for elements in 0..20 {
            assert_eq!(
                t.elements_in(t.bytes_of_elements(elements).unwrap()),
                Some(elements)
            );
        }
    }

    #[test]
    fn a_pair_is_two_elements() {
        let pair = Datatype::basic(Basic::DoubleInt);
        assert_eq!(pair.elements_in(24), Some(4));
        assert_eq!(pair.elements_in(20), Some(3));
        assert_eq!(pair.elements_in(14), None);
        assert_eq!(pair.bytes_of_elements(3), Some(20));
    }

    #[test]
    fn a_huge_vector_is_counted_at_once() {
        let t = Datatype::vector(1 << 40, 1, 2, Datatype::basic(Basic::Int)).unwrap();
        assert_eq!(t.elements_in((1 << 41) + 4), Some((1 << 39) + 1));
    }

    #[test]
    fn a_type_without_data_counts_nothing() {
        let t = Datatype::contiguous(0, Datatype::basic(Basic::Int)).unwrap();
        assert_eq!(
            (t.count_in(0), t.count_in(4), t.elements_in(0)),
            (Some(0), None, Some(0))
        );
    }
}
