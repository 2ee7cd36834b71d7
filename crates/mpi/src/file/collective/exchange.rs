//! The exchange of a collective transfer: rounds of messages between ranks and aggregators.
//!
//! In each round an aggregator handles one window of its domain. A rank sends its data of that
//! window, or receives them, in one message.

use super::super::File;
use super::super::access::{Direction, Transfer};
use super::super::error::{class, number};
use super::super::view::FileView;
use super::extent::Extent;
use super::plan::Plan;
use super::window::{Piece, Window};
use crate::buffer::{source, stretch};
use crate::comm::agree::{Reader, put_framed, put_u64};
use crate::device::{Device, Key, Pattern, ReqId, SendMode, Sink, Source};
use crate::pt2pt::PersistentBuffer;
use crate::request::Outcome;
use crate::{Datatype, Error, Result, err};
use ferry_datatype::Basic;
use ferry_io::View;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// Bytes of the longest status, which is the number of a class and the error's text, cut to this.
const STATUS_BYTES: usize = 1024;
/// Windows that may be written at a time, while the next one is filled.
const WRITES_MAX: usize = 2;

/// The views of a file's ranks, as far as this process needs them.
#[derive(Default)]
pub(in super::super) struct RankViews {
    /// This rank's own, encoded. `None`: not yet, or it cannot be.
    own: Option<Arc<[u8]>>,
    /// Those of all ranks, on an aggregator. Empty elsewhere.
    all: Vec<View>,
    complete: bool,
}

impl RankViews {
    /// The rank's own view, encoded. `None`: that cannot be done.
    pub fn own(&mut self, view: &FileView) -> Option<&[u8]> {
        if self.own.is_none() {
            let mut bytes = Vec::new();
            put_u64(&mut bytes, view.displacement);
            put_u64(&mut bytes, view.etype_bytes);
            put_u64(&mut bytes, u64::from(view.is_first_only()));
            put_framed(&mut bytes, &view.stored_filetype.encode().ok()?);
            self.own = Some(bytes.into());
        }
        self.own.as_deref()
    }

    /// Have the views travelled?
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

/// Reads a view that another rank has encoded.
fn decode(bytes: &[u8]) -> Result<View> {
    let mut reader = Reader(bytes);
    let displacement = reader.u64()?;
    let etype_bytes = reader.u64()?;
    let first_only = reader.u64()? == 1;
    let filetype = Datatype::decode(reader.framed()?)?;
    let view = View::new(displacement, etype_bytes, &filetype)
        .map_err(|e| err!(Intern, "another rank's view makes no sense: {e}"))?;
    Ok(view.first_filetype().filter(|_| first_only).unwrap_or(view))
}

/// What a transfer does next.
pub(super) enum Step {
    /// It waits for messages.
    Pending,
    /// A window is to be read or written.
    Window(Window),
    /// All has been done.
    Done,
}

/// Where a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The views are to be sent.
    Views,
    /// They are under way.
    AwaitViews,
    /// A round begins.
    Round,
    /// The round's window is being read.
    AwaitRead,
    /// The round's messages are under way.
    AwaitMessages,
    /// All rounds have ended; windows are still being written.
    Writes,
    /// The aggregators tell how it went.
    AwaitStatuses,
}

/// A message under way.
struct Message {
    request: ReqId,
    peer: u32,
}

/// A collective transfer in two phases.
pub(super) struct Exchange {
    file: Arc<File>,
    plan: Plan,
    transfer: Transfer,
    /// What travels: the program's buffer, or its form in the file.
    memory: PersistentBuffer,
    converted: Vec<u8>,
    extent: Extent,
    tag: u32,
    me: u32,
    /// Which aggregator this rank is.
    aggregator: Option<usize>,
    views: Vec<View>,
    encoded: Vec<Vec<u8>>,
    own_view: Arc<[u8]>,
    round: u64,
    state: State,
    messages: Vec<Message>,
    window: Option<Window>,
    spare: Vec<Window>,
    writing: usize,
    /// What the aggregators have told.
    statuses: Vec<[u8; STATUS_BYTES]>,
    failure: Option<Error>,
}

impl Exchange {
    /// `converted`: the form in the file of what is written, if that differs from the memory's.
    ///
    /// # Safety
    /// The transfer's buffer is readable or writable until the end.
    pub unsafe fn new(
        file: &Arc<File>,
        plan: Plan,
        transfer: Transfer,
        mut converted: Vec<u8>,
        extent: Extent,
        tag: u32,
    ) -> Exchange {
        let memory = if transfer.view.representation.is_native() {
            transfer.memory.lend().to_persistent()
        } else {
            converted.resize(transfer.bytes as usize, 0);
            PersistentBuffer {
                address: converted.as_mut_ptr(),
                count: transfer.bytes as i64,
                datatype: Datatype::basic(Basic::Byte).clone(),
            }
        };
        let mut known = file
            .rank_views
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let own_view = known.own(&transfer.view).unwrap_or(&[]).into();
        let me = file.comm.rank();
        Exchange {
            aggregator: plan.aggregator(me),
            views: known.all.clone(),
            file: file.clone(),
            tag,
            state: if plan.sends_views {
                State::Views
            } else {
                State::Round
            },
            plan,
            transfer,
            memory,
            converted,
            extent,
            me,
            encoded: Vec::new(),
            own_view,
            round: 0,
            messages: Vec::new(),
            window: None,
            spare: Vec::new(),
            writing: 0,
            statuses: Vec::new(),
            failure: None,
        }
    }

    /// Goes on as far as it can without blocking.
    pub fn advance(&mut self, d: &mut Device) -> Step {
        loop {
            match self.state {
                State::Views => {
                    if self.plan.caches_views {
                        let known = self.file.rank_views.lock();
                        known.unwrap_or_else(PoisonError::into_inner).complete = true;
                    }
                    self.send_views(d);
                    self.state = State::AwaitViews;
                }
                State::AwaitViews => {
                    if !self.messages_ended(d) {
                        return Step::Pending;
                    }
                    if let Err(e) = self.take_views() {
                        self.failure.get_or_insert(e);
                    }
                    self.state = State::Round;
                }
                State::Round => {
                    if self.round == self.plan.domains.rounds() {
                        self.state = State::Writes;
                        continue;
                    }
                    if self.writing >= WRITES_MAX {
                        return Step::Pending;
                    }
                    if let Some(window) = self.begin_round(d) {
                        return Step::Window(window);
                    }
                }
                State::AwaitRead => return Step::Pending,
                State::AwaitMessages => {
                    if !self.messages_ended(d) {
                        return Step::Pending;
                    }
                    self.round += 1;
                    self.state = State::Round;
                    let Some(window) = self.window.take() else {
                        continue;
                    };
                    if self.plan.direction == Direction::Write && self.failure.is_none() {
                        self.writing += 1;
                        return Step::Window(window);
                    }
                    self.spare.push(window);
                }
                State::Writes => {
                    if self.writing > 0 {
                        return Step::Pending;
                    }
                    self.exchange_statuses(d);
                    self.state = State::AwaitStatuses;
                }
                State::AwaitStatuses => {
                    if !self.messages_ended(d) {
                        return Step::Pending;
                    }
                    self.take_statuses();
                    return Step::Done;
                }
            }
        }
    }

    /// A window that [`Exchange::advance`] has handed out was read or written.
    pub fn transferred(&mut self, mut window: Window) {
        if let Err(e) = std::mem::replace(&mut window.result, Ok(())) {
            self.failure.get_or_insert(e);
        }
        if self.state == State::AwaitRead {
            self.window = Some(window);
            self.state = State::Round;
        } else {
            self.writing -= 1;
            self.spare.push(window);
        }
    }

    /// The outcome.
    ///
    /// # Safety
    /// As for `new`.
    pub unsafe fn end(self) -> Result<Outcome> {
        if let Some(e) = self.failure {
            return Err(e);
        }
        let done = self.extent.len;
        let bytes = match self.plan.direction {
            Direction::Write => self.transfer.memory_bytes(),
            Direction::Read if self.converted.is_empty() => done,
            Direction::Read => {
                let found = &self.converted[..done as usize];
                // SAFETY: the caller's promise.
                unsafe { self.transfer.store_converted(found) }?
            }
        };
        Ok(Outcome {
            bytes,
            ..Outcome::EMPTY
        })
    }

    /// Have all messages ended?
    fn messages_ended(&mut self, d: &mut Device) -> bool {
        let failure = &mut self.failure;
        self.messages.retain(|message| {
            if !d.is_complete(message.request) {
                return true;
            }
            if let Some(fault) = d.take(message.request).fault {
                failure.get_or_insert(err!(
                    Other,
                    "a message of a collective transfer to or from process {} was lost: {fault}",
                    message.peer
                ));
            }
            false
        });
        self.messages.is_empty()
    }

    fn send(&mut self, d: &mut Device, rank: u32, data: Source) {
        let peer = self.file.comm.peer(rank);
        let key = Key {
            context: self.file.comm.context,
            source: self.me,
            tag: self.tag,
        };
        // SAFETY: the data are the program's buffer or a window, which stay until the message has
        // ended, or the device's own.
        let sent = unsafe { d.send(peer, key, data, SendMode::Standard) };
        if let Some(request) = sent {
            self.messages.push(Message { request, peer });
        }
    }

    fn receive(&mut self, d: &mut Device, rank: u32, into: Sink) {
        let peer = self.file.comm.peer(rank);
        let pattern = Pattern {
            context: self.file.comm.context,
            source: Some(rank),
            tag: Some(self.tag).into(),
        };
        // SAFETY: the memory is the program's buffer or a window, which stay until the message has
        // ended.
        let request = unsafe { d.receive_from(peer, pattern, into) };
        self.messages.push(Message { request, peer });
    }

    fn send_views(&mut self, d: &mut Device) {
        for rank in self.plan.aggregators.clone() {
            if rank != self.me {
                self.send(d, rank, Source::Owned(self.own_view.to_vec().into()));
            }
        }
        if self.aggregator.is_none() {
            return;
        }
        let lengths = self.plan.extents.iter().map(|e| e.view_bytes as usize);
        self.encoded = lengths.map(|len| vec![0; len]).collect();
        for rank in 0..self.encoded.len() {
            if rank as u32 == self.me {
                self.encoded[rank] = self.own_view.to_vec();
                continue;
            }
            let bytes = &mut self.encoded[rank];
            let into = Sink::Bytes {
                ptr: bytes.as_mut_ptr(),
                cap: bytes.len(),
            };
            self.receive(d, rank as u32, into);
        }
    }

    fn take_views(&mut self) -> Result<()> {
        let all = self.encoded.drain(..).map(|bytes| decode(&bytes));
        self.views = all.collect::<Result<_>>()?;
        if self.plan.caches_views {
            let known = self.file.rank_views.lock();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            known.all.clone_from(&self.views);
        }
        Ok(())
    }

    /// Aggregators tell all ranks whether they have failed: the number of the error's class plus 1,
    /// or 0, and the error's text.
    fn exchange_statuses(&mut self, d: &mut Device) {
        let own = match &self.failure {
            None => vec![0; 4],
            Some(e) => {
                let mut status = (number(e) + 1).to_le_bytes().to_vec();
                status.extend_from_slice(e.text().as_bytes());
                status.truncate(STATUS_BYTES);
                status
            }
        };
        if self.aggregator.is_some() {
            for rank in 0..self.plan.extents.len() as u32 {
                if rank != self.me {
                    self.send(d, rank, Source::Owned(own.clone().into()));
                }
            }
        }
        self.statuses = vec![[0; STATUS_BYTES]; self.plan.aggregators.len()];
        for a in 0..self.statuses.len() {
            let rank = self.plan.aggregators[a];
            if rank != self.me {
                let (ptr, cap) = (self.statuses[a].as_mut_ptr(), STATUS_BYTES);
                self.receive(d, rank, Sink::Bytes { ptr, cap });
            }
        }
    }

    fn take_statuses(&mut self) {
        for (status, rank) in self.statuses.iter().zip(&self.plan.aggregators) {
            let (of, text) = status.split_at(4);
            let of = u32::from_le_bytes([of[0], of[1], of[2], of[3]]);
            if let Some(of) = of.checked_sub(1) {
                // Zeros fill what the message has not.
                let len = text.iter().position(|b| *b == 0).unwrap_or(text.len());
                let text = String::from_utf8_lossy(&text[..len]);
                self.failure.get_or_insert_with(|| {
                    Error::new(class(of), format!("on rank {rank}: {text}"))
                });
            }
        }
    }

    /// The positions of this rank's data in a range of the file.
    fn own_data(&self, range: &Range<u64>) -> Range<u64> {
        let Extent { position, len, .. } = self.extent;
        if !self.plan.reaches(self.me as usize, range) {
            return position..position;
        }
        self.transfer.view.layout.positions_in(position, len, range)
    }

    /// The ranks with data in a range of the file, and the data.
    fn pieces(&self, range: &Range<u64>) -> (Vec<u32>, Vec<Piece>) {
        let (mut ranks, mut pieces) = (Vec::new(), Vec::new());
        for (rank, view) in self.views.iter().enumerate() {
            if !self.plan.reaches(rank, range) {
                continue;
            }
            let Extent { position, len, .. } = self.plan.extents[rank];
            let data = view.positions_in(position, len, range);
            if !data.is_empty() {
                ranks.push(rank as u32);
                pieces.push(Piece {
                    view: view.clone(),
                    data,
                });
            }
        }
        (ranks, pieces)
    }

    /// Begins a round: posts its messages. Returns a window that has to be read first; then the
    /// round begins again.
    fn begin_round(&mut self, d: &mut Device) -> Option<Window> {
        let reading = self.plan.direction == Direction::Read;
        let range = self
            .aggregator
            .map(|a| self.plan.domains.window(a, self.round))
            .unwrap_or(0..0);
        let (ranks, pieces) = self.pieces(&range);
        if self.window.is_none() && !pieces.is_empty() {
            let spare = self.spare.pop();
            let (stored, exclusion) = (&self.transfer.stored, &self.transfer.sieve_exclusion);
            let mut window =
                spare.unwrap_or_else(|| Window::new(stored, exclusion, self.plan.direction));
            window.place(pieces);
            if reading && self.failure.is_none() {
                self.state = State::AwaitRead;
                return Some(window);
            }
            self.window = Some(window);
        }
        self.state = State::AwaitMessages;
        self.exchange_own(d);
        self.exchange_window(d, &ranks);
        None
    }

    /// Sends or receives this rank's data of the round.
    fn exchange_own(&mut self, d: &mut Device) {
        for a in 0..self.plan.aggregators.len() {
            let rank = self.plan.aggregators[a];
            if rank == self.me {
                continue;
            }
            let range = self.plan.domains.window(a, self.round);
            let data = self.own_data(&range);
            if data.is_empty() {
                continue;
            }
            let offset = data.start - self.extent.position;
            let len = data.end - data.start;
            let PersistentBuffer {
                address,
                count,
                ref datatype,
            } = self.memory;
            match self.plan.direction {
                Direction::Write => {
                    let whole = offset == 0 && len == self.extent.len;
                    let from = match whole {
                        true => source(address, count, datatype),
                        false => as_source(stretch(address, count, datatype, offset, len)),
                    };
                    self.send(d, rank, from);
                }
                Direction::Read => {
                    let into = stretch(address, count, datatype, offset, len);
                    self.receive(d, rank, into);
                }
            }
        }
    }

    /// Receives or sends the data of the round's window.
    fn exchange_window(&mut self, d: &mut Device, ranks: &[u32]) {
        let Some(mut window) = self.window.take() else {
            return;
        };
        for (n, &rank) in ranks.iter().enumerate() {
            if rank == self.me {
                self.copy_own(&mut window, n);
                continue;
            }
            let (view, bytes) = window.scattered(n);
            match self.plan.direction {
                Direction::Write => self.receive(d, rank, Sink::Layout { view, cap: bytes }),
                Direction::Read => self.send(d, rank, Source::Layout { view, len: bytes }),
            }
        }
        self.window = Some(window);
    }

    /// Copies between this rank's own buffer and the window.
    fn copy_own(&self, window: &mut Window, n: usize) {
        let data = window.data(n);
        let offset = data.start - self.extent.position;
        let len = (data.end - data.start) as usize;
        let m = &self.memory;
        let writing = self.plan.direction == Direction::Write;
        if let Some(at) = crate::buffer::run(m.address, m.count, &m.datatype) {
            let at = at.wrapping_add(offset as usize);
            if writing {
                // SAFETY: the promise at `new`.
                window.put(n, unsafe { std::slice::from_raw_parts(at, len) });
            } else {
                // SAFETY: the promise at `new`.
                window.get(n, unsafe { std::slice::from_raw_parts_mut(at, len) });
            }
            return;
        }
        let mut packed = vec![0; len];
        if writing {
            // SAFETY: the promise at `new`.
            unsafe { m.datatype.pack(m.address, m.count, offset, &mut packed) };
            window.put(n, &packed);
        } else {
            window.get(n, &mut packed);
            // SAFETY: the promise at `new`.
            unsafe { m.datatype.unpack(m.address, m.count, offset, &packed) };
        }
    }
}

/// The memory of a receive as that of a send.
fn as_source(sink: Sink) -> Source {
    match sink {
        Sink::Bytes { ptr, cap } => Source::Bytes { ptr, len: cap },
        Sink::Layout { view, cap } => Source::Layout { view, len: cap },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_travels_whole() {
        let mut known = RankViews::default();
        let view = FileView::bytes();
        let bytes = known.own(&view).unwrap().to_vec();
        let back = decode(&bytes).unwrap();
        assert_eq!(back.span(5, 10), view.layout.span(5, 10));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(!known.is_complete());
    }
}
