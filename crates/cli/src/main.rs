//! `ferry`: looks at the machine, and installs.
fn main() {}
