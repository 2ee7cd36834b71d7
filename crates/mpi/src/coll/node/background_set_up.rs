//! Sets up a board of non-blocking or persistent collectives, in the background: the call that
//! needs it returns at once, and the collectives begin when the members have agreed.

use super::background::{Board, BoardForm};
use super::set_up::FLAT_FLAG;
use crate::coll::executor::{
    BackgroundRun, BoundSchedule, CollArgs, CollTag, Form, Function, Name, View,
};
use crate::coll::select;
use crate::device::{Background, Device};
use crate::request::Work;
use crate::{Comm, Datatype, Op};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Reduction, Root};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

/// This member's part in the agreement.
pub(super) struct SetUp {
    comm: Arc<Comm>,
    form: BoardForm,
    /// The board's number, -1 for none. Then whether all members have the board.
    value: Arc<AtomicI32>,
    /// The board, which all use or none.
    board: Board,
    /// The collective under way, and what it is for.
    run: Arc<BackgroundRun>,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Rank 0 tells the number.
    Number,
    /// The members tell whether they have the board.
    Agreement,
}

impl SetUp {
    /// Begins. Rank 0's process allocates the board. Where all ranks of the node have a core each,
    /// it is a flat one, or none if there are more members than it serves: then messages are as
    /// fast as a counter board.
    pub(super) fn begin(comm: &Arc<Comm>, form: BoardForm, d: &mut Device) {
        let is_flat = d.prefers_flat_board(comm.size());
        let allocates = comm.rank() == 0 && (is_flat || d.is_oversubscribed());
        let number = allocates.then(|| d.allocate_board(comm.size())).flatten();
        let flag = if is_flat { FLAT_FLAG } else { 0 };
        let value = Arc::new(AtomicI32::new(number.map_or(-1, |n| n as i32 | flag)));
        let root = Root::Rank(0);
        let run = by_messages(comm, form, 0, Collective::Bcast { root, bytes: 4 }, &value);
        let mut set_up = SetUp {
            comm: comm.clone(),
            form,
            value,
            board: Board::Unavailable,
            run,
            stage: Stage::Number,
        };
        let advance = move |d: &mut Device| set_up.advance(d);
        d.add_background(Arc::new(Mutex::new(advance)));
    }

    fn advance(&mut self, d: &mut Device) -> bool {
        while self.run.advance(d) {
            let board = match (self.run.outcome().error, self.stage) {
                (Some(e), _) => Board::Failed(e),
                (None, Stage::Number) => match self.open_board(d) {
                    true => continue,
                    false => Board::Unavailable,
                },
                (None, Stage::Agreement) => match self.value.load(Ordering::Relaxed) {
                    1 => std::mem::replace(&mut self.board, Board::Unavailable),
                    _ => Board::Unavailable,
                },
            };
            let boards = &self.comm.coll.background_boards;
            boards.of(self.form).end_set_up(board, d);
            return true;
        }
        false
    }

    /// Maps the board, and begins to tell the others. False: there is none.
    fn open_board(&mut self, d: &mut Device) -> bool {
        let Ok(number) = u32::try_from(self.value.load(Ordering::Relaxed)) else {
            return false;
        };
        let (is_flat, number) = (number & FLAT_FLAG as u32 != 0, number & !(FLAT_FLAG as u32));
        let members: Vec<_> = (0..self.comm.size()).map(|r| self.comm.peer(r)).collect();
        let (owner, me) = (members[0], self.comm.rank());
        let board = if is_flat {
            let group = d.unordered_flat_board(owner, number, &members, me);
            group.map(Board::Flat)
        } else {
            let group = d.counter_board(owner, number, members, me);
            group.map(|group| Board::Counter(group.in_background()))
        };
        let there = i32::from(board.is_some());
        self.board = board.unwrap_or(Board::Unavailable);
        self.value.store(there, Ordering::Relaxed);
        let of = Reduction {
            count: 1,
            element: 4,
            commutes: true,
        };
        let agree = Collective::Allreduce { of, in_place: true };
        self.run = by_messages(&self.comm, self.form, 1, agree, &self.value);
        self.stage = Stage::Agreement;
        true
    }
}

/// A collective of one integer by messages, not yet started. The `step`-th of the set-up.
fn by_messages(
    comm: &Arc<Comm>,
    form: BoardForm,
    step: u64,
    collective: Collective<'_>,
    value: &Arc<AtomicI32>,
) -> Arc<BackgroundRun> {
    let int = Datatype::basic(Basic::Int32);
    let view = View::Uniform {
        address: value.as_ptr().cast(),
        count: 1,
        datatype: int,
    };
    let b = CollArgs {
        comm,
        send: View::Nothing,
        recv: view,
        reduction: Some((Op::of(Predefined::Min), int)),
        root: -1,
    };
    // The members may begin in calls of different functions.
    let function = Function::new(Name::Barrier, Form::NonBlocking);
    // The first two set up the board of blocking collectives.
    let which = 2 + 2 * form as u64 + step;
    let tag = CollTag::internal(which, function, -1);
    let bound = BoundSchedule::new(select::schedule(comm, &collective), &b, tag);
    BackgroundRun::shared(Arc::new(bound))
}
