//! Dynamic processes (MPI 5.0 §11.8 to §11.10).

use crate::prelude::*;
use ferry_mpi::dynamic::spawn::{self, Outcome, Program};
use ferry_mpi::dynamic::{join, names, port};
use std::time::Duration;

pub fn open_port(_info: Option<InfoRef>, port_name: OutText) -> Result<()> {
    port_name.set(port::open(true)?);
    Ok(())
}

pub fn close_port(port_name: &CStr) -> Result<()> {
    port::close(&port_name.to_string_lossy())
}

/// How long MPI_Comm_accept and MPI_Comm_connect wait: the value of "timeout" in the info, else of
/// FERRY_CONNECT_TIMEOUT, in seconds. `None`: for ever.
fn timeout(info: Option<InfoRef>) -> Result<Option<Duration>> {
    let asked = info.and_then(|info| info.text("timeout"));
    let Some(text) = asked.filter(|text| !text.trim().is_empty()) else {
        return Ok(ferry_job::settings::CONNECT_TIMEOUT.seconds());
    };
    let seconds = text.trim().parse().ok();
    let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    time.map(Some)
        .ok_or_else(|| err!(InfoValue, "timeout is {text:?}; it should be seconds"))
}

/// Defines a call in which two groups meet at a port.
macro_rules! meet {
    ($name:ident, $meets:path) => {
        pub fn $name(
            port_name: &CStr,
            info: Option<InfoRef>,
            root: Root,
            comm: CommRef,
            newcomm: New<Comm>,
        ) -> Result<()> {
            let port_name = port_name.to_string_lossy();
            newcomm.set($meets(&port_name, comm, root_rank(root)?, timeout(info))?);
            Ok(())
        }
    };
}

meet!(comm_accept, port::accept);
meet!(comm_connect, port::connect);

/// The rank of the root in an intracommunicator.
fn root_rank(root: Root) -> Result<u32> {
    match root {
        Root::Rank(rank) => Ok(rank),
        _ => Err(err!(Root, "root is no rank of the communicator")),
    }
}

pub fn comm_get_parent(parent: New<Comm>) -> Result<()> {
    match spawn::parent() {
        None => parent.set_null(),
        Some(comm) if comm.identity.bits() == 0 => parent.set(comm),
        Some(comm) => parent.set_handle(comm.identity.bits() as Handle),
    }
    Ok(())
}

pub fn comm_join(fd: i32, intercomm: New<Comm>) -> Result<()> {
    intercomm.set(join::join(fd)?);
    Ok(())
}

pub fn publish_name(service_name: &CStr, _info: Option<InfoRef>, port_name: &CStr) -> Result<()> {
    names::publish(
        &service_name.to_string_lossy(),
        &port_name.to_string_lossy(),
    )
}

pub fn unpublish_name(service_name: &CStr, _info: Option<InfoRef>, port_name: &CStr) -> Result<()> {
    names::unpublish(
        &service_name.to_string_lossy(),
        &port_name.to_string_lossy(),
    )
}

pub fn lookup_name(service_name: &CStr, _info: Option<InfoRef>, port_name: OutText) -> Result<()> {
    port_name.set(names::lookup(&service_name.to_string_lossy())?);
    Ok(())
}

/// The program's strings up to a null pointer. Null is no string (MPI_ARGV_NULL).
///
/// # Safety
/// `at` is null, or an array of strings that ends with a null pointer.
unsafe fn strings(at: *mut *mut c_char) -> Vec<Vec<u8>> {
    if (at as usize) < 4096 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let all = (0..).map(|i| unsafe { *at.add(i) });
    all.take_while(|string| !string.is_null())
        // SAFETY: the caller's promise.
        .map(|string| unsafe { CStr::from_ptr(string) }.to_bytes().to_vec())
        .collect()
}

fn program(
    command: &CStr,
    arguments: Vec<Vec<u8>>,
    maxprocs: i32,
    info: Option<InfoRef>,
) -> Result<Program> {
    if command.is_empty() {
        return Err(err!(Arg, "the command is empty"));
    }
    let maxprocs = u32::try_from(maxprocs)
        .map_err(|_| err!(Arg, "maxprocs is {maxprocs}, which is negative"))?;
    Ok(Program {
        command: command.to_bytes().to_vec(),
        arguments,
        maxprocs,
        info: info.cloned(),
    })
}

fn finish(outcome: Outcome, intercomm: &New<Comm>, array_of_errcodes: &OutInts) -> Result<()> {
    let code = |started: bool| if started { 0 } else { constants::MPI_ERR_SPAWN };
    array_of_errcodes.set_all(outcome.started.into_iter().map(code));
    match outcome.comm {
        Ok(comm) => {
            intercomm.set(comm);
            Ok(())
        }
        Err(e) => {
            intercomm.set_null();
            Err(e)
        }
    }
}

#[allow(clippy::too_many_arguments)]
pub fn comm_spawn(
    command: &CStr,
    argv: *mut *mut c_char,
    maxprocs: i32,
    info: Option<InfoRef>,
    root: Root,
    comm: CommRef,
    intercomm: New<Comm>,
    array_of_errcodes: OutInts,
) -> Result<()> {
    let root = root_rank(root)?;
    let programs = match comm.rank() == root {
        // SAFETY: the program passes what the MPI standard asks for.
        true => program(command, unsafe { strings(argv) }, maxprocs, info).map(|p| vec![p]),
        false => Ok(Vec::new()),
    };
    let outcome = spawn::spawn(programs, comm, root);
    finish(outcome, &intercomm, &array_of_errcodes)
}

#[allow(clippy::too_many_arguments)]
pub fn comm_spawn_multiple(
    count: i32,
    array_of_commands: *mut *mut c_char,
    array_of_argv: *mut *mut *mut c_char,
    array_of_maxprocs: Ints,
    array_of_info: *const Handle,
    root: Root,
    comm: CommRef,
    intercomm: New<Comm>,
    array_of_errcodes: OutInts,
) -> Result<()> {
    let root = root_rank(root)?;
    let one = |i: usize| {
        // SAFETY: the program passes arrays of `count` elements.
        let command = unsafe { args::string(*array_of_commands.add(i), "array_of_commands") }?;
        let arguments = if (array_of_argv as usize) < 4096 {
            Vec::new()
        } else {
            // SAFETY: as above; each element ends with a null pointer.
            unsafe { strings(*array_of_argv.add(i)) }
        };
        let info = if array_of_info.is_null() {
            None
        } else {
            // SAFETY: as above.
            args::object_or_null::<Info>(unsafe { *array_of_info.add(i) }, "array_of_info")?
        };
        let maxprocs = array_of_maxprocs.at(i);
        program(command, arguments, maxprocs as i32, info)
    };
    let programs = match (comm.rank() == root, usize::try_from(count)) {
        (false, _) => Ok(Vec::new()),
        (true, Ok(count)) if count > 0 && !array_of_commands.is_null() => {
            (0..count).map(one).collect()
        }
        (true, _) => Err(err!(Arg, "count is {count}: there is no command")),
    };
    let outcome = spawn::spawn(programs, comm, root);
    finish(outcome, &intercomm, &array_of_errcodes)
}
