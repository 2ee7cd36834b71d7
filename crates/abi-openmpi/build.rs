//! Makes the entry points and tables from the descriptions in `ferry-api`, and names the library.

use ferry_api::abis::{Abi, build};

fn main() -> std::io::Result<()> {
    build(Abi::OpenMpi)
}
