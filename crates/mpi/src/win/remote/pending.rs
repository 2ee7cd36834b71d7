//! Operations of this process at one target that go by packets: the packet that is being filled,
//! and what waits for a response, a message with data or an acknowledgement.

use super::card::charge;
use super::packets::{
    BYTES, Elements, HEADER_BYTES, Head, PacketKind, RECORD_MAX_BYTES, Request, SLOTS,
};
use crate::buffer::run;
use crate::device::{Device, Fault, ReqId, last_failure};
use crate::pt2pt::Buffer;
use crate::request::{Outcome, Work};
use crate::win::Win;
use crate::win::target::Target;
use crate::{Datatype, Error, Result, err};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Longest packet, bytes. A choice: long enough that its cost is that of its bytes, and short
/// enough that the target begins with one while the next is filled.
pub(super) const PACKET_MAX_BYTES: usize = 32 * 1024;
/// Shortest packet that the operations can do with, bytes: a record with an element.
const PACKET_MIN_BYTES: usize = HEADER_BYTES + RECORD_MAX_BYTES + 2 * 64;
/// Most data of one operation in a packet, bytes. More goes as a message. A choice: copying this
/// much takes as long as the headers of a message.
const INLINE_MAX_BYTES: usize = 8 * 1024;
/// Bytes that may be sent to a target before it acknowledges some. A choice: several times what a
/// connection holds.
pub(super) const UNACKNOWLEDGED_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Where the data of a get or fetch go: a part of a buffer of the program.
pub(super) struct Destination {
    pub address: *mut u8,
    pub count: i64,
    pub datatype: Arc<Datatype>,
    /// Packed bytes before the part.
    pub offset: u64,
    /// Packed bytes of the part.
    pub len: usize,
}

// SAFETY: the address is the program's, lent to MPI until the operation completes.
unsafe impl Send for Destination {}

impl Destination {
    /// The whole of a buffer of `len` bytes.
    pub fn whole(buffer: &Buffer<'_>, len: usize) -> Destination {
        Destination::part(buffer, 0, len)
    }

    /// The packed bytes from `offset` on.
    pub fn part(buffer: &Buffer<'_>, offset: u64, len: usize) -> Destination {
        Destination {
            address: buffer.address,
            count: buffer.count,
            datatype: buffer.datatype.clone(),
            offset,
            len,
        }
    }

    /// Stores the data, which are as long as the part.
    ///
    /// # Safety
    /// The buffer is writable.
    unsafe fn store(&self, data: &[u8]) {
        debug_assert_eq!(data.len(), self.len);
        // SAFETY: the caller's promise.
        unsafe {
            if self.datatype.is_dense() {
                let to = self.address.wrapping_add(self.offset as usize);
                std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
            } else {
                let Destination {
                    address,
                    count,
                    offset,
                    ..
                } = *self;
                self.datatype.unpack(address, count, offset, data);
            }
        }
    }
}

/// An operation whose request the program has.
pub(super) struct RemoteOperation {
    win: Arc<Win>,
    rank: u32,
    done: AtomicBool,
    error: OnceLock<Error>,
}

impl RemoteOperation {
    pub fn new(win: &Arc<Win>, rank: u32) -> Arc<RemoteOperation> {
        Arc::new(RemoteOperation {
            win: win.clone(),
            rank,
            done: AtomicBool::new(false),
            error: OnceLock::new(),
        })
    }
}

impl Work for RemoteOperation {
    fn is_done(&self, d: &mut Device) -> bool {
        if self.done.load(Ordering::Acquire) {
            return true;
        }
        let Some(target) = self.win.targets.known(self.rank) else {
            return true;
        };
        let mut pending = lock(&target.pending);
        pending.send(&self.win, target, d);
        pending.settle(d, target);
        self.done.load(Ordering::Acquire)
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            error: self.error.get().map(|e| e.clone().on_win(&self.win)),
            ..Outcome::EMPTY
        }
    }
}

/// A get or fetch that waits for its response.
pub(super) struct AwaitedResponse {
    pub destination: Destination,
    /// Of an operation with a request.
    pub operation: Option<Arc<RemoteOperation>>,
    /// It is the operation's last part.
    pub last: bool,
}

/// A message with data.
pub(super) struct DataMessage {
    pub req: ReqId,
    /// The number of a get.
    pub number: Option<u32>,
    pub operation: Option<Arc<RemoteOperation>>,
}

/// The datatypes that the target remembers.
#[derive(Default)]
struct Types {
    slots: Vec<Arc<Datatype>>,
    /// The slot that the next new type takes.
    next: usize,
}

/// Operations under way to one target.
#[derive(Default)]
pub(in crate::win) struct Pending {
    /// The packet that is being filled. Empty if there is none.
    packet: Vec<u8>,
    /// Its greatest length, bytes. 0 before the first operation.
    packet_max_bytes: usize,
    /// The number of the last acknowledgement that was asked for, and of the last that has come.
    last_ack_requested: u64,
    last_ack_received: u64,
    /// The number of the first acknowledgement that tells that the target has given its lock.
    lock_number: u64,
    /// It is in the list of targets whose locks were asked for.
    in_lock_list: bool,
    /// Operations have followed the last record that asks for an acknowledgement.
    unasked: bool,
    /// The card has put something since that record, and since it was last flushed.
    card_puts: bool,
    /// Bytes of packets since that record.
    pub(super) unacknowledged_bytes: usize,
    /// In the order of their responses.
    awaited: VecDeque<AwaitedResponse>,
    data_messages: Vec<DataMessage>,
    /// The number of the last message with data.
    last_data_number: u32,
    types: Types,
    /// The first error since the last synchronisation.
    error: Option<Error>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packed bytes of `len` bytes of a buffer are appended to `out`.
///
/// # Safety
/// The buffer is readable.
pub(super) unsafe fn append(out: &mut Vec<u8>, buffer: &Buffer<'_>, len: usize) {
    let at = out.len();
    // SAFETY: the caller's promise.
    unsafe {
        match run(buffer.address, buffer.count, buffer.datatype) {
            Some(from) => out.extend_from_slice(std::slice::from_raw_parts(from, len)),
            None => {
                out.resize(at + len, 0);
                let data = &mut out[at..];
                buffer.datatype.pack(buffer.address, buffer.count, 0, data);
            }
        }
    }
}

/// What packets to a target are like, found out before the first.
///
/// Errors: Other if no packet of a sensible length can be sent there.
#[cold]
fn find_packet_max_bytes(d: &mut Device, target: &Target) -> Result<usize> {
    let max = d.active_max(target.process).min(PACKET_MAX_BYTES);
    if max >= PACKET_MIN_BYTES {
        return Ok(max);
    }
    let rank = target.rank;
    Err(match last_failure() {
        Some(cause) => err!(Other, "rank {rank} of the window is out of reach: {cause}"),
        None => err!(
            Other,
            "messages to rank {rank} of the window have {max} bytes at most, and one-sided \
             operations need {PACKET_MIN_BYTES}"
        ),
    })
}

impl Pending {
    /// Bytes of data that one record can have.
    pub fn inline_max(&self) -> usize {
        (self.packet_max_bytes - HEADER_BYTES - RECORD_MAX_BYTES).min(INLINE_MAX_BYTES)
    }

    /// Is there room for a record with `len` bytes of data?
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        let used = self.packet.len().max(HEADER_BYTES);
        self.packet_max_bytes > 0
            && used + RECORD_MAX_BYTES + len <= self.packet_max_bytes
            && len <= self.inline_max()
    }

    /// Sends the packet, if there is one.
    pub fn send(&mut self, win: &Win, target: &Target, d: &mut Device) {
        if self.packet.is_empty() {
            return;
        }
        let next = Vec::with_capacity(if self.packet.len() > self.packet_max_bytes / 2 {
            self.packet_max_bytes
        } else {
            0
        });
        let packet = std::mem::replace(&mut self.packet, next);
        debug_assert_eq!(Head::read(&packet).map(|h| h.rank), Some(win.rank()));
        self.unacknowledged_bytes += packet.len();
        d.send_active(target.process, packet.into_boxed_slice());
    }

    /// Finds out how long packets may be.
    pub fn prepare(&mut self, target: &Target, d: &mut Device) -> Result<()> {
        if self.packet_max_bytes == 0 {
            self.packet_max_bytes = find_packet_max_bytes(d, target)?;
        }
        Ok(())
    }

    /// Makes room for a record with `len` bytes of data, at most [`Pending::inline_max`].
    pub fn make_room(&mut self, win: &Win, target: &Target, d: &mut Device, len: usize) {
        if !self.has_room(len) {
            self.send(win, target, d);
        }
    }

    /// The packet, for a record that there is room for.
    #[inline]
    pub fn record(&mut self, win: &Win) -> &mut Vec<u8> {
        if self.packet.is_empty() {
            self.begin(win);
        }
        self.unasked = true;
        &mut self.packet
    }

    #[cold]
    fn begin(&mut self, win: &Win) {
        let head = Head {
            context: win.comm.context.0,
            rank: win.rank(),
            kind: PacketKind::Requests,
        };
        head.put(&mut self.packet);
    }

    /// How a record names a type. A type that the target does not know is sent before.
    pub fn refer_to(
        &mut self,
        win: &Win,
        target: &Target,
        d: &mut Device,
        datatype: &Arc<Datatype>,
    ) -> Result<u32> {
        if let Some(basic) = datatype.basic_kind() {
            return Ok(basic.value());
        }
        let slots = &self.types.slots;
        if let Some(slot) = slots.iter().position(|t| Arc::ptr_eq(t, datatype)) {
            return Ok(slot as u32 + 1);
        }
        let encoded = datatype.encode()?;
        let slot = self.types.next;
        self.types.next = (slot + 1) % SLOTS;
        match self.types.slots.get_mut(slot) {
            Some(old) => *old = datatype.clone(),
            None => self.types.slots.push(datatype.clone()),
        }
        let mut rest = &encoded[..];
        loop {
            let (bytes, after) = rest.split_at(rest.len().min(self.inline_max()));
            self.make_room(win, target, d, bytes.len());
            let part = Request::Type {
                slot: slot as u32,
                last: after.is_empty(),
                bytes,
            };
            part.put(self.record(win));
            if after.is_empty() {
                return Ok(slot as u32 + 1);
            }
            rest = after;
        }
    }

    /// Elements as a record names them.
    pub(super) fn elements(
        &mut self,
        win: &Win,
        target: &Target,
        d: &mut Device,
        (offset, count, datatype): (i64, i64, &Arc<Datatype>),
    ) -> Result<Elements> {
        if let Some(dense) = dense((offset, count, datatype)) {
            return Ok(dense);
        }
        Ok(Elements {
            offset,
            count: count.max(0) as u64,
            datatype: self.refer_to(win, target, d, datatype)?,
        })
    }

    /// The number of a message with data.
    pub fn next_data_number(&mut self) -> u32 {
        self.last_data_number = (self.last_data_number + 1) & super::NUMBER_MASK;
        self.last_data_number
    }

    /// A get or fetch has been added.
    pub(super) fn push_awaited(&mut self, response: AwaitedResponse) {
        self.awaited.push_back(response);
    }

    /// A message with data is under way.
    pub(super) fn push_data_message(&mut self, message: DataMessage) {
        self.data_messages.push(message);
    }

    /// Is anything not acknowledged, or under way?
    pub fn is_open(&self) -> bool {
        self.card_puts || self.is_open_by_packets()
    }

    /// Is anything that went by packets not acknowledged, or under way?
    pub fn is_open_by_packets(&self) -> bool {
        self.unasked
            || self.last_ack_received < self.last_ack_requested
            || !self.is_locally_complete()
    }

    /// Is all that is under way what the card has put?
    pub fn is_open_by_card_alone(&self) -> bool {
        self.card_puts && !self.is_open_by_packets()
    }

    /// The card has put something.
    pub fn on_card_put(&mut self) {
        self.card_puts = true;
    }

    /// What the card has put has arrived.
    pub fn on_card_flushed(&mut self) {
        self.card_puts = false;
    }

    /// Has the target given the lock that was asked for, if one was?
    pub fn has_lock(&self) -> bool {
        self.last_ack_received >= self.lock_number
    }

    /// Are all buffers of the program free?
    pub fn is_locally_complete(&self) -> bool {
        self.awaited.is_empty() && self.data_messages.is_empty()
    }

    /// Is there nothing that has not been sent?
    pub fn has_sent_all(&self) -> bool {
        self.packet.is_empty()
    }

    /// Asks for an acknowledgement of all so far. Returns its number.
    pub(super) fn ask(
        &mut self,
        win: &Win,
        target: &Target,
        d: &mut Device,
        request: fn(u64) -> Request<'static>,
    ) -> u64 {
        self.last_ack_requested += 1;
        let number = self.last_ack_requested;
        self.make_room(win, target, d, 0);
        request(number).put(self.record(win));
        self.send(win, target, d);
        (self.unasked, self.card_puts, self.unacknowledged_bytes) = (false, false, 0);
        number
    }

    /// The lock was asked for. Returns whether the target is to be listed for that.
    pub fn on_lock_asked(&mut self) -> bool {
        self.lock_number = self.last_ack_requested + 1;
        !std::mem::replace(&mut self.in_lock_list, true)
    }

    /// The target is no longer listed. Returns whether it is not known that it has given its lock.
    pub fn unlist(&mut self) -> bool {
        self.in_lock_list = false;
        !self.has_lock()
    }

    /// Has the acknowledgement come?
    pub fn has_acknowledged(&self, number: u64) -> bool {
        self.last_ack_received >= number
    }

    /// The acknowledgement has come.
    pub fn on_acknowledged(&mut self, number: u64) {
        self.last_ack_received = number.clamp(self.last_ack_received, self.last_ack_requested);
    }

    /// The response of the oldest get or fetch. False: none waits for so many bytes.
    pub fn on_data(&mut self, d: &mut Device, data: &[u8]) -> bool {
        if self.awaited.front().map(|w| w.destination.len) != Some(data.len()) {
            return false;
        }
        if let Some(response) = self.awaited.pop_front() {
            // SAFETY: the program lends the buffer until the operation is complete.
            unsafe { response.destination.store(data) };
            let Destination { address, count, .. } = response.destination;
            charge(d, (address, count, &response.destination.datatype), true);
            if let Some(operation) = response.operation.filter(|_| response.last) {
                operation.done.store(true, Ordering::Release);
            }
        }
        true
    }

    /// The oldest get or fetch has failed.
    pub fn on_refused(&mut self, error: Error) {
        match self.awaited.pop_front() {
            Some(AwaitedResponse {
                operation: Some(operation),
                last: false,
                ..
            }) => {
                let _ = operation.error.set(error);
            }
            Some(response) => self.fail(response.operation, error),
            None => {}
        }
    }

    /// The get by the message `number` has failed.
    pub fn on_large_refused(&mut self, d: &mut Device, number: u32, error: Error) {
        let Some(at) = self
            .data_messages
            .iter()
            .position(|l| l.number == Some(number))
        else {
            return;
        };
        if d.cancel_receive(self.data_messages[at].req) {
            let message = self.data_messages.swap_remove(at);
            d.take(message.req);
            self.fail(message.operation, error);
        }
    }

    /// Something without a response has failed.
    pub fn on_silent_error(&mut self, error: Error) {
        self.fail(None, error);
    }

    fn fail(&mut self, operation: Option<Arc<RemoteOperation>>, error: Error) {
        match operation {
            Some(operation) => {
                let _ = operation.error.set(error);
                operation.done.store(true, Ordering::Release);
            }
            None => {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Ends messages that are complete. If the target is lost, ends all.
    pub fn settle(&mut self, d: &mut Device, target: &Target) {
        let mut at = 0;
        while at < self.data_messages.len() {
            let req = self.data_messages[at].req;
            if !d.is_complete(req) {
                at += 1;
                continue;
            }
            let message = self.data_messages.swap_remove(at);
            match d.take(req).fault {
                None => {
                    if let Some(operation) = message.operation {
                        operation.done.store(true, Ordering::Release);
                    }
                }
                Some(fault) => self.fail(message.operation, fault_error(fault, target)),
            }
        }
        if d.is_lost(target.process) && self.is_open() {
            self.end_all(d, target);
        }
    }

    #[cold]
    fn end_all(&mut self, d: &mut Device, target: &Target) {
        self.packet = Vec::new();
        for message in std::mem::take(&mut self.data_messages) {
            d.detach(message.req);
            self.fail(message.operation, fault_error(Fault::Transport, target));
        }
        for response in std::mem::take(&mut self.awaited) {
            self.fail(response.operation, fault_error(Fault::Transport, target));
        }
        (self.last_ack_received, self.unasked, self.card_puts) =
            (self.last_ack_requested, false, false);
        self.fail(None, fault_error(Fault::Transport, target));
    }

    /// The first error since the last call.
    pub fn take_error(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}

#[cold]
fn fault_error(fault: Fault, target: &Target) -> Error {
    let cause = match fault {
        Fault::Transport => last_failure().unwrap_or_else(|| fault.to_string()),
        _ => fault.to_string(),
    };
    err!(
        Other,
        "operations to rank {} of the window have failed: {cause}",
        target.rank
    )
}

/// Elements that are one run, as bytes.
#[inline]
pub(super) fn dense((offset, count, datatype): (i64, i64, &Arc<Datatype>)) -> Option<Elements> {
    let (low, len) = datatype.run(count)?;
    Some(Elements {
        offset: offset.wrapping_add(low),
        count: len,
        datatype: BYTES,
    })
}
