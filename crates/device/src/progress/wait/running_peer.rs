//! Polls for a running peer: where ranks outnumber cores, a thread polls for a moment before it
//! yields its core, if the process whose message it waits for runs on another one. That may send
//! the message right now.

use crate::progress::device::Device;
use ferry_transport::ProcId;

/// Polls for the message of a peer that runs on another core, before a thread yields its own one.
///
/// They take about as long as a yield and the return from it (a choice). A message that comes
/// meanwhile costs neither side a system call; if none comes, as much is lost as by one yield.
pub(crate) const POLLS_FOR_RUNNING_PEER: u32 = 24;

impl Device {
    /// Does `peer`, whose message this thread waits for, run on another core now?
    #[inline]
    pub(crate) fn awaits_running(&mut self, peer: Option<ProcId>) -> bool {
        self.core_balance.awaited = peer;
        peer.is_some_and(|peer| self.worker.transports.runs_elsewhere(peer))
    }
}

/// The polls of a waiting thread for a running peer, since something has moved last.
pub(crate) struct PollsForPeer {
    count: u32,
    peer: Option<ProcId>,
}

impl PollsForPeer {
    /// None yet.
    pub const NONE: PollsForPeer = PollsForPeer {
        count: 0,
        peer: None,
    };

    /// Does the thread poll once more, before it yields? `peer` tells whose message it waits for.
    /// It is asked once: as long as nothing moves, the thread waits for the same message.
    #[inline]
    pub fn again(
        &mut self,
        device: &mut Device,
        peer: impl FnOnce(&mut Device) -> Option<ProcId>,
    ) -> bool {
        if self.count == 0 {
            self.peer = peer(device);
        }
        if self.count < POLLS_FOR_RUNNING_PEER && device.awaits_running(self.peer) {
            self.count += 1;
            return true;
        }
        // It yields from now on, even if the peer gets its core back.
        self.count = POLLS_FOR_RUNNING_PEER;
        false
    }
}
