//! The compiler wrappers, what they and `ferry install` compile for Fortran, and what `ferry` needs
//! of them to describe them in a manual page.

pub mod digest;
pub mod fortran;
pub mod wrapper;
