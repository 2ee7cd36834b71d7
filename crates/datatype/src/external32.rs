//! external32, the portable representation (MPI 5.0 §14.5.2): big-endian, IEEE numbers, sizes fixed
//! by the standard, no padding.

use crate::constructor::Expansion;
use crate::{Basic, Datatype, Form, TypeError, quad};

impl Datatype {
    /// Bytes of one element in external32. `None`: beyond 63 bits.
    pub fn external_size(&self) -> Option<i64> {
        match self.expansion() {
            Expansion::Leaf(basic) => Some(basic.external_size() as i64),
            Expansion::Repeat {
                count, block, old, ..
            } => old.external_size()?.checked_mul(block)?.checked_mul(count),
            Expansion::List(mut blocks) => blocks.try_fold(0i64, |sum, (_, block, old)| {
                sum.checked_add(old.external_size()?.checked_mul(block)?)
            }),
        }
    }

    /// Packs `count` elements at `buf` in external32 into `out`, which must have room for them.
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// [`TypeError::Conversion`] if a value does not fit (a long beyond 32 bits),
    /// [`TypeError::Argument`] if `out` is short.
    ///
    /// # Safety
    /// The elements' data bytes must be readable and not overlap `out`.
    pub unsafe fn pack_external(
        &self,
        buf: *const u8,
        count: i64,
        out: &mut [u8],
    ) -> Result<usize, TypeError> {
        let mut writer = Writer { out, done: 0 };
        let mut each = |basic: Basic, at: *mut u8| {
            let room = writer.take(basic.external_size())?;
            // SAFETY: the caller's promise: `at` is one of the elements.
            unsafe { encode(basic, at, room) }
        };
        // SAFETY: the caller's promise.
        unsafe { self.visit_all(buf.cast_mut(), count, &mut each)? };
        Ok(writer.done)
    }

    /// Unpacks `count` elements at `buf` from external32 bytes, which must be enough. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// [`TypeError::Argument`] if `data` is short.
    ///
    /// # Safety
    /// The elements' data bytes must be writable and not overlap `data`.
    pub unsafe fn unpack_external(
        &self,
        buf: *mut u8,
        count: i64,
        data: &[u8],
    ) -> Result<usize, TypeError> {
        let mut done = 0;
        let mut each = |basic: Basic, at: *mut u8| {
            let Some(bytes) = data.get(done..done + basic.external_size()) else {
                return Err(TypeError::Argument(format!(
                    "the packed data has {} bytes, but more are needed",
                    data.len()
                )));
            };
            done += bytes.len();
            // SAFETY: the caller's promise: `at` is one of the elements.
            unsafe { decode(basic, bytes, at) };
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { self.visit_all(buf, count, &mut each)? };
        Ok(done)
    }

    /// Unpacks the beginning of `count` elements at `buf`: as many whole numbers as there are in
    /// the external32 bytes `data`. Returns how many bytes of the buffer's type they are.
    ///
    /// # Safety
    /// As for [`Datatype::unpack_external`].
    pub unsafe fn unpack_external_start(&self, buf: *mut u8, count: i64, data: &[u8]) -> u64 {
        let (mut done, mut stored) = (0, 0);
        let mut each = |basic: Basic, at: *mut u8| {
            let Some(bytes) = data.get(done..done + basic.external_size()) else {
                return Err(TypeError::Argument(String::new()));
            };
            done += bytes.len();
            stored += basic.form().size() as u64;
            // SAFETY: the caller's promise: `at` is one of the elements.
            unsafe { decode(basic, bytes, at) };
            Ok(())
        };
        // The error says that no whole number is left.
        // SAFETY: the caller's promise.
        let _ = unsafe { self.visit_all(buf, count, &mut each) };
        stored
    }

    /// Calls `each` for the basic elements (never pairs) of `count` elements at `base`, in the type
    /// map's order.
    ///
    /// # Safety
    /// None beyond what `each` asks for.
    unsafe fn visit_all<F>(&self, base: *mut u8, count: i64, each: &mut F) -> Result<(), TypeError>
    where
        F: FnMut(Basic, *mut u8) -> Result<(), TypeError>,
    {
        for i in 0..count {
            // SAFETY: as promised by the caller.
            unsafe {
                self.visit(
                    base.wrapping_offset((i as isize).wrapping_mul(self.extent() as isize)),
                    each,
                )?
            };
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Datatype::visit_all`].
    unsafe fn visit<F>(&self, base: *mut u8, each: &mut F) -> Result<(), TypeError>
    where
        F: FnMut(Basic, *mut u8) -> Result<(), TypeError>,
    {
        if self.shape.size == 0 {
            return Ok(());
        }
        match self.expansion() {
            Expansion::Leaf(basic) => match basic.form() {
                Form::Pair(value, index) => {
                    each(value, base)?;
                    each(index, base.wrapping_add(basic.form().index_offset()))
                }
                _ => each(basic, base),
            },
            Expansion::Repeat {
                count,
                stride,
                block,
                old,
            } => {
                for i in 0..count {
                    let at = base.wrapping_offset((i as isize).wrapping_mul(stride as isize));
                    // SAFETY: as promised by the caller.
                    unsafe { old.visit_all(at, block, each)? };
                }
                Ok(())
            }
            Expansion::List(mut blocks) => blocks.try_for_each(|(at, block, old)| {
                // SAFETY: as promised by the caller.
                unsafe { old.visit_all(base.wrapping_offset(at as isize), block, each) }
            }),
        }
    }
}

struct Writer<'a> {
    out: &'a mut [u8],
    done: usize,
}

impl Writer<'_> {
    fn take(&mut self, len: usize) -> Result<&mut [u8], TypeError> {
        let room = self.out.len();
        match self.out.get_mut(self.done..self.done + len) {
            Some(bytes) => {
                self.done += len;
                Ok(bytes)
            }
            None => Err(TypeError::Argument(format!(
                "outsize is {room} bytes from position on, but more are needed"
            ))),
        }
    }
}

/// # Safety
/// `at` must be readable for an element of `basic`.
unsafe fn encode(basic: Basic, at: *const u8, out: &mut [u8]) -> Result<(), TypeError> {
    let form = basic.form();
    // SAFETY: the caller's promise.
    let native = unsafe { std::slice::from_raw_parts(at, form.size()) };
    match form {
        Form::LongDouble | Form::CLongDouble => {
            for (from, to) in native.chunks_exact(16).zip(out.chunks_exact_mut(16)) {
                to.copy_from_slice(&long_double_to_quad(array(from)).to_be_bytes());
            }
        }
        Form::C16 | Form::C32 | Form::C64 | Form::C128 => {
            let (half, part) = (native.len() / 2, out.len() / 2);
            swap(&native[..half], &mut out[..part]);
            swap(&native[half..], &mut out[part..]);
        }
        _ if native.len() == out.len() => swap(native, out),
        // C's long and wchar_t have more bytes in memory than in external32.
        _ => {
            let signed = matches!(form, Form::I32 | Form::I64) && basic != Basic::Wchar;
            let value = match native.len() {
                4 => i64::from(i32::from_le_bytes(array(native))),
                _ => i64::from_le_bytes(array(native)),
            };
            let bits = 8 * out.len() as u32;
            let fits = match signed {
                true => value >> (bits - 1) == 0 || value >> (bits - 1) == -1,
                false => (value as u64) >> bits == 0,
            };
            if !fits {
                return Err(TypeError::Conversion {
                    name: basic.name(),
                    value,
                    bytes: out.len(),
                });
            }
            let low = value.to_be_bytes();
            out.copy_from_slice(&low[8 - out.len()..]);
        }
    }
    Ok(())
}

/// # Safety
/// `at` must be writable for an element of `basic`.
unsafe fn decode(basic: Basic, bytes: &[u8], at: *mut u8) {
    let form = basic.form();
    let mut native = [0u8; 32];
    let native = &mut native[..form.size()];
    match form {
        Form::LongDouble | Form::CLongDouble => {
            for (from, to) in bytes.chunks_exact(16).zip(native.chunks_exact_mut(16)) {
                to.copy_from_slice(&quad_to_long_double(u128::from_be_bytes(array(from))));
            }
        }
        Form::C16 | Form::C32 | Form::C64 | Form::C128 => {
            let (half, part) = (native.len() / 2, bytes.len() / 2);
            swap(&bytes[..part], &mut native[..half]);
            swap(&bytes[part..], &mut native[half..]);
        }
        _ if native.len() == bytes.len() => swap(bytes, native),
        _ => {
            let signed = matches!(form, Form::I32 | Form::I64) && basic != Basic::Wchar;
            let fill = if signed && bytes[0] >> 7 == 1 {
                0xff
            } else {
                0
            };
            native.fill(fill);
            for (to, from) in native.iter_mut().zip(bytes.iter().rev()) {
                *to = *from;
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(native.as_ptr(), at, native.len()) }
}

/// The machines that this library runs on are little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

fn swap(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut a = [0; N];
    a.copy_from_slice(bytes);
    a
}

#[cfg(target_arch = "x86_64")]
fn long_double_to_quad(native: [u8; 16]) -> u128 {
    // The upper six bytes are padding with any content.
    quad::widen(u128::from_le_bytes(native) & ((1 << 80) - 1))
}

#[cfg(target_arch = "x86_64")]
fn quad_to_long_double(quad: u128) -> [u8; 16] {
    quad::narrow(quad).to_le_bytes()
}

#[cfg(not(target_arch = "x86_64"))]
fn long_double_to_quad(native: [u8; 16]) -> u128 {
    u128::from_le_bytes(native)
}

#[cfg(not(target_arch = "x86_64"))]
fn quad_to_long_double(quad: u128) -> [u8; 16] {
    quad.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There and back through external32.
    fn round<T: Copy + PartialEq + std::fmt::Debug>(basic: Basic, values: &[T], expected: &[u8]) {
        let t = Datatype::basic(basic);
        let mut packed = vec![0; expected.len()];
        // SAFETY: the slices have the elements' bytes.
        unsafe {
            assert_eq!(
                t.pack_external(values.as_ptr().cast(), values.len() as i64, &mut packed),
                Ok(expected.len())
            );
            assert_eq!(packed, expected);
            let mut back = vec![values[0]; values.len()];
            let n = t.unpack_external(back.as_mut_ptr().cast(), values.len() as i64, &packed);
            assert_eq!((n, &back[..]), (Ok(expected.len()), values));
        }
    }

    #[test]
    fn numbers_are_big_endian() {
        round(
            Basic::Int,
            &[1i32, -2],
            &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe],
        );
        round(Basic::Double, &[1.0f64], &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
        round(
            Basic::CFloatComplex,
            &[[1.0f32, -2.0]],
            &[0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0],
        );
        round(Basic::Char, &[b'x' as i8], b"x");
        round(Basic::Integer16, &[-1i128], &[0xff; 16]);
    }

    #[test]
    fn long_and_wchar_are_shorter_there() {
        round(
            Basic::Long,
            &[-5i64, 7],
            &[0xff, 0xff, 0xff, 0xfb, 0, 0, 0, 7],
        );
        round(
            Basic::UnsignedLong,
            &[0xffff_fffeu64],
            &[0xff, 0xff, 0xff, 0xfe],
        );
        round(Basic::Wchar, &[0xfe01i32], &[0xfe, 1]);
        let big = 1i64 << 31;
        // SAFETY: one long.
        let e = unsafe {
            Datatype::basic(Basic::Long).pack_external((&raw const big).cast(), 1, &mut [0; 4])
        };
        assert_eq!(
            e,
            Err(TypeError::Conversion {
                name: "MPI_LONG",
                value: big,
                bytes: 4
            })
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_long_double_becomes_a_quad() {
        // -1.5 as the processor holds it: sign and exponent 0xbfff, significand 0xc000….
        let native: u128 = 0xbfff << 64 | 0xc000_0000_0000_0000;
        let mut quad = [0; 16];
        quad[..3].copy_from_slice(&[0xbf, 0xff, 0x80]);
        round(Basic::LongDouble, &[native], &quad);
        round(
            Basic::CLongDoubleComplex,
            &[[native, native]],
            &[quad, quad].concat(),
        );
    }

    #[test]
    fn a_structure_loses_its_padding() {
        let types = [
            Datatype::basic(Basic::Char).clone(),
            Datatype::basic(Basic::ShortInt).clone(),
        ];
        let t = Datatype::structure(&[1, 1], &[0, 4], &types).unwrap();
        assert_eq!(t.external_size(), Some(7));
        let native = [b'c', 9, 9, 9, 2, 0, 9, 9, 3, 0, 0, 0];
        let mut packed = [0; 7];
        let mut back = [9; 12];
        // SAFETY: the arrays have the structure's bytes.
        unsafe {
            assert_eq!(t.pack_external(native.as_ptr(), 1, &mut packed), Ok(7));
            assert_eq!(packed, [b'c', 0, 2, 0, 0, 0, 3]);
            assert_eq!(t.unpack_external(back.as_mut_ptr(), 1, &packed), Ok(7));
            assert!(
                t.pack_external(native.as_ptr(), 1, &mut packed[..6])
                    .is_err()
            );
            assert!(
                t.unpack_external(back.as_mut_ptr(), 1, &packed[..6])
                    .is_err()
            );
        }
        assert_eq!(back, native);
        let mut start = [9; 12];
        // SAFETY: the array has the structure's bytes.
        let stored = unsafe { t.unpack_external_start(start.as_mut_ptr(), 1, &packed[..6]) };
        assert_eq!(
            (stored, start),
            (3, [b'c', 9, 9, 9, 2, 0, 9, 9, 9, 9, 9, 9])
        );
        // SAFETY: as above.
        let stored = unsafe { t.unpack_external_start(start.as_mut_ptr(), 1, &packed) };
        assert_eq!((stored, start), (7, native));
    }
}
