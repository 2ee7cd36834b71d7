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

/// Bit of the numbers of the program's own classes.
const OWN_CLASS: u32 = 1 << 31;

/// The number of an error's class. Classes that files do not have count as Io.
pub(super) fn number(e: &Error) -> u32 {
    let kind = e.kind_elsewhere();
    match kind {
        // The number is incremented on its way.
        Kind::Class(class) if (1..i32::MAX).contains(&class) => OWN_CLASS | class as u32,
        _ => CLASSES.iter().position(|k| *k == kind).unwrap_or(0) as u32,
    }
}

/// The class with this number.
pub(super) fn class(number: u32) -> Kind {
    if number & OWN_CLASS != 0 {
        return Kind::Class((number & !OWN_CLASS) as i32);
    }
    *CLASSES.get(number as usize).unwrap_or(&Kind::Io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_classes() {
        let of = |kind| Error::new(kind, "");
        for kind in CLASSES {
            assert_eq!(class(number(&of(kind))), kind);
        }
        assert_eq!(class(CLASSES.len() as u32), Kind::Io);
        assert_eq!(class(number(&of(Kind::Win))), Kind::Io);
    }

    #[test]
    fn the_class_of_a_code_of_the_program_is_told() {
        let e = Error::new(Kind::Code(20_000), "").of_class(7);
        assert_eq!(
            (e.kind(), class(number(&e))),
            (Kind::Code(20_000), Kind::Class(7))
        );
        let bad = Error::new(Kind::Code(20_000), "").of_class(i32::MAX);
        assert_eq!(class(number(&bad)), Kind::Io);
    }
}
