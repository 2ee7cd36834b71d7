//! What a rank and its launcher share: the rank info, messages, the node's segment, status pages.
//! And how Ferry starts threads of its own in a rank's process.
//!
//! ```text
//!   launcher                          rank
//!   NodeJob ── rank info, segment ──▶ join ──▶ JobContext
//!   RankSocket ◀── ToLauncher ─────── Client, Directory
//!              ─── ToRank ──────────▶
//!   reads ◀──── RankStatus in the node's Segment ◀── writes
//! ```
//!
//! | modules | hold |
//! |---|---|
//! | `launcher`, `segment`, `status` | what a launcher makes for a node: sockets, shared memory |
//! | `join`, `other_launcher` | how a rank finds its job: by mpiexec, or by PMI and PMIx |
//! | `job_context`, `rank_info`, `nodes`, `cores` | what it knows then: its rank, who is where |
//! | `client`, `messages` | the rank's connection to its launcher, and what goes over it |
//! | `business_cards`, `names` | what ranks publish |
//! | `spawn_order`, `soft`, `watched`, `own_launcher` | starting processes (MPI_Comm_spawn) |
//! | `clock`, `thread`, `interfaces` | time, Ferry's own threads, network interfaces |
//!
//! `mpiexec` makes one [`Segment`] for each node and one socket pair for each rank. The
//! [`RankInfo`] and the segment's descriptor lie in the rank's end of the socket before the rank
//! starts. So [`join()`] is one system call that waits for nobody. Under another launcher (Hydra,
//! srun, prterun) `join` makes the same from PMI or PMIx.
//!
//! ```
//! // Without a launcher a program is a job of one rank.
//! let job = ferry_job::join().unwrap();
//! assert_eq!((job.rank_info.rank, job.rank_info.size), (0, 1));
//! ```

mod business_cards;
mod client;
pub mod clock;
mod cores;
mod error;
mod initial_errhandler;
pub mod interfaces;
mod job_context;
mod join;
mod launcher;
mod messages;
mod names;
mod nodes;
mod other_launcher;
mod own_launcher;
mod rank_info;
mod segment;
pub mod settings;
mod soft;
mod spawn_order;
mod status;
mod thread;
mod watched;

pub use business_cards::{CARD_MAX_BYTES, CardStore, Directory};
pub use client::{Client, abort_status};
pub use cores::{Cores, cpu_quota};
pub use error::JobError;
pub use initial_errhandler::InitialErrhandler;
pub use interfaces::Address;
pub use job_context::JobContext;
pub use join::{LAUNCH_FD, join};
pub use launcher::{JobInfo, NodeJob, RankSocket, Received};
pub use messages::{TEXT_MAX_BYTES, ToLauncher, ToRank};
pub use names::{
    NameAnswer, NameQuestion, NameRequest, NameSocket, NameStore, decode_answer, encode_answer,
    read_message, write_message,
};
pub use nodes::{Node, Nodes, RankRange};
pub use own_launcher::{
    NAME_OPTION, SPAWN_DETACHED_OPTION, SPAWN_OPTION, ask_name_server, start_launcher,
};
pub use rank_info::{Malformed, PROTOCOL, RankInfo, new_key};
pub use segment::{ARENA_BYTES, Segment, SegmentLayout};
pub use soft::{SoftError, soft_count};
pub use spawn_order::{ParentNews, ParentSocket, SpawnNews, SpawnOrder, SpawnProgram, SpawnSocket};
pub use status::{
    AWAITED_MAX, AwaitedRequest, KNOWN_JOBS_MAX, PEER_AT_PORT, PEER_OWN_PROGRAM, PEER_SEVERAL,
    RankState, RankStatus, SendSlot, Wait,
};
pub use status::{
    TAG_WINDOW_ACCUMULATE, TAG_WINDOW_COMPLETE, TAG_WINDOW_FLUSH, TAG_WINDOW_FREE, TAG_WINDOW_LOCK,
    TAG_WINDOW_POST,
};
pub use thread::{THREAD_PREFIX, start_thread};
pub use watched::{
    NO_FOLDERS, PROGRAM_ENDED, WATCH_OPTION, WATCHED_FD, WatchSocket, ended_program,
};
