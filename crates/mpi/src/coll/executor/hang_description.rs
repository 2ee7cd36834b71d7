//! What a hang report says of a collective.

use super::signature::Form;
use super::tag::CollTag;
use super::unreceived::message_at_board;
use crate::Comm;
use crate::device::{Describe, Device, WaitingFor};
use std::sync::atomic::Ordering;

/// Tells who looks at a hang which collective is waited in.
pub(crate) struct HangDescription<'a> {
    pub(crate) comm: &'a Comm,
    pub(crate) tag: CollTag,
    /// The root's rank; -1: none.
    pub(crate) root: i32,
}

impl HangDescription<'_> {
    /// What a call waits for that waits for this collective.
    pub(crate) fn waiting_for(&self) -> WaitingFor<'_> {
        WaitingFor {
            context: self.comm.context,
            peer: ferry_job::PEER_SEVERAL,
            tag: -1,
            details: Some(self),
        }
    }
}

impl Describe for HangDescription<'_> {
    fn describe(&self, device: &mut Device, status: &ferry_job::RankStatus) {
        self.comm.describe(device, status);
        let ordinal = self.tag.ordinal(self.comm);
        status.collective.store(ordinal, Ordering::Relaxed);
        status.root.store(self.root.max(-1), Ordering::Relaxed);
        let function = self.tag.signature().function();
        if function.form() != Form::Blocking {
            status.operation.store(function.to_string().as_bytes());
        }
    }

    fn is_hopeless(&self, device: &Device) -> bool {
        message_at_board(self.comm, self.tag, device).is_some()
    }
}
