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

    /// One node of the tree, and the levels below and with it.
    fn decode_node(&mut self) -> Result<(Arc<Datatype>, usize)> {
        let (constructor, levels) = match self.unsigned()? {
            TAG_BASIC => return Ok((Datatype::basic(self.basic()?).clone(), 1)),
            TAG_PAIR => return Ok((self.pair()?, 1)),
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
            TAG_BLOCKS => self.blocks()?,
            TAG_LIST => self.list()?,
            TAG_STRUCT => self.structure()?,
            _ => return malformed("an unknown node"),
        };
        Ok((Datatype::new(constructor, Width::Large)?, levels))
    }

    /// A value and its index.
    fn pair(&mut self) -> Result<Arc<Datatype>> {
        let value = Datatype::basic(self.basic()?);
        let index = Datatype::basic(self.basic()?);
        match Datatype::value_index(value, index)? {
            Some(t) => Ok(t),
            None => malformed("no such pair"),
        }
    }

    /// Blocks of one length and type.
    fn blocks(&mut self) -> Result<(Constructor, usize)> {
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
        Ok((blocks, levels))
    }

    /// Blocks of various lengths and one type.
    fn list(&mut self) -> Result<(Constructor, usize)> {
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
        Ok((list, levels))
    }

    /// Blocks of various lengths and types.
    fn structure(&mut self) -> Result<(Constructor, usize)> {
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
        Ok((structure, levels))
    }

    /// A displacement, bytes. It is encoded as the difference from the one before.
    fn displacement(&mut self, before: &[i64]) -> Result<i64> {
        Ok(before.last().unwrap_or(&0).wrapping_add(self.signed()?))
    }
}

#[cfg(test)]
mod tests;
