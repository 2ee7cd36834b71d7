//! What all launchers offer: a store of keys and values, and a fence.

use std::sync::{Arc, Mutex};

use crate::error::JobError;
use crate::spawn_order::SpawnOrder;

/// A launcher's key-value store, and what it knows of the job.
pub(crate) trait Kvs: Send {
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks in the job.
    fn size(&self) -> u32;
    /// Number of the rank's program (MPI_APPNUM).
    fn appnum(&self) -> u32;
    /// Longest value in bytes.
    fn value_max(&self) -> usize;
    /// Puts a value. It may hold letters, digits and `-` only.
    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError>;
    /// Makes all values visible to all ranks. Blocks until every rank has called it.
    fn fence(&mut self) -> Result<(), JobError>;
    /// The value that `owner` has put before a fence, or `None`.
    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, JobError>;
    /// Each rank's node, if the launcher knows.
    fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError>;
    /// Starts processes as a job of their own, which finds the order's port by [`Kvs::parent`].
    /// Blocks until the launcher has started them. `false`: it starts none, or none of this sort.
    fn spawn(&mut self, _order: &SpawnOrder) -> Result<bool, JobError> {
        Ok(false)
    }
    /// The port of the process that has started this job, if one has.
    fn parent(&mut self) -> Result<Option<String>, JobError> {
        Ok(None)
    }
    /// How many processes the launcher has room for, if it says so.
    fn universe(&mut self) -> Option<u32> {
        None
    }
    /// Ends the job.
    fn abort(&mut self, code: i32, text: &str);
    /// Tells the launcher that this rank ends normally.
    fn finalize(&mut self);
}

pub(crate) type SharedKvs = Arc<Mutex<Box<dyn Kvs>>>;

/// An error of the launcher, in words.
pub(super) fn launcher_error(text: impl Into<String>) -> JobError {
    JobError::Launcher(text.into())
}
