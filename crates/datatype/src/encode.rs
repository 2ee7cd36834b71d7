//! A datatype as bytes, for the target of a one-sided operation in another process.
//!
//! The bytes hold what the target needs: the type map and the bounds. Names, attributes, handles
//! and the calls that made the type stay behind. A type is a list of nodes, children before their
//! parents, the type itself last. A type that is used in several places is one node, so the bytes
//! are never more than what the program gave to the constructors.
//!
//! | node | tag | fields |
//! |---|---|---|
//! | predefined type | 0 | handle value |
//! | unnamed pair | 1 | handle values of value and index |
//! | repetition | 2 | child, count, stride, block |
//! | blocks of one length | 3 | child, number of blocks, block; each displacement |
//! | blocks of one type | 4 | child, number of blocks; each block and displacement |
//! | structure | 5 | number of blocks; each child, block and displacement |
//! | other bounds | 6 | child, lower bound, extent |
//!
//! Numbers are LEB128. Signed ones are zigzag. A child is its distance back in the list. A
//! displacement is its distance from the one before.

use crate::constructor::{Constructor, Expansion, Width};
use crate::{Basic, Datatype, TypeError};
use std::collections::HashMap;
use std::sync::Arc;

type Result<T> = std::result::Result<T, TypeError>;

/// Levels that a type may be nested. Calls that change nothing do not count. Layouts are built and
/// traversed by recursion, and the stack of a service thread is small.
const LEVELS_MAX: usize = 256;

/// The tags of nodes, as the table above lists them.
const TAG_BASIC: u64 = 0;
const TAG_PAIR: u64 = 1;
const TAG_REPEAT: u64 = 2;
const TAG_BLOCKS: u64 = 3;
const TAG_LIST: u64 = 4;
const TAG_STRUCT: u64 = 5;
const TAG_RESIZED: u64 = 6;

/// Bytes of a node of one child, at most: a tag and four numbers.
const NODE_MAX_BYTES: usize = 1 + 4 * 10;

impl Datatype {
    /// The type as bytes, for [`Datatype::decode`] in another process of the job.
    ///
    /// # Errors
    /// [`TypeError::Unusable`] if it is nested more than 256 levels deep.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut encoder = Encoder {
            out: Vec::with_capacity(NODE_MAX_BYTES),
            nodes: HashMap::new(),
        };
        encoder.encode_node(self, 1)?;
        Ok(encoder.out)
    }

    /// The type that [`Datatype::encode`] made the bytes of. Bounds, size, type map and signature
    /// are the same, and so are [`Datatype::uniform_basic`] and [`Datatype::pair`]. It is not
    /// committed.
    ///
    /// The bytes may come from anywhere. Memory and time are in proportion to their number: about
    /// 100 bytes for each.
    ///
    /// # Errors
    /// [`TypeError::Malformed`], or what a constructor says of its arguments.
    pub fn decode(bytes: &[u8]) -> Result<Arc<Datatype>> {
        let mut decoder = Decoder {
            rest: bytes,
            nodes: Vec::new(),
        };
        while !decoder.rest.is_empty() {
            let node = decoder.decode_node()?;
            decoder.nodes.push(node);
        }
        match decoder.nodes.pop() {
            Some((t, _)) if t.exists() => Ok(t),
            Some(_) => malformed("a type that does not exist here"),
            None => malformed("no type"),
        }
    }
}

fn malformed<T>(what: &'static str) -> Result<T> {
    Err(TypeError::Malformed(what))
}

struct Encoder {
    out: Vec<u8>,
    /// The number of each node in the list, and its levels.
    nodes: HashMap<*const Datatype, Node>,
}

#[derive(Clone, Copy)]
struct Node {
    number: usize,
    levels: usize,
}

/// The type without calls around it that change nothing: MPI_Type_dup, one element, an array's
/// part that is made of simpler types.
fn plain(mut t: &Datatype) -> &Datatype {
    loop {
        if t.is_predefined() || matches!(t.constructor, Constructor::Resized { .. }) {
            return t;
        }
        match t.expansion() {
            // A predefined type in a call is no predefined type any more.
            Expansion::Repeat {
                count: 1,
                block: 1,
                old,
                ..
            } if !old.is_predefined() => t = old,
            _ => return t,
        }
    }
}

impl Encoder {
    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// A number that is not negative.
    fn count(&mut self, value: i64) {
        self.unsigned(value as u64);
    }

    fn signed(&mut self, value: i64) {
        self.unsigned((value << 1 ^ value >> 63) as u64);
    }

    fn child(&mut self, child: Node) {
        // Its parent is the next node.
        self.unsigned((self.nodes.len() - child.number) as u64);
    }

    /// Adds the type's nodes, unless they are there. `depth` counts levels from the root.
    fn encode_node(&mut self, t: &Datatype, depth: usize) -> Result<Node> {
        let t = plain(t);
        if let Some(node) = self.nodes.get(&std::ptr::from_ref(t)) {
            return Ok(*node);
        }
        let mut levels = 1;
        if depth > LEVELS_MAX {
            return too_deep();
        }
        let mut inner = |encoder: &mut Encoder, old: &Datatype| {
            let node = encoder.encode_node(old, depth + 1)?;
            levels = levels.max(node.levels + 1);
            Ok(node)
        };
        match (&t.constructor, t.leaf) {
            (_, Some(basic)) => {
                self.unsigned(TAG_BASIC);
                self.unsigned(basic.value().into());
            }
            (Constructor::ValueIndex { value, index }, _) => {
                self.unsigned(TAG_PAIR);
                self.unsigned(value.value().into());
                self.unsigned(index.value().into());
            }
            (Constructor::Resized { lb, extent, old }, _) => {
                let old = inner(self, old)?;
                self.unsigned(TAG_RESIZED);
                self.child(old);
                self.signed(*lb);
                self.signed(*extent);
            }
            _ => match t.expansion() {
                Expansion::Leaf(basic) => {
                    self.unsigned(TAG_BASIC);
                    self.unsigned(basic.value().into());
                }
                Expansion::Repeat {
                    count,
                    stride,
                    block,
                    old,
                } => {
                    let old = inner(self, old)?;
                    self.unsigned(TAG_REPEAT);
                    self.child(old);
                    self.count(count);
                    self.signed(stride);
                    self.count(block);
                }
                Expansion::List(blocks) => {
                    // The displacement of an empty block means nothing.
                    let blocks: Vec<_> = blocks.filter(|(_, block, _)| *block > 0).collect();
                    self.list(&blocks, &mut inner)?;
                }
            },
        }
        if levels > LEVELS_MAX {
            return too_deep();
        }
        let node = Node {
            number: self.nodes.len(),
            levels,
        };
        self.nodes.insert(t, node);
        Ok(node)
    }

    fn list(
        &mut self,
        blocks: &[(i64, i64, &Arc<Datatype>)],
        inner: &mut impl FnMut(&mut Encoder, &Datatype) -> Result<Node>,
    ) -> Result<()> {
        let mut at_before = 0i64;
        let mut displacement = |encoder: &mut Encoder, at: i64| {
            encoder.signed(at.wrapping_sub(at_before));
            at_before = at;
        };
        let one_type = blocks
            .windows(2)
            .all(|w| std::ptr::eq(plain(w[0].2), plain(w[1].2)));
        let one_length = blocks.windows(2).all(|w| w[0].1 == w[1].1);
        match blocks {
            [(_, block, old), ..] if one_type => {
                let old = inner(self, old)?;
                self.unsigned(if one_length { TAG_BLOCKS } else { TAG_LIST });
                self.child(old);
                self.unsigned(blocks.len() as u64);
                if one_length {
                    self.count(*block);
                }
                for (at, block, _) in blocks {
                    if !one_length {
                        self.count(*block);
                    }
                    displacement(self, *at);
                }
            }
            _ => {
                let mut children = Vec::with_capacity(blocks.len());
                for (_, _, old) in blocks {
                    children.push(inner(self, old)?);
                }
                self.unsigned(TAG_STRUCT);
                self.unsigned(blocks.len() as u64);
                for ((at, block, _), child) in blocks.iter().zip(children) {
                    self.child(child);
                    self.count(*block);
                    displacement(self, *at);
                }
            }
        }
        Ok(())
    }
}

fn too_deep<T>() -> Result<T> {
    Err(TypeError::Unusable(format!(
        "the datatype is nested more than {LEVELS_MAX} levels deep, which is too deep for a \
         process on another node; build it with fewer calls"
    )))
}

struct Decoder<'a> {
    rest: &'a [u8],
    /// The nodes so far, and how many levels each has.
    nodes: Vec<(Arc<Datatype>, usize)>,
}

impl Decoder<'_> {
    fn unsigned(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return malformed("it ends amid a number");
            };
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        malformed("a number of more than 64 bits")
    }

    /// A number that is not negative.
    fn count(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        i64::try_from(value).or_else(|_| malformed("a count of more than 63 bits"))
    }

    fn signed(&mut self) -> Result<i64> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn basic(&mut self) -> Result<Basic> {
        let value = u32::try_from(self.unsigned()?).ok();
        match value.and_then(Basic::of_value) {
            Some(basic) => Ok(basic),
            None => malformed("no such predefined type"),
        }
    }

    /// A child, and the levels of its parent.
    fn child(&mut self) -> Result<(Arc<Datatype>, usize)> {
        let back = self.unsigned()?;
        let number = usize::try_from(back)
            .ok()
            .and_then(|back| self.nodes.len().checked_sub(back));
        match number.and_then(|number| self.nodes.get(number)) {
            Some((_, levels)) if *levels >= LEVELS_MAX => malformed("nested too deep"),
            Some((t, levels)) => Ok((t.clone(), levels + 1)),
            None => malformed("a part that is not there"),
        }
    }

    /// The number of entries in a list. Each of them has `bytes` bytes at least, so there is never
    /// room for more of them than there are.
    fn entries(&mut self, bytes: usize) -> Result<usize> {
        let entries = self.unsigned()?;
        match usize::try_from(entries) {
            Ok(entries) if entries <= self.rest.len() / bytes => Ok(entries),
            _ => malformed("more blocks than bytes"),
        }
    }

    fn decode_node(&mut self) -> Result<(Arc<Datatype>, usize)> {
        let (constructor, levels) = match self.unsigned()? {
            TAG_BASIC => return Ok((Datatype::basic(self.basic()?).clone(), 1)),
            TAG_PAIR => {
                let value = Datatype::basic(self.basic()?);
                let index = Datatype::basic(self.basic()?);
                return match Datatype::value_index(value, index)? {
                    Some(t) => Ok((t, 1)),
                    None => malformed("no such pair"),
                };
            }
            TAG_REPEAT => {
                let (old, levels) = self.child()?;
                let (count, stride, blocklength) = (self.count()?, self.signed()?, self.count()?);
                let repeat = Constructor::Hvector {
                    count,
                    blocklength,
                    stride,
                    old,
                };
                (repeat, levels)
            }
            TAG_RESIZED => {
                let (old, levels) = self.child()?;
                let (lb, extent) = (self.signed()?, self.signed()?);
                (Constructor::Resized { lb, extent, old }, levels)
            }
            TAG_BLOCKS => {
                let (old, levels) = self.child()?;
                let entries = self.entries(1)?;
                let blocklength = self.count()?;
                let mut displacements = Vec::with_capacity(entries);
                for _ in 0..entries {
                    displacements.push(self.displacement(&displacements)?);
                }
                let blocks = Constructor::HindexedBlock {
                    blocklength,
                    displacements: displacements.into(),
                    old,
                };
                (blocks, levels)
            }
            TAG_LIST => {
                let (old, levels) = self.child()?;
                let entries = self.entries(2)?;
                let mut blocklengths = Vec::with_capacity(entries);
                let mut displacements = Vec::with_capacity(entries);
                for _ in 0..entries {
                    blocklengths.push(self.count()?);
                    displacements.push(self.displacement(&displacements)?);
                }
                let list = Constructor::Hindexed {
                    blocklengths: blocklengths.into(),
                    displacements: displacements.into(),
                    old,
                };
                (list, levels)
            }
            TAG_STRUCT => {
                let entries = self.entries(3)?;
                let mut levels = 1;
                let mut types = Vec::with_capacity(entries);
                let mut blocklengths = Vec::with_capacity(entries);
                let mut displacements = Vec::with_capacity(entries);
                for _ in 0..entries {
                    let (old, its) = self.child()?;
                    levels = levels.max(its);
                    types.push(old);
                    blocklengths.push(self.count()?);
                    displacements.push(self.displacement(&displacements)?);
                }
                let structure = Constructor::Struct {
                    blocklengths: blocklengths.into(),
                    displacements: displacements.into(),
                    types: types.into(),
                };
                (structure, levels)
            }
            _ => return malformed("an unknown node"),
        };
        Ok((Datatype::new(constructor, Width::Large)?, levels))
    }

    fn displacement(&mut self, before: &[i64]) -> Result<i64> {
        Ok(before.last().unwrap_or(&0).wrapping_add(self.signed()?))
    }
}

#[cfg(test)]
mod tests {
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
}
