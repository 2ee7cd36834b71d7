//! Names the library.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libferry_mx.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
