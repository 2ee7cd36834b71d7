//! Short messages to processes of the node: most messages of most programs, by the shortest way.

use super::{ROUTE_SHM, Transports};
use crate::{ProcId, SHORT_HEAD_BYTES, SendStatus};

impl Transports {
    /// Sends a message whose head and body fit in one record, if shared memory leads to `to` and
    /// has been used with it before. [`SendStatus::Full`]: it does not, or there is no room. `to`
    /// has nothing queued.
    #[inline(always)]
    pub fn send_short(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8; SHORT_HEAD_BYTES],
        body: &[u8],
    ) -> SendStatus {
        match (self.routes.get(to as usize), &mut self.shm) {
            (Some(&ROUTE_SHM), Some(shm)) => shm.send_short(to, message, head, body),
            _ => SendStatus::Full,
        }
    }
}
