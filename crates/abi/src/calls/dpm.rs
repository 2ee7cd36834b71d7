//! Dynamic processes (MPI 5.0 §11.8 and later). Not implemented, so no process has a parent.

use crate::prelude::*;

pub fn comm_get_parent(parent: New<Comm>) -> Result<()> {
    parent.set_null();
    Ok(())
}
