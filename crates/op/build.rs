//! Compiles the long double kernels: a type that the ABI has and Rust has not.
fn main() {
    println!("cargo::rerun-if-changed=src/long_double.c");
    cc::Build::new()
        .file("src/long_double.c")
        .flag("-std=c99")
        .opt_level(2)
        .warnings(true)
        .compile("ferry_long_double");
}
