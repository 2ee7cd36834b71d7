//! The elements of types that have one basic type, as an accumulation reaches them.

use super::traverse::{Field, RunVisitor};
use crate::constructor::Expansion;
use crate::{Basic, Datatype, Form};

impl Datatype {
    /// Visits the basic elements of `count` elements at `address`, in packed order. `f` gets the
    /// address of the first of several, how many there are, and the bytes from one to the next.
    /// Neighbours come together. A pair is one element, with the layout of its C structure. No
    /// memory is touched, and none is allocated for types without gaps.
    ///
    /// Does nothing if the elements are of several types: [`Datatype::uniform_basic`] is `None`,
    /// and it is no pair.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // The addresses are passed on, not read or written.
    pub fn elements_at(&self, address: *mut u8, count: i64, mut f: impl FnMut(*mut u8, u64, i64)) {
        if count <= 0 || self.shape.size <= 0 {
            return;
        }
        if self.is_predefined() {
            return f(address, count as u64, self.extent());
        }
        let Some(basic) = self.uniform_basic() else {
            return;
        };
        let size = basic.form().size() as u64;
        if self.is_dense() {
            let bytes = (self.shape.size as u64).saturating_mul(count as u64);
            return f(address, bytes / size, size as i64);
        }
        if has_gap(basic) {
            return self.gapped_elements(address, count, &mut f);
        }
        let mut visitor = ElementVisitor { size, f };
        // SAFETY: the visitor passes addresses on and touches no memory.
        unsafe { self.traverse(address, count, 0, &mut visitor) }
    }

    /// The elements of a type of pairs that have padding between value and index. Their layout has
    /// two runs for each, so the constructors are asked instead.
    fn gapped_elements(&self, address: *mut u8, count: i64, f: &mut impl FnMut(*mut u8, u64, i64)) {
        if count <= 0 || self.shape.size == 0 {
            return;
        }
        if self.is_predefined() {
            return f(address, count as u64, self.extent());
        }
        let step = |address: *mut u8, i: i64, stride: i64| {
            address.wrapping_offset((i as isize).wrapping_mul(stride as isize))
        };
        for i in 0..count {
            let one = step(address, i, self.extent());
            match self.expansion() {
                Expansion::Leaf(_) => {}
                Expansion::Repeat {
                    count,
                    stride,
                    block,
                    old,
                } => {
                    for k in 0..count {
                        old.gapped_elements(step(one, k, stride), block, f);
                    }
                }
                Expansion::List(blocks) => {
                    for (at, block, old) in blocks {
                        old.gapped_elements(one.wrapping_offset(at as isize), block, f);
                    }
                }
            }
        }
    }
}

/// Returns whether the type is a pair with padding between value and index.
fn has_gap(basic: Basic) -> bool {
    match basic.form() {
        Form::Pair(value, _) => basic.form().index_offset() != value.form().size(),
        _ => false,
    }
}

/// Passes elements on. Each run consists of whole elements: it is made of neighbouring ones.
struct ElementVisitor<F> {
    /// Bytes of an element.
    size: u64,
    f: F,
}

impl<F: FnMut(*mut u8, u64, i64)> RunVisitor for ElementVisitor<F> {
    #[inline]
    fn room(&self) -> u64 {
        u64::MAX
    }
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, len: u64) {
        (self.f)(at, len / self.size, self.size as i64);
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        if block == self.size {
            return (self.f)(at, count, stride);
        }
        for i in 0..count as isize {
            let at = at.wrapping_offset(i.wrapping_mul(stride as isize));
            (self.f)(at, block / self.size, self.size as i64);
        }
    }
    #[inline]
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64) {
        for at in at {
            let at = base.wrapping_offset(*at as isize);
            (self.f)(at, block / self.size, self.size as i64);
        }
    }
    unsafe fn columns(&mut self, _: *mut u8, _: u64, _: i64, _: u64, _: i64, _: u64) -> bool {
        false
    }
    unsafe fn fields(&mut self, _: *mut u8, _: u64, _: i64, _: &[Field], _: u64) -> bool {
        false
    }
}
