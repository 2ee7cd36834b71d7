//! `mpiexec`, and under another name `mpirun`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferry_launch::mpiexec(std::env::args_os().skip(1))
}
