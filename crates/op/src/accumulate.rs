//! Accumulation into elements of any type. Elements that have no atomic are updated by a caller who
//! has the target's lock.

use crate::{Action, Element, Op, Predefined};
use ferry_datatype::{Basic, Datatype, Elements, Form};
use std::sync::Arc;

/// Bytes of the largest element: a pair of a long double and a long double.
const ELEMENT_MAX_BYTES: usize = 64;

/// Where the bytes of elements lie in a sequence of them. Elements other than pairs have one part.
#[derive(Clone, Copy)]
struct Parts {
    value_bytes: usize,
    index_offset: usize,
    index_bytes: usize,
    /// From one element to the next.
    stride: isize,
}

impl Parts {
    /// The parts of an element in an array in memory.
    fn of_array(form: Form) -> Parts {
        let (value_bytes, index_bytes) = match form {
            Form::Pair(value, index) => (value.form().size(), index.form().size()),
            _ => (form.size(), 0),
        };
        Parts {
            value_bytes,
            index_offset: form.index_offset(),
            index_bytes,
            stride: form.extent() as isize,
        }
    }

    /// The parts of a packed element: without padding.
    fn of_packed(form: Form) -> Parts {
        let array = Parts::of_array(form);
        Parts {
            index_offset: array.value_bytes,
            stride: form.size() as isize,
            ..array
        }
    }
}

/// Copies `count` elements. Padding is neither read nor written: an array's memory may end before
/// its last element's padding.
///
/// # Safety
/// The elements at `from` are readable and those at `to` writable. The two may overlap only if they
/// are the same.
unsafe fn copy(from: *const u8, to: *mut u8, count: usize, from_parts: Parts, to_parts: Parts) {
    let size = from_parts.value_bytes + from_parts.index_bytes;
    let dense = |parts: Parts| {
        let index_follows = parts.index_bytes == 0 || parts.index_offset == parts.value_bytes;
        index_follows && parts.stride == size as isize
    };
    // SAFETY: the caller's promise.
    unsafe {
        if dense(from_parts) && dense(to_parts) {
            return std::ptr::copy(from, to, count * size);
        }
        for i in 0..count as isize {
            let from = from.offset(i * from_parts.stride);
            let to = to.offset(i * to_parts.stride);
            std::ptr::copy(from, to, from_parts.value_bytes);
            if from_parts.index_bytes > 0 {
                let (at, to_at) = (from_parts.index_offset, to_parts.index_offset);
                std::ptr::copy(from.add(at), to.add(to_at), from_parts.index_bytes);
            }
        }
    }
}

/// The representation of a predefined type, named or not.
fn form_of(t: &Datatype) -> Option<Form> {
    match Element::of(t) {
        Element::Basic(basic) => Some(basic.form()),
        Element::Pair(value, index) => Some(Form::Pair(value, index)),
        Element::Derived => None,
    }
}

/// The predefined type of all elements of `t`.
fn element_type(t: &Datatype) -> Option<Arc<Datatype>> {
    match t.pair() {
        Some((value, index)) => {
            let (value, index) = (Datatype::basic(value), Datatype::basic(index));
            Datatype::value_index(value, index).ok().flatten()
        }
        None => t
            .uniform_basic()
            .map(|basic| Datatype::basic(basic).clone()),
    }
}

#[inline]
fn is_aligned(at: *const u8, basic: Basic) -> bool {
    at.addr().is_multiple_of(basic.form().size())
}

impl Op {
    /// Returns whether an accumulation to these elements needs the target's lock, although the
    /// memory is one that all processes map. It does not if every element is one atomic
    /// ([`Op::is_atomic`]) at a multiple of its size.
    #[inline]
    pub fn needs_lock((target, count, t): Elements<*const u8>) -> bool {
        let Some(basic) = t.uniform_basic() else {
            return true;
        };
        if !Op::is_atomic(basic) || t.pair().is_some() {
            return true;
        }
        if t.is_dense() {
            return !is_aligned(target, basic);
        }
        let size = basic.form().size() as i64;
        let mut aligned = true;
        t.elements_at(target.cast_mut(), count, |at, n, stride| {
            aligned &= is_aligned(at, basic) && (n == 1 || stride % size == 0);
        });
        !aligned
    }

    /// Accumulates packed operands into elements of a uniform type, predefined or derived. The old
    /// values go to `result`, packed, if there is one.
    ///
    /// `atomics`: all processes map the memory. Then each element that is one atomic is updated by
    /// it. The others are not: if there are any ([`Op::needs_lock`]), or without `atomics`, the
    /// caller has the target's lock.
    ///
    /// Does nothing if the elements are of several types, or if [`Op::check_accumulate`] refuses
    /// theirs.
    ///
    /// # Safety
    /// The target's data bytes are writable. `origin` is readable and `result` writable for as many
    /// packed bytes, at any alignment. MPI_NO_OP does not read `origin`. None of them overlap.
    /// With `atomics`, the target's elements are changed by atomics, or under the lock.
    pub unsafe fn accumulate(
        &self,
        origin: *const u8,
        (target, count, t): Elements<*mut u8>,
        result: Option<*mut u8>,
        atomics: bool,
    ) {
        let Some(element) = element_type(t) else {
            return;
        };
        let basic = element
            .basic_kind()
            .filter(|b| atomics && Op::is_atomic(*b));
        let size = element.size() as usize;
        let mut done = 0;
        t.elements_at(target, count, |target, n, stride| {
            let (n, origin) = (n as usize, origin.wrapping_add(done));
            let result = result.map(|result| result.wrapping_add(done));
            // SAFETY: the caller's promise: there are operands for each element of the target.
            unsafe {
                match basic {
                    None => self.fetch_apply_packed(origin, (target, stride), result, n, &element),
                    Some(basic) if is_aligned(target, basic) && stride == size as i64 => {
                        self.apply_atomic(origin, target, result, n, basic);
                    }
                    Some(basic) => {
                        for i in 0..n {
                            let target = target.wrapping_offset(i as isize * stride as isize);
                            let origin = origin.wrapping_add(i * size);
                            let result = result.map(|result| result.wrapping_add(i * size));
                            if is_aligned(target, basic) {
                                self.apply_atomic(origin, target, result, 1, basic);
                            } else {
                                self.fetch_apply(origin, target, result, 1, &element);
                            }
                        }
                    }
                }
            }
            done += n * size;
        });
    }

    /// `target[i] = origin[i] op target[i]` without atomics, for `count` elements of the predefined
    /// type `t`. The old values go to `result`, if there is one. All three are arrays as in the
    /// program's memory, where pairs may have padding. The caller has the target's lock.
    ///
    /// Does nothing if [`Op::check_accumulate`] refuses the type.
    ///
    /// # Safety
    /// `origin` is readable, `target` and `result` are writable for `count` elements of `t`, at any
    /// alignment. They do not overlap. MPI_NO_OP does not read `origin`.
    pub unsafe fn fetch_apply(
        &self,
        origin: *const u8,
        target: *mut u8,
        result: Option<*mut u8>,
        count: usize,
        t: &Arc<Datatype>,
    ) {
        let Action::Predefined(op, _) = &self.action else {
            return;
        };
        let (Some(form), Ok(())) = (form_of(t), self.check_accumulate(t)) else {
            return;
        };
        let parts = Parts::of_array(form);
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(result) = result {
                copy(target, result, count, parts, parts);
            }
            match op {
                Predefined::NoOp => {}
                Predefined::Replace => copy(origin, target, count, parts, parts),
                _ => self.apply(origin, target, count as i64, t),
            }
        }
    }

    /// [`Op::fetch_apply`] for packed operands: `origin` and `result` have no padding between and
    /// within pairs. The target's elements are `stride` bytes apart.
    ///
    /// # Safety
    /// As for [`Op::fetch_apply`], with the operands' own layout.
    pub unsafe fn fetch_apply_packed(
        &self,
        origin: *const u8,
        (target, stride): (*mut u8, i64),
        result: Option<*mut u8>,
        count: usize,
        t: &Arc<Datatype>,
    ) {
        let Some(form) = form_of(t) else { return };
        let (array, packed) = (Parts::of_array(form), Parts::of_packed(form));
        let reads_origin = self.predefined_kind() != Some(Predefined::NoOp);
        let size = form.size();
        if form.extent() == size && (stride == size as i64 || count <= 1) {
            // SAFETY: the caller's promise; packed elements are an array.
            return unsafe { self.fetch_apply(origin, target, result, count, t) };
        }
        let (mut value, mut old) = ([0; ELEMENT_MAX_BYTES], [0; ELEMENT_MAX_BYTES]);
        for i in 0..count {
            // SAFETY: the caller's promise; an element has at most so many bytes.
            unsafe {
                let target = target.wrapping_offset(i as isize * stride as isize);
                if reads_origin {
                    copy(origin.add(i * size), value.as_mut_ptr(), 1, packed, array);
                }
                let old_at = result.map(|_| old.as_mut_ptr());
                self.fetch_apply(value.as_ptr(), target, old_at, 1, t);
                if let Some(result) = result {
                    copy(old.as_ptr(), result.add(i * size), 1, array, packed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_datatype::Basic;

    /// One double with its index, as C lays it out.
    fn double_int(value: f64, index: i32) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&value.to_ne_bytes());
        bytes[8..].copy_from_slice(&index.to_ne_bytes());
        bytes
    }

    #[test]
    fn an_array_may_end_before_its_last_padding() {
        let t = Datatype::basic(Basic::DoubleInt);
        let mut origin = [0xee; 28];
        origin[..12].copy_from_slice(&double_int(1.0, 7));
        origin[16..].copy_from_slice(&double_int(5.0, 8));
        let mut target = vec![0xaa; 28];
        target[..12].copy_from_slice(&double_int(2.0, 3));
        target[16..].copy_from_slice(&double_int(4.0, 4));
        let (before, mut result) = (target.clone(), vec![0x11; 28]);
        let run = |op, target: &mut Vec<u8>, result: &mut Vec<u8>| {
            // SAFETY: all hold two elements but the last padding.
            unsafe {
                let (from, to) = (origin.as_ptr(), target.as_mut_ptr());
                Op::of(op).fetch_apply(from, to, Some(result.as_mut_ptr()), 2, t)
            }
        };
        run(Predefined::Minloc, &mut target, &mut result);
        assert_eq!(target[..12], double_int(1.0, 7));
        assert_eq!(
            target[12..],
            before[12..],
            "4.0 is less than 5.0; padding stays"
        );
        assert_eq!(
            (&result[..12], &result[16..]),
            (&before[..12], &before[16..])
        );
        assert_eq!(result[12..16], [0x11; 4], "padding is not written");
        run(Predefined::Replace, &mut target, &mut result);
        assert_eq!(
            (&target[..12], &target[16..]),
            (&origin[..12], &origin[16..])
        );
        assert_eq!(target[12..16], [0xaa; 4]);
        let (before, mut result) = (target.clone(), vec![0x22; 28]);
        run(Predefined::NoOp, &mut target, &mut result);
        assert_eq!(target, before);
        assert_eq!(
            (&result[..12], &result[16..]),
            (&before[..12], &before[16..])
        );
    }

    #[test]
    fn packed_operands_meet_elements_with_padding() {
        // MPI_SHORT_INT: two bytes, two of padding, four bytes; packed it has six.
        let t = Datatype::basic(Basic::ShortInt);
        let packed = |value: i16, index: i32| {
            let mut bytes = value.to_ne_bytes().to_vec();
            bytes.extend(index.to_ne_bytes());
            bytes
        };
        let origin = [packed(9, 1), packed(-3, 2)].concat();
        let mut target = vec![0xaa; 36];
        for (at, value, index) in [(1, 5i16, 6i32), (25, 7, 8)] {
            target[at..at + 2].copy_from_slice(&value.to_ne_bytes());
            target[at + 4..at + 8].copy_from_slice(&index.to_ne_bytes());
        }
        let mut result = vec![0; 12];
        // SAFETY: two elements each; those of the target lie 24 bytes apart, at an odd address.
        unsafe {
            let at = (target.as_mut_ptr().add(1), 24);
            let results = Some(result.as_mut_ptr());
            Op::of(Predefined::Maxloc).fetch_apply_packed(origin.as_ptr(), at, results, 2, t);
        }
        assert_eq!(result, [packed(5, 6), packed(7, 8)].concat());
        let at = |at: usize| [&target[at..at + 2], &target[at + 4..at + 8]].concat();
        assert_eq!((at(1), at(25)), (packed(9, 1), packed(7, 8)));
        assert!(target[3..5] == [0xaa; 2] && target[9..25] == [0xaa; 16]);
        // Elements without padding, far apart, with no result and no origin.
        let mut target = [1i64, 0, 2, 0];
        // SAFETY: two elements each.
        unsafe {
            let at = (target.as_mut_ptr().cast(), 16);
            let (sum, long) = (Op::of(Predefined::Sum), Datatype::basic(Basic::Long));
            sum.fetch_apply_packed([10i64, 20].as_ptr().cast(), at, None, 2, long);
            let mut old = [0i64; 2];
            let results = Some(old.as_mut_ptr().cast());
            let none = std::ptr::null();
            Op::of(Predefined::NoOp).fetch_apply_packed(none, at, results, 2, long);
            assert_eq!(old, [11, 22]);
        }
        assert_eq!(target, [11, 0, 22, 0]);
    }

    #[test]
    fn derived_targets_with_and_without_atomics() {
        let sum = Op::of(Predefined::Sum);
        let int = Datatype::basic(Basic::Int);
        let vector = Datatype::vector(5, 2, 3, int).unwrap();
        // Two ints at multiples of their size, and one that is not.
        let odd = Datatype::hindexed_block(1, &[8, 18, 4], int).unwrap();
        let resized = Datatype::resized(0, 12, int).unwrap();
        let all = [
            (int, 10, false),
            (&vector, 1, false),
            (&odd, 1, true),
            (&resized, 3, false),
        ];
        for (t, count, lock) in all {
            let mut start = [0i32; 16];
            start
                .iter_mut()
                .enumerate()
                .for_each(|(i, v)| *v = 100 * i as i32);
            let needs_lock = Op::needs_lock((start.as_ptr().cast(), count, t));
            assert_eq!(needs_lock, lock, "{t:?}");
            assert!(Op::needs_lock((
                start.as_ptr().cast::<u8>().wrapping_add(2),
                count,
                t
            )));
            let origin: Vec<u8> = (1..11i32).flat_map(i32::to_ne_bytes).collect();
            let packed = t.packed_size(count).unwrap() as usize;
            // One element after the other, by the plain kernel.
            let (mut expected, mut olds) = (start, vec![0; packed]);
            // SAFETY: the elements lie within the arrays.
            unsafe {
                t.pack(start.as_ptr().cast(), count, 0, &mut olds);
                let mut new = olds.clone();
                let ints = (packed / 4) as i64;
                sum.apply(origin.as_ptr(), new.as_mut_ptr(), ints, int);
                t.unpack(expected.as_mut_ptr().cast(), count, 0, &new);
            }
            for atomics in [false, true] {
                let (mut target, mut result) = (start, vec![0; packed]);
                // SAFETY: the elements lie within the array.
                unsafe {
                    let to = (target.as_mut_ptr().cast(), count, &**t);
                    sum.accumulate(origin.as_ptr(), to, Some(result.as_mut_ptr()), atomics);
                }
                assert_eq!(
                    (target, &result),
                    (expected, &olds),
                    "{t:?}, atomics {atomics}"
                );
            }
        }
    }

    #[test]
    fn pairs_and_mixed_types_need_the_lock() {
        let pair = Datatype::contiguous(2, Datatype::basic(Basic::DoubleInt)).unwrap();
        let at = std::ptr::without_provenance(4096);
        assert!(Op::needs_lock((at, 1, &pair)));
        let long = Datatype::basic(Basic::Int64);
        let unnamed = Datatype::value_index(long, long).unwrap().unwrap();
        assert!(Op::needs_lock((at, 1, &unnamed)));
        let types = [long.clone(), Datatype::basic(Basic::Int).clone()];
        let mixed = Datatype::structure(&[1, 1], &[0, 8], &types).unwrap();
        assert!(Op::needs_lock((at, 1, &mixed)));
        let mut target = [0u8; 32];
        target[8..12].copy_from_slice(&5i32.to_ne_bytes());
        target[24..28].copy_from_slice(&6i32.to_ne_bytes());
        let origin = [double_int(-1.0, 1), double_int(2.0, 2)].concat();
        let mut result = vec![0; 24];
        // SAFETY: two pairs each.
        unsafe {
            let to = (target.as_mut_ptr(), 1, &*pair);
            let results = Some(result.as_mut_ptr());
            Op::of(Predefined::Minloc).accumulate(origin.as_ptr(), to, results, true);
        }
        assert_eq!(
            (&target[..12], &target[16..28]),
            (&origin[..12], &double_int(0.0, 6)[..])
        );
        assert_eq!(result, [double_int(0.0, 5), double_int(0.0, 6)].concat());
        let (mut target, origin) = ([7i64, 9], [1i64, 2]);
        // SAFETY: one pair each.
        unsafe {
            let to = (target.as_mut_ptr().cast(), 1, &*unnamed);
            Op::of(Predefined::Minloc).accumulate(origin.as_ptr().cast(), to, None, true);
            assert_eq!(target, [1, 2]);
            let to = (target.as_mut_ptr().cast(), 1, &*mixed);
            Op::of(Predefined::Sum).accumulate(origin.as_ptr().cast(), to, None, true);
        }
        assert_eq!(target, [1, 2]);
    }

    #[test]
    fn unnamed_pairs_are_replaced_and_read() {
        let long = Datatype::basic(Basic::Int64);
        let t = Datatype::value_index(long, long).unwrap().unwrap();
        let (origin, mut target, mut old) = ([1i64, 2], [3i64, 4], [0i64; 2]);
        for op in [Predefined::Replace, Predefined::NoOp] {
            assert_eq!(Op::of(op).check_accumulate(&t), Ok(()));
            // SAFETY: one pair each.
            unsafe {
                let result = Some(old.as_mut_ptr().cast());
                let to = target.as_mut_ptr().cast();
                Op::of(op).fetch_apply(origin.as_ptr().cast(), to, result, 1, &t);
            }
        }
        assert_eq!((target, old), ([1, 2], [1, 2]));
    }

    #[test]
    fn what_is_not_defined_touches_nothing() {
        let derived = Datatype::contiguous(2, Datatype::basic(Basic::Int)).unwrap();
        let double = Datatype::basic(Basic::Double);
        for (op, t) in [(Predefined::Sum, &derived), (Predefined::Band, double)] {
            let (mut target, mut old) = ([3i64], [4i64]);
            // SAFETY: eight bytes each.
            unsafe {
                let result = Some(old.as_mut_ptr().cast());
                let to = target.as_mut_ptr().cast();
                Op::of(op).fetch_apply([1i64].as_ptr().cast(), to, result, 1, t);
            }
            assert_eq!((target, old), ([3], [4]));
        }
    }
}
