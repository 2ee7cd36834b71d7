//! What a rank knows of its job, once it has joined.

use std::fmt;

use crate::{Client, Directory, RankInfo, RankStatus, Segment};

/// What a rank knows of its job.
pub struct JobContext {
    /// What the launcher has told. Without a launcher: a job of one rank.
    pub rank_info: RankInfo,
    /// The node's segment. `None` in a job of one rank.
    pub segment: Option<Segment>,
    /// This rank's status page, in the segment or in private memory.
    pub status: &'static RankStatus,
    /// The connection to the launcher, if there is one.
    pub client: Option<Client>,
    /// Business cards of the ranks. `None` in a job of one rank.
    pub directory: Option<Box<dyn Directory>>,
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("rank_info", &self.rank_info)
            .field("segment", &self.segment)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// This host's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
