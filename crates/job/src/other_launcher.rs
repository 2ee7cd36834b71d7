//! Jobs that another launcher has started: MPICH's Hydra, Slurm's srun, PRRTE's prterun.
//!
//! ```text
//! detect       which launcher, by the environment     pmi, pmi_message   PMI-1 and PMI-2
//! kvs          what all launchers offer               pmix               PMIx
//! join         from a Kvs to a JobContext             nodes, process_mapping  which rank is where
//! kvs_directory  business cards in the store          encoding           bytes as text
//! segment_handover  one rank passes the node's segment to the others    job_end  abort, finalize
//! ```
//!
//! All these launchers offer a store of keys and values that every rank of the job can reach, and a
//! fence: after it, each rank sees what all ranks have put before. From these a rank makes what
//! Ferry's mpiexec would have sent it. Rank 0 makes the job's key. The lowest rank of each node
//! makes the node's segment and hands it to the others.

mod detect;
mod encoding;
mod job_end;
mod join;
mod kvs;
mod kvs_directory;
mod nodes;
mod pmi;
mod pmi_message;
mod pmix;
mod process_mapping;
mod segment_handover;

pub(crate) use detect::{find, may_start_another, spawn};
pub(crate) use job_end::abort;
pub(crate) use join::join;
pub(crate) use kvs::SharedKvs;

#[cfg(test)]
mod tests;
