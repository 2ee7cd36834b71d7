//! Who makes progress, and when: the progress engine, waiting, the device's lock, the progress
//! thread, and how ranks that share cores hand them over.

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
