//! The operations that the standard names.

/// A predefined operation. The number is its handle value in the ABI (MPI 5.0 §20.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each is the MPI_ constant of the same name
pub enum Predefined {
    Sum = 0x21,
    Min = 0x22,
    Max = 0x23,
    Prod = 0x24,
    Band = 0x28,
    Bor = 0x29,
    Bxor = 0x2a,
    Land = 0x30,
    Lor = 0x31,
    Lxor = 0x32,
    Minloc = 0x38,
    Maxloc = 0x39,
    Replace = 0x3c,
    NoOp = 0x3d,
}

impl Predefined {
    /// All of them.
    pub const ALL: [Predefined; 14] = {
        use Predefined::*;
        [
            Sum, Min, Max, Prod, Band, Bor, Bxor, Land, Lor, Lxor, Minloc, Maxloc, Replace, NoOp,
        ]
    };

    /// Its name in C.
    pub fn name(self) -> &'static str {
        match self {
            Predefined::Sum => "MPI_SUM",
            Predefined::Min => "MPI_MIN",
            Predefined::Max => "MPI_MAX",
            Predefined::Prod => "MPI_PROD",
            Predefined::Band => "MPI_BAND",
            Predefined::Bor => "MPI_BOR",
            Predefined::Bxor => "MPI_BXOR",
            Predefined::Land => "MPI_LAND",
            Predefined::Lor => "MPI_LOR",
            Predefined::Lxor => "MPI_LXOR",
            Predefined::Minloc => "MPI_MINLOC",
            Predefined::Maxloc => "MPI_MAXLOC",
            Predefined::Replace => "MPI_REPLACE",
            Predefined::NoOp => "MPI_NO_OP",
        }
    }

    /// Returns whether it is only for one-sided accumulation (MPI 5.0 §12.3.4), not for reductions.
    pub fn is_accumulate_only(self) -> bool {
        matches!(self, Predefined::Replace | Predefined::NoOp)
    }
}
