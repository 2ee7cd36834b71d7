//! The compiler wrappers, and what `ferry` needs of them to describe them in a manual page.

pub mod wrapper;
