//! The workbench's binary: the work is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    nuthatch_bench::program::main()
}
