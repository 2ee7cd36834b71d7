//! The entry points of libmpi_abi.so.1 as Rust text.

/// The text of the entry points.
pub fn rust() -> String {
    String::new()
}
