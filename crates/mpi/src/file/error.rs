//! Errors of files: from `ferry_io`'s kinds to the standard's classes (MPI 5.0 §14.8).

use crate::{Error, Kind};
use ferry_io::Kind as Cause;

impl From<ferry_io::Error> for Error {
    fn from(e: ferry_io::Error) -> Error {
        let kind = match e.kind {
            Cause::NoSuchFile => Kind::NoSuchFile,
            Cause::FileExists => Kind::FileExists,
            Cause::Access => Kind::Access,
            Cause::BadFile => Kind::BadFile,
            Cause::NoSpace => Kind::NoSpace,
            Cause::Quota => Kind::Quota,
            Cause::ReadOnly => Kind::ReadOnly,
            Cause::FileInUse => Kind::FileInUse,
            Cause::Unsupported => Kind::UnsupportedOperation,
            Cause::Io => Kind::Io,
        };
        Error::new(kind, e.to_string())
    }
}

/// The classes that an error of a file can have, as numbers for messages between ranks.
const CLASSES: [Kind; 25] = [
    Kind::Io,
    Kind::NoSuchFile,
    Kind::FileExists,
    Kind::Access,
    Kind::BadFile,
    Kind::NoSpace,
    Kind::Quota,
    Kind::ReadOnly,
    Kind::FileInUse,
    Kind::UnsupportedOperation,
    Kind::Amode,
    Kind::Arg,
    Kind::NotSame,
    Kind::Type,
    Kind::UnsupportedDatarep,
    Kind::Conversion,
    Kind::InfoValue,
    Kind::NoMem,
    Kind::Other,
    Kind::Intern,
    Kind::Buffer,
    Kind::Count,
    Kind::Info,
    Kind::InfoKey,
    Kind::ValueTooLarge,
];

/// The number of a class. Classes that files do not have count as Io.
pub(super) fn number(kind: Kind) -> u32 {
    CLASSES.iter().position(|k| *k == kind).unwrap_or(0) as u32
}

/// The class with this number.
pub(super) fn class(number: u32) -> Kind {
    *CLASSES.get(number as usize).unwrap_or(&Kind::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_classes() {
        for kind in CLASSES {
            assert_eq!(class(number(kind)), kind);
        }
        assert_eq!(class(u32::MAX), Kind::Io);
        assert_eq!(class(number(Kind::Win)), Kind::Io);
    }
}
