//! The executor: runs a schedule on the device, at once or in the background.

mod background;
mod in_flight;
mod lasting;
mod memory;
mod message;
mod request_cache;
mod room;
mod run;
mod story;
mod tag;
mod tally;
mod view;

pub(crate) use lasting::Lasting;
pub(crate) use memory::{Memory, Places};
pub(crate) use message::{check, process};
pub(crate) use request_cache::{KeptCollectives, Like};
pub(crate) use room::Room;
pub(crate) use run::{Ends, Labour, Run, Stand, run};
pub(crate) use story::Story;
pub(crate) use tag::{Form, Function, Number, called};
pub use tally::{TALLY, Tally};
pub use view::{Block, View};

use crate::{Comm, Datatype, Op};
use std::sync::Arc;

/// What a schedule runs on: a communicator, buffers, an operation.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) comm: &'a Arc<Comm>,
    pub(crate) send: View<'a>,
    pub(crate) recv: View<'a>,
    /// A reduction's operation and type.
    pub(crate) reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
    /// The root's rank, for who looks at a hang; -1: none.
    pub(crate) root: i32,
}

impl<'a> Binding<'a> {
    /// Where the call's buffers are.
    pub(crate) fn places(&self) -> Places<'a> {
        Places {
            send: self.send,
            recv: self.recv,
            element: self.reduction.map(|r| r.1),
        }
    }
}

#[cfg(test)]
mod tests;
