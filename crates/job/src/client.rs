//! A rank's side of the launcher's socket.

use crate::{RankStatus, Segment, Welcome};

/// Why a rank could not find its job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The launcher left a socket, but it cannot be spoken to.
    #[error("{0}")]
    Launcher(String),
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// What was tried.
        attempted: String,
        /// What the system said.
        cause: std::io::Error,
        /// What to set.
        advice: &'static str,
    },
}

/// Where this process stands in its job.
#[derive(Debug)]
pub struct Place {
    /// What the launcher said; for a program started without a launcher, a job of one rank.
    pub welcome: Welcome,
    /// The node's segment; `None` in a job of one rank.
    pub segment: Option<Segment>,
    /// This rank's status: in the segment, or in private memory.
    pub status: &'static RankStatus,
    /// The connection to the launcher, if there is one.
    pub client: Option<Client>,
}

/// The connection to the launcher.
#[derive(Debug)]
pub struct Client {}

/// Finds this process's job: reads the welcome that `mpiexec` left in the socket named by `FERRY_LAUNCH_FD`, or makes a
/// job of one rank if there is none. Does not block on the launcher.
pub fn join() -> Result<Place, JobError> {
    todo!()
}

impl Client {
    /// Tells the launcher to end the whole job with `code` (MPI_Abort); `text` is printed by the launcher. Does not return
    /// until the launcher has taken it.
    pub fn abort(&self, code: i32, text: &str) {
        let _ = (code, text);
        todo!()
    }
}
