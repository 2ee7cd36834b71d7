//! The predefined datatypes (MPI 5.0 §3.2.2, §5.1, §20.3): what each is in memory.

/// The groups of predefined types in MPI 5.0 §6.9.2, which operations and matching go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// A C integer.
    CInteger,
    /// A Fortran INTEGER.
    FortranInteger,
    /// A C float or a Fortran REAL.
    Float,
    /// A complex number, of any language.
    Complex,
    /// C's and C++'s bool: one byte, 0 or 1.
    Logical,
    /// A Fortran LOGICAL. Its representation of true depends on the Fortran compiler.
    FortranLogical,
    /// MPI_BYTE.
    Byte,
    /// MPI_AINT, MPI_COUNT, MPI_OFFSET.
    MultiLanguage,
    /// MPI_CHAR, MPI_CHARACTER, MPI_WCHAR: printable characters, not integers.
    Character,
    /// MPI_PACKED.
    Packed,
    /// A value with its index, for MPI_MINLOC and MPI_MAXLOC.
    Pair,
}

/// The representation of one element in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // the names say it: letter, bits
pub enum Form {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    /// The C long double of this machine.
    LongDouble,
    /// IEEE binary128.
    F128,
    /// Two `F16`, real part first. The following are made alike.
    C16,
    C32,
    C64,
    CLongDouble,
    C128,
    /// A value and its index, laid out as a C structure of the two.
    Pair(Basic, Basic),
}

/// Bytes of the C long double, and its alignment, on x86-64 (80 bits of it used) and AArch64 Linux
/// (binary128).
pub const LONG_DOUBLE_BYTES: usize = 16;

/// What is known of each predefined type.
pub(crate) struct Facts {
    pub name: &'static str,
    pub class: Class,
    pub form: Form,
    /// Bytes in external32 (MPI 5.0 §14.5.2).
    pub external: u8,
    /// It exists here. Some optional Fortran kinds do not.
    pub exists: bool,
}

macro_rules! basics {
    ($($variant:ident = $value:literal, $name:literal, $class:ident, $form:expr, $external:literal,
        $exists:literal;)*) => {
        /// A predefined datatype. The number is its handle value in the ABI (MPI 5.0 §20.3). Two
        /// types with one representation, such as MPI_INT and MPI_INTEGER, are two kinds: they do
        /// not match each other.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(missing_docs)] // each is the MPI_ constant of the same name
        pub enum Basic { $($variant = $value,)* }

        impl Basic {
            /// All of them, in the order of their handle values.
            pub const ALL: &'static [Basic] = &[$(Basic::$variant),*];

            /// The type with this handle value.
            #[inline]
            pub fn of_value(value: u32) -> Option<Basic> {
                match value { $($value => Some(Basic::$variant),)* _ => None }
            }

            pub(crate) const fn facts(self) -> Facts {
                use Form::*;
                match self {
                    $(Basic::$variant => Facts {
                        name: $name, class: Class::$class, form: $form, external: $external,
                            exists: $exists
                    },)*
                }
            }
        }
    };
}

basics! {
    Aint = 0x201, "MPI_AINT", MultiLanguage, I64, 8, true;
    Count = 0x202, "MPI_COUNT", MultiLanguage, I64, 8, true;
    Offset = 0x203, "MPI_OFFSET", MultiLanguage, I64, 8, true;
    Packed = 0x207, "MPI_PACKED", Packed, U8, 1, true;
    Short = 0x208, "MPI_SHORT", CInteger, I16, 2, true;
    Int = 0x209, "MPI_INT", CInteger, I32, 4, true;
    Long = 0x20a, "MPI_LONG", CInteger, I64, 4, true;
    LongLong = 0x20b, "MPI_LONG_LONG", CInteger, I64, 8, true;
    UnsignedShort = 0x20c, "MPI_UNSIGNED_SHORT", CInteger, U16, 2, true;
    Unsigned = 0x20d, "MPI_UNSIGNED", CInteger, U32, 4, true;
    UnsignedLong = 0x20e, "MPI_UNSIGNED_LONG", CInteger, U64, 4, true;
    UnsignedLongLong = 0x20f, "MPI_UNSIGNED_LONG_LONG", CInteger, U64, 8, true;
    Float = 0x210, "MPI_FLOAT", Float, F32, 4, true;
    CFloatComplex = 0x212, "MPI_C_FLOAT_COMPLEX", Complex, C32, 8, true;
    CxxFloatComplex = 0x213, "MPI_CXX_FLOAT_COMPLEX", Complex, C32, 8, true;
    Double = 0x214, "MPI_DOUBLE", Float, F64, 8, true;
    CDoubleComplex = 0x216, "MPI_C_DOUBLE_COMPLEX", Complex, C64, 16, true;
    CxxDoubleComplex = 0x217, "MPI_CXX_DOUBLE_COMPLEX", Complex, C64, 16, true;
    Logical = 0x218, "MPI_LOGICAL", FortranLogical, I32, 4, true;
    Integer = 0x219, "MPI_INTEGER", FortranInteger, I32, 4, true;
    Real = 0x21a, "MPI_REAL", Float, F32, 4, true;
    Complex = 0x21b, "MPI_COMPLEX", Complex, C32, 8, true;
    DoublePrecision = 0x21c, "MPI_DOUBLE_PRECISION", Float, F64, 8, true;
    DoubleComplex = 0x21d, "MPI_DOUBLE_COMPLEX", Complex, C64, 16, true;
    Character = 0x21e, "MPI_CHARACTER", Character, U8, 1, true;
    LongDouble = 0x220, "MPI_LONG_DOUBLE", Float, LongDouble, 16, true;
    CLongDoubleComplex = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", Complex, CLongDouble, 32, true;
    CxxLongDoubleComplex = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", Complex, CLongDouble, 32, true;
    FloatInt = 0x228, "MPI_FLOAT_INT", Pair, Pair(Basic::Float, Basic::Int), 8, true;
    DoubleInt = 0x229, "MPI_DOUBLE_INT", Pair, Pair(Basic::Double, Basic::Int), 12, true;
    LongInt = 0x22a, "MPI_LONG_INT", Pair, Pair(Basic::Long, Basic::Int), 8, true;
    TwoInt = 0x22b, "MPI_2INT", Pair, Pair(Basic::Int, Basic::Int), 8, true;
    ShortInt = 0x22c, "MPI_SHORT_INT", Pair, Pair(Basic::Short, Basic::Int), 6, true;
    LongDoubleInt = 0x22d, "MPI_LONG_DOUBLE_INT", Pair, Pair(Basic::LongDouble, Basic::Int), 20,
        true;
    TwoReal = 0x230, "MPI_2REAL", Pair, Pair(Basic::Real, Basic::Real), 8, true;
    TwoDoublePrecision = 0x231, "MPI_2DOUBLE_PRECISION", Pair, Pair(Basic::DoublePrecision,
        Basic::DoublePrecision), 16, true;
    TwoInteger = 0x232, "MPI_2INTEGER", Pair, Pair(Basic::Integer, Basic::Integer), 8, true;
    CBool = 0x238, "MPI_C_BOOL", Logical, U8, 1, true;
    CxxBool = 0x239, "MPI_CXX_BOOL", Logical, U8, 1, true;
    Wchar = 0x23c, "MPI_WCHAR", Character, I32, 2, true;
    Int8 = 0x240, "MPI_INT8_T", CInteger, I8, 1, true;
    Uint8 = 0x241, "MPI_UINT8_T", CInteger, U8, 1, true;
    Char = 0x243, "MPI_CHAR", Character, I8, 1, true;
    SignedChar = 0x244, "MPI_SIGNED_CHAR", CInteger, I8, 1, true;
    UnsignedChar = 0x245, "MPI_UNSIGNED_CHAR", CInteger, U8, 1, true;
    Byte = 0x247, "MPI_BYTE", Byte, U8, 1, true;
    Int16 = 0x248, "MPI_INT16_T", CInteger, I16, 2, true;
    Uint16 = 0x249, "MPI_UINT16_T", CInteger, U16, 2, true;
    Int32 = 0x250, "MPI_INT32_T", CInteger, I32, 4, true;
    Uint32 = 0x251, "MPI_UINT32_T", CInteger, U32, 4, true;
    Int64 = 0x258, "MPI_INT64_T", CInteger, I64, 8, true;
    Uint64 = 0x259, "MPI_UINT64_T", CInteger, U64, 8, true;
    Logical1 = 0x2c0, "MPI_LOGICAL1", FortranLogical, I8, 1, true;
    Integer1 = 0x2c1, "MPI_INTEGER1", FortranInteger, I8, 1, true;
    Logical2 = 0x2c8, "MPI_LOGICAL2", FortranLogical, I16, 2, true;
    Integer2 = 0x2c9, "MPI_INTEGER2", FortranInteger, I16, 2, true;
    Real2 = 0x2ca, "MPI_REAL2", Float, F16, 2, true;
    Logical4 = 0x2d0, "MPI_LOGICAL4", FortranLogical, I32, 4, true;
    Integer4 = 0x2d1, "MPI_INTEGER4", FortranInteger, I32, 4, true;
    Real4 = 0x2d2, "MPI_REAL4", Float, F32, 4, true;
    Complex4 = 0x2d3, "MPI_COMPLEX4", Complex, C16, 4, false;
    Logical8 = 0x2d8, "MPI_LOGICAL8", FortranLogical, I64, 8, true;
    Integer8 = 0x2d9, "MPI_INTEGER8", FortranInteger, I64, 8, true;
    Real8 = 0x2da, "MPI_REAL8", Float, F64, 8, true;
    Complex8 = 0x2db, "MPI_COMPLEX8", Complex, C32, 8, true;
    Logical16 = 0x2e0, "MPI_LOGICAL16", FortranLogical, I128, 16, true;
    Integer16 = 0x2e1, "MPI_INTEGER16", FortranInteger, I128, 16, true;
    Real16 = 0x2e2, "MPI_REAL16", Float, F128, 16, true;
    Complex16 = 0x2e3, "MPI_COMPLEX16", Complex, C64, 16, true;
    Complex32 = 0x2eb, "MPI_COMPLEX32", Complex, C128, 32, true;
}

impl Form {
    /// Data bytes of one element, without any padding between a pair's parts or after them.
    pub const fn size(self) -> usize {
        match self {
            Form::I8 | Form::U8 => 1,
            Form::I16 | Form::U16 | Form::F16 => 2,
            Form::I32 | Form::U32 | Form::F32 | Form::C16 => 4,
            Form::I64 | Form::U64 | Form::F64 | Form::C32 => 8,
            Form::LongDouble => LONG_DOUBLE_BYTES,
            Form::I128 | Form::F128 | Form::C64 => 16,
            Form::CLongDouble => 2 * LONG_DOUBLE_BYTES,
            Form::C128 => 32,
            Form::Pair(value, index) => value.form().size() + index.form().size(),
        }
    }

    /// The C compiler's alignment in bytes.
    pub const fn align(self) -> usize {
        match self {
            Form::C16 => 2,
            Form::C32 => 4,
            Form::C64 => 8,
            Form::CLongDouble => LONG_DOUBLE_BYTES,
            Form::C128 => 16,
            Form::Pair(value, index) => {
                let (v, i) = (value.form().align(), index.form().align());
                if v > i { v } else { i }
            }
            _ => self.size(),
        }
    }

    /// Bytes from one element of an array to the next.
    pub const fn extent(self) -> usize {
        match self {
            Form::Pair(_, index) => {
                (self.index_offset() + index.form().size()).next_multiple_of(self.align())
            }
            _ => self.size(),
        }
    }

    /// Offset of a pair's index, bytes. 0 for types that are no pairs.
    pub const fn index_offset(self) -> usize {
        match self {
            Form::Pair(value, index) => value.form().size().next_multiple_of(index.form().align()),
            _ => 0,
        }
    }
}

impl Basic {
    /// The handle value.
    #[inline]
    pub const fn value(self) -> u32 {
        self as u32
    }

    /// The name in C.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The group of types that it belongs to.
    pub const fn class(self) -> Class {
        self.facts().class
    }

    /// Its representation in memory.
    pub const fn form(self) -> Form {
        self.facts().form
    }

    /// Returns whether it exists here. Optional Fortran kinds that no Fortran compiler here offers
    /// do not exist, though their form is known.
    pub const fn exists(self) -> bool {
        self.facts().exists
    }

    /// Data bytes of one element (as MPI_Type_size): a pair's padding does not count. -1 if the
    /// type does not exist here.
    pub const fn size(self) -> i64 {
        if self.exists() {
            self.form().size() as i64
        } else {
            -1
        }
    }

    /// The C compiler's alignment in bytes.
    pub const fn align(self) -> usize {
        self.form().align()
    }

    /// Bytes from one element of an array to the next.
    pub const fn extent(self) -> i64 {
        self.form().extent() as i64
    }

    /// Bytes of one element in the external32 representation (MPI 5.0 §14.5.2).
    pub const fn external_size(self) -> usize {
        self.facts().external as usize
    }
}

/// By the lowest eight bits of a type's handle value: its bytes if they are 1, 2, 4 or 8 in one
/// run, otherwise 0.
static SHORT_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < Basic::ALL.len() {
        let basic = Basic::ALL[i];
        let size = basic.size();
        if size == basic.extent() && matches!(size, 1 | 2 | 4 | 8) {
            table[(basic.value() & 0xff) as usize] = size as u8;
        }
        i += 1;
    }
    table
};

/// Bytes of an element of the predefined type with this handle, if they are 1, 2, 4 or 8 in one
/// run. 0 for all other types and handles. It reads a constant table.
#[inline(always)]
pub fn short_bytes(handle: u64) -> u64 {
    if handle >> 8 != 2 {
        return 0;
    }
    SHORT_BYTES[(handle & 0xff) as usize].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_abi_and_ascend() {
        assert!(Basic::ALL.windows(2).all(|w| w[0] < w[1]));
        for &b in Basic::ALL {
            assert_eq!(Basic::of_value(b.value()), Some(b));
        }
        assert_eq!(Basic::of_value(0x200), None, "MPI_DATATYPE_NULL is no type");
    }

    #[test]
    fn sized_kinds_say_their_size_in_the_handle() {
        for &b in Basic::ALL.iter().filter(|b| b.value() >= 0x240) {
            assert_eq!(b.form().size(), 1 << ((b.value() >> 3) & 7), "{}", b.name());
        }
    }

    #[test]
    fn short_types_are_found_by_their_handles() {
        for handle in 0..0x500 {
            let bytes = match Basic::of_value(handle).map(|b| (b.size(), b.extent())) {
                Some((size @ (1 | 2 | 4 | 8), extent)) if size == extent => size as u64,
                _ => 0,
            };
            assert_eq!(short_bytes(handle.into()), bytes, "{handle:#x}");
        }
        assert_eq!(short_bytes(u64::from(Basic::Int.value()) | 1 << 32), 0);
    }

    #[test]
    fn pairs_are_laid_out_as_c_structures() {
        let layout = |b: Basic| (b.size(), b.extent(), b.form().index_offset());
        assert_eq!(layout(Basic::FloatInt), (8, 8, 4));
        assert_eq!(layout(Basic::DoubleInt), (12, 16, 8));
        assert_eq!(layout(Basic::LongInt), (12, 16, 8));
        assert_eq!(layout(Basic::ShortInt), (6, 8, 4));
        assert_eq!(layout(Basic::LongDoubleInt), (20, 32, 16));
        assert_eq!(layout(Basic::TwoDoublePrecision), (16, 16, 8));
    }
}
