//! What all launchers offer: a store of keys and values, and a fence.

use std::sync::{Arc, Mutex};

use crate::error::JobError;

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
