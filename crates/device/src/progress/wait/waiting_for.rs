//! What a blocking call waits for, and what can tell more of it: for the hang report, and to know
//! whose message it is.

use crate::base::key::ContextId;
use crate::progress::device::Device;
use ferry_job::RankStatus;
use ferry_transport::ProcId;

/// Something that can describe a wait to the launcher: a communicator, a request.
pub trait Describe {
    /// Writes its description into the status page: name, size, rank, number of the collective,
    /// peer of a request.
    fn describe(&self, device: &mut Device, status: &RankStatus);

    /// Returns whether what is waited for cannot come, because a peer is in another call. Asked
    /// only where the wait is for shared memory, and only before a sleep.
    fn is_hopeless(&self, _device: &Device) -> bool {
        false
    }

    /// The process whose message is waited for, if it is one and known. Asked where ranks outnumber
    /// cores.
    fn awaited_peer(&self, _device: &mut Device) -> Option<ProcId> {
        None
    }
}

/// What a blocking call waits for. The hang report shows it.
#[derive(Clone, Copy)]
pub struct WaitingFor<'a> {
    /// The communicator's context.
    pub context: ContextId,
    /// The peer's process number; -1: any. Also [`ferry_job::PEER_SEVERAL`] and its kin.
    pub peer: i32,
    /// The tag; -1 any.
    pub tag: i32,
    /// The object that describes the wait.
    pub details: Option<&'a dyn Describe>,
}

impl WaitingFor<'_> {
    /// Several operations, of any communicator.
    pub const SEVERAL: WaitingFor<'static> = WaitingFor {
        context: ContextId::WORLD,
        peer: ferry_job::PEER_SEVERAL,
        tag: -1,
        details: None,
    };

    /// The process whose message is waited for, if it is one and known.
    pub(super) fn awaited_peer(&self, device: &mut Device) -> Option<ProcId> {
        match ProcId::try_from(self.peer) {
            Ok(peer) => Some(peer),
            Err(_) => self.details.and_then(|it| it.awaited_peer(device)),
        }
    }

    /// Called from the condition of [`wait_for_memory`](super::wait_for_memory): returns whether
    /// the thread would sleep next, for what [cannot come](Describe::is_hopeless).
    pub(crate) fn is_hopeless(&self, device: &Device) -> bool {
        device.about_to_sleep && self.details.is_some_and(|it| it.is_hopeless(device))
    }
}
