//! Waiting for something to come, without burning a core.

use crate::core::Device;
use crate::key::ContextId;
use crate::request::{Completion, ReqId};

/// What a blocking call waits for; shown to the user if the job hangs.
#[derive(Clone, Copy, Debug)]
pub struct WaitingFor {
    /// The communicator's context.
    pub context: ContextId,
    /// The peer's process number; -1 any, -2 several.
    pub peer: i32,
    /// The tag; -1 any.
    pub tag: i32,
}

/// Makes progress until `done` answers true. Called without the device's lock; `done` runs under it.
pub fn wait_until(what: &WaitingFor, mut done: impl FnMut(&mut Device) -> bool) {
    let _ = (what, &mut done);
    todo!()
}

/// Waits until `req` has completed and takes its completion.
pub fn wait(req: ReqId, what: &WaitingFor) -> Completion {
    wait_until(what, |d| d.is_complete(req));
    crate::device().take(req)
}
