//! Checks and conversion of arguments, from C values to those that the glue takes. These checks do
//! not depend on the call.

mod arrays;
mod memory;
mod objects;
mod ranks;
mod strings;

pub use arrays::*;
pub use memory::*;
pub use objects::*;
pub use ranks::*;
pub use strings::*;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{MPI_ANY_SOURCE, MPI_ANY_TAG};
    use ferry_mpi::{Kind, Result};

    fn text<T>(r: Result<T>) -> String {
        r.err().map(|e| e.text().to_string()).unwrap_or_default()
    }

    #[test]
    fn numbers_are_checked_and_named() {
        assert_eq!(count(7, "count").unwrap(), 7);
        assert_eq!(
            text(count(-1i64, "count")),
            "count is -1, which is negative"
        );
        assert_eq!(length(-2, "ndims").unwrap_err().kind(), Kind::Arg);
        assert_eq!(tag(0, "tag").unwrap(), 0);
        assert_eq!(tag_or_any(MPI_ANY_TAG, "tag").unwrap(), None);
        assert!(text(tag(MPI_ANY_TAG, "tag")).contains("only receives"));
        assert!(text(tag_or_any(MPI_ANY_SOURCE, "tag")).contains("not MPI_ANY_TAG"));
    }

    #[test]
    fn arrays_of_both_widths_read_the_same() {
        let (narrow, wide) = ([1i32, -2, 3], [1i64, -2, 3]);
        for ints in [Ints::from(narrow.as_ptr()), Ints::from(wide.as_ptr())] {
            assert_eq!(ints.all(3, "a").unwrap(), [1, -2, 3]);
            assert_eq!(
                text(ints.counts(3, "counts")),
                "counts[1] is -2, which is negative"
            );
        }
        assert_eq!(Ints::NONE.at(5), 0);
        assert_eq!(text(Ints::NONE.all(1, "displs")), "displs is null");
    }

    #[test]
    fn handles_of_nothing_are_explained() {
        assert!(text(object::<ferry_mpi::Info>(0, "info")).contains("has it been set?"));
        assert_eq!(
            text(object::<ferry_mpi::Info>(0x130, "info")),
            "info is the null handle MPI_INFO_NULL"
        );
        assert_eq!(
            object::<ferry_mpi::Errhandler>(u64::MAX, "e")
                .unwrap_err()
                .kind(),
            Kind::ErrhandlerArg
        );
        assert!(
            object_or_null::<ferry_mpi::Info>(0x130, "info")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn weights_have_two_constants() {
        assert_eq!(
            Weights::from(std::ptr::without_provenance::<i32>(10)),
            Weights::None
        );
        assert_eq!(
            Weights::from(std::ptr::without_provenance::<i32>(11)),
            Weights::Empty
        );
    }

    #[test]
    fn null_and_empty_keys_are_errors_of_their_own_class() {
        // SAFETY: null and strings.
        unsafe {
            assert_eq!(key(std::ptr::null()).unwrap_err().kind(), Kind::InfoKey);
            assert_eq!(key(c"".as_ptr()).unwrap_err().kind(), Kind::InfoKey);
            assert_eq!(key(c"k".as_ptr()).unwrap(), c"k");
            assert_eq!(value(std::ptr::null()).unwrap_err().kind(), Kind::InfoValue);
        }
    }
}
