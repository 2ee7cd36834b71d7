//! Who makes progress, and when: waiting, the device's lock, the progress thread, and how ranks that
//! share cores hand them over.

pub(crate) mod core_sharing;
pub(crate) mod lock;
pub(crate) mod send_slots;
pub(crate) mod test_backoff;
pub(crate) mod thread;
pub(crate) mod thread_flags;
pub(crate) mod virtual_time;
pub(crate) mod wait;
