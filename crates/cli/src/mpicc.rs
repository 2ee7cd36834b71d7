//! `mpicc`, and under other names `mpicxx`, `mpic++` and `mpifort`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferry_cli::wrapper::main(std::env::args_os())
}
