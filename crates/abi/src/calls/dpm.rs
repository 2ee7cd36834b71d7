//! Dynamic processes (MPI 5.0 §11.8 to §11.10).

use crate::prelude::*;
use ferry_mpi::dynamic::port;

pub fn open_port(_info: Option<&'static Arc<Info>>, port_name: OutText) -> Result<()> {
    port_name.set(port::open(true)?);
    Ok(())
}

pub fn close_port(port_name: &CStr) -> Result<()> {
    port::close(&port_name.to_string_lossy())
}

pub fn comm_accept(
    port_name: &CStr,
    _info: Option<&'static Arc<Info>>,
    root: Root,
    comm: &'static Arc<Comm>,
    newcomm: New<Comm>,
) -> Result<()> {
    newcomm.set(port::accept(
        &port_name.to_string_lossy(),
        comm,
        root_rank(root)?,
    )?);
    Ok(())
}

pub fn comm_connect(
    port_name: &CStr,
    _info: Option<&'static Arc<Info>>,
    root: Root,
    comm: &'static Arc<Comm>,
    newcomm: New<Comm>,
) -> Result<()> {
    newcomm.set(port::connect(
        &port_name.to_string_lossy(),
        comm,
        root_rank(root)?,
    )?);
    Ok(())
}

/// The rank of the root in an intracommunicator.
fn root_rank(root: Root) -> Result<u32> {
    match root {
        Root::Rank(rank) => Ok(rank),
        _ => Err(err!(Root, "root is no rank of the communicator")),
    }
}

pub fn comm_get_parent(parent: New<Comm>) -> Result<()> {
    parent.set_null();
    Ok(())
}
