//! Who makes progress, and when: the progress engine, waiting, the device's lock, the progress
//! thread, and how ranks that share cores hand them over.
//!
//! ```text
//! device           the progress engine: polls the transports, moves every protocol on
//! lock             the device's lock; state: what a process remembers of its waiting
//! wait             blocking calls: poll, yield, sleep; time_slice: what the scheduler is asked for
//! test_backoff     MPI_Test and its kin in a loop
//! served           one-sided updates that peers leave with a thread that polls
//! core_sharing     does another rank wait on this core?
//! core_contention  does another program compute on it?
//! core_balance     ranks that yield spread over the cores
//! thread, thread_* the progress thread: when it polls and sleeps, on which core, what it has used
//! handover         work goes from the program to the progress thread, and back
//! background       operations of the layer above that go on in progress
//! outside_work     operations that only this process carries out, such as transfers of files
//! virtual_time     waiting, and leaving the job, on a modelled machine
//! ```

pub(crate) mod background;
pub(crate) mod core_balance;
pub(crate) mod core_contention;
pub(crate) mod core_sharing;
pub(crate) mod device;
mod handover;
pub(crate) mod lock;
pub(crate) mod outside_work;
pub(crate) mod served;
pub(crate) mod state;
pub(crate) mod test_backoff;
pub(crate) mod thread;
mod thread_flags;
mod thread_placement;
mod thread_state;
pub(crate) mod thread_usage;
mod time_slice;
mod virtual_time;
pub(crate) mod wait;
