//! Processes started by processes (MPI 5.0 chapter 11.8 on). Not there yet, so nobody has a parent.

use crate::prelude::*;

pub fn comm_get_parent(parent: New<Comm>) -> Result<()> {
    parent.set_null();
    Ok(())
}
