//! What a hang report says of a collective.

use super::CollArgs;
use super::run::bytes;
use super::signature::Form;
use super::tag::CollTag;
use super::unreceived::message_at_board;
use crate::Comm;
use crate::device::{Describe, Device, WaitingFor};
use ferry_schedule::{Piece, Region, Schedule, Step};
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

/// Tells also how many bytes this rank takes part with.
pub(super) struct RunDescription<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) args: &'a CollArgs<'a>,
    pub(super) tag: CollTag,
}

impl RunDescription<'_> {
    /// What a call waits for that runs this schedule.
    pub(super) fn waiting_for(&self) -> WaitingFor<'_> {
        WaitingFor {
            details: Some(self),
            ..self.collective().waiting_for()
        }
    }

    fn collective(&self) -> HangDescription<'_> {
        HangDescription {
            comm: self.args.comm,
            tag: self.tag,
            root: self.args.root,
        }
    }

    /// The end of the user's data by this rank's arguments: in most collectives the same at all
    /// ranks. 0 where there are none, or each block has its own type.
    fn bytes(&self) -> usize {
        let pieces = self.schedule.steps.iter().flat_map(|step| match *step {
            Step::Send { from, .. } => [from, Piece::EMPTY],
            Step::Recv { into, .. } => [into, Piece::EMPTY],
            Step::Reduce { from, into } | Step::Copy { from, into } => [from, into],
            Step::Await { .. } => [Piece::EMPTY; 2],
        });
        let data = pieces.filter(|piece| piece.region != Region::Tmp && piece.count > 0);
        let ends = data.map(|piece| {
            let count = piece.at.saturating_add(piece.count);
            bytes(self.args, Piece { count, ..piece })
        });
        ends.max().unwrap_or(0)
    }
}

impl Describe for RunDescription<'_> {
    fn describe(&self, device: &mut Device, status: &ferry_job::RankStatus) {
        self.collective().describe(device, status);
        if let bytes @ 1.. = self.bytes() {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            status.tag.store(bytes, Ordering::Relaxed);
        }
    }
}
