//! mpi.h.

/// The text of mpi.h.
pub fn mpi_h() -> String {
    String::new()
}
