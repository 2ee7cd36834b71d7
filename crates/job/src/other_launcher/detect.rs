//! Finds out by the environment which launcher has started this process.

use std::env;
use std::sync::PoisonError;

use super::kvs::{Kvs, SharedKvs};
use super::{pmi, pmix};
use crate::error::JobError;
use crate::spawn_order::SpawnOrder;
use crate::watched::with_watch;

/// Connects to the launcher that the environment names. `None` if it names none.
///
/// # Errors
/// The environment names a launcher that cannot be reached.
pub(crate) fn find() -> Option<Result<Box<dyn Kvs>, JobError>> {
    let set = |name: &str| env::var_os(name).is_some_and(|v| !v.is_empty());
    if set("PMIX_NAMESPACE") {
        return Some(pmix::connect());
    }
    if set("PMI_FD") || set("PMI_PORT") {
        return Some(pmi::connect());
    }
    lost_launcher(|name| env::var(name).ok()).map(Err)
}

/// May this process start a launcher of Ferry's for further processes?
///
/// # Errors
/// srun itself has started it. Slurm gives processes that it has not started no place.
pub(crate) fn may_start_another(kvs: &SharedKvs) -> std::io::Result<()> {
    let (rank, size) = {
        let kvs = kvs.lock().unwrap_or_else(PoisonError::into_inner);
        (kvs.rank(), kvs.size())
    };
    let number = |name: &str| env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    // Under a launcher that srun has started, Slurm counts that launcher's agents.
    if number("SLURM_STEP_NUM_TASKS") == Some(size) && number("SLURM_PROCID") == Some(rank) {
        return Err(std::io::Error::other(
            "Slurm's srun has started this program, and starts no further processes for it. In an \
             allocation (salloc, sbatch) start it with Ferry's mpiexec instead of srun",
        ));
    }
    Ok(())
}

/// Has the launcher start processes, if it does that itself.
///
/// # Errors
/// It refuses.
pub(crate) fn spawn(kvs: &SharedKvs, order: &SpawnOrder) -> std::io::Result<bool> {
    let mut kvs = kvs.lock().unwrap_or_else(PoisonError::into_inner);
    kvs.spawn(&with_watch(order))
        .map_err(|e| std::io::Error::other(e.to_string()))
}

/// The error for a process that was started as one of several ranks, but has no way to reach its
/// launcher.
pub(super) fn lost_launcher(variable: impl Fn(&str) -> Option<String>) -> Option<JobError> {
    let number = |name: &str| variable(name).and_then(|v| v.parse::<u32>().ok());
    if let Some(tasks) = number("SLURM_STEP_NUM_TASKS").filter(|&n| n > 1)
        && variable("SLURM_PROCID").is_some()
    {
        return Some(JobError::Launcher(format!(
            "srun has started {tasks} of this program, but gives it no PMI to find the others by; \
             use srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list says what there is), or mpiexec \
             inside the allocation"
        )));
    }
    // Ferry's own mpiexec sets PMI_SIZE, too, together with FERRY_SIZE.
    if let Some(size) = number("PMI_SIZE").filter(|&n| n > 1)
        && variable("FERRY_SIZE").is_none()
    {
        return Some(JobError::Launcher(format!(
            "a launcher has started {size} of this program (PMI_SIZE={size}), but PMI_FD and \
             PMI_PORT are not set, so it cannot be spoken to; does a wrapper clear the \
             environment? Start it with that launcher directly, or with mpiexec"
        )));
    }
    if let Some(size) = number("OMPI_COMM_WORLD_SIZE").filter(|&n| n > 1) {
        return Some(JobError::Launcher(format!(
            "a launcher has started {size} of this program (OMPI_COMM_WORLD_SIZE={size}), but \
             PMIX_NAMESPACE is not set, so it cannot be spoken to; does a wrapper clear the \
             environment? Start it with that launcher directly, or with mpiexec"
        )));
    }
    None
}
