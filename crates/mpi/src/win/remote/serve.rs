//! What the target's service does for one origin: each record is checked, done, and answered.

use super::card::charge;
use super::packets::{BYTES, Elements, Refused, Request as Record, Response, SLOTS};
use super::responses::Responses;
use super::service::on_complete;
use crate::buffer::{sink, source};
use crate::device::{Device, Key, NodeLock, Patience, Pattern, ReqId, SendMode, Sink, Tags};
use crate::win::accumulate::element_of;
use crate::win::{Flavor, Win};
use crate::{Datatype, Error, Op, Result, err};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A lock of this process's part of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowLock {
    /// That of MPI_Win_lock (MPI 5.0 §12.5.3).
    Epoch,
    /// That under which elements without CPU atomics are updated.
    Accumulate,
}

/// What an origin has asked for.
#[derive(Default)]
pub(super) struct Origin {
    /// Packets that are not done, and where the next record of the first begins.
    pub packets: VecDeque<(Box<[u8]>, usize)>,
    /// Receives of data into the window.
    pub receives: Vec<ReqId>,
    /// Sends of data out of the window.
    pub sends: Vec<ReqId>,
    /// The types that it has sent.
    pub types: Vec<Arc<Datatype>>,
    /// The parts so far of a type.
    pub part: Vec<u8>,
    /// It waits for this lock of the window, since this time.
    pub waits_for: Option<(WindowLock, Instant)>,
    /// It has locked the window exclusively.
    pub exclusive: bool,
    /// How often it has locked the window otherwise: more than once if several of its threads have
    /// asked for the lock of MPI_Win_lock_all. All but one of them release it.
    pub shared: u32,
}

impl Origin {
    /// Have all data of its large puts come, and those of its large gets gone? This process and the
    /// next origin may then read and store what they want.
    fn has_transferred(&mut self, d: &mut Device) -> bool {
        let received = all_done(d, &mut self.receives);
        all_done(d, &mut self.sends) && received
    }
}

/// Does the requests of one origin.
pub(super) struct Server<'a> {
    pub win: &'a Win,
    pub responses: Responses<'a>,
    /// The origin's.
    pub rank: u32,
    /// A lock was released.
    pub released: bool,
}

/// An accumulate, or compare and swap, whose elements and operands fit each other.
struct CheckedUpdate<'a> {
    action: UpdateAction,
    found: Found,
    /// The operands, packed.
    data: &'a [u8],
    /// The origin gets the old values.
    fetches: bool,
}

enum UpdateAction {
    Op(&'static Arc<Op>),
    /// Of one element of this type.
    CompareAndSwap(ferry_datatype::Basic),
}

/// Elements in this process's memory, checked.
struct Found {
    at: *mut u8,
    count: i64,
    datatype: Arc<Datatype>,
    /// Packed bytes.
    len: usize,
}

impl Server<'_> {
    /// Does a request. False: it has to wait, and nothing is done.
    pub fn serve(&mut self, d: &mut Device, origin: &mut Origin, record: Record<'_>) -> bool {
        let (refused, done) = match record {
            Record::Put(elements, data) => (Refused::Silent, self.put(d, origin, elements, data)),
            Record::Get(elements) => (Refused::Oldest, self.get(d, origin, elements)),
            Record::Accumulate { fetches, .. } => {
                let refused = if fetches {
                    Refused::Oldest
                } else {
                    Refused::Silent
                };
                match self.update(d, origin, record) {
                    Ok(false) => return false,
                    done => (refused, done.map(drop)),
                }
            }
            Record::CompareAndSwap(..) => match self.update(d, origin, record) {
                Ok(false) => return false,
                done => (Refused::Oldest, done.map(drop)),
            },
            Record::LargePut(elements, number) => {
                (Refused::Silent, self.large_put(d, origin, elements, number))
            }
            Record::LargeGet(elements, number) => (
                Refused::Large(number),
                self.large_get(d, origin, elements, number),
            ),
            Record::Type { slot, last, bytes } => (
                Refused::Silent,
                self.learn(origin, slot as usize, last, bytes),
            ),
            Record::Lock { exclusive } => {
                if !self.take(d, origin, WindowLock::Epoch, exclusive) {
                    return false;
                }
                if exclusive {
                    origin.exclusive = true;
                } else {
                    origin.shared += 1;
                }
                (Refused::Silent, Ok(()))
            }
            Record::Unlock(number) => {
                if !origin.has_transferred(d) {
                    return false;
                }
                if std::mem::take(&mut origin.exclusive) {
                    self.release(d, WindowLock::Epoch, true);
                } else if let Some(left) = origin.shared.checked_sub(1) {
                    origin.shared = left;
                    self.release(d, WindowLock::Epoch, false);
                }
                self.responses.push(d, Response::Acknowledged(number));
                (Refused::Silent, Ok(()))
            }
            Record::Flush(number) => {
                // The origin itself waits for the data of its gets.
                if !all_done(d, &mut origin.receives) {
                    return false;
                }
                self.responses.push(d, Response::Acknowledged(number));
                (Refused::Silent, Ok(()))
            }
            Record::Complete => {
                if !origin.has_transferred(d) {
                    return false;
                }
                on_complete(self.win, d);
                (Refused::Silent, Ok(()))
            }
        };
        if let Err(error) = done {
            self.responses.refuse(d, refused, &error);
        }
        true
    }

    /// Looks up elements of this call, and checks that they are in the window.
    fn find(&self, origin: &Origin, elements: Elements, call: &str) -> Result<Found> {
        let datatype = match elements.datatype {
            BYTES => Datatype::basic(ferry_datatype::Basic::Byte).clone(),
            slot if slot as usize <= SLOTS => {
                let known = origin.types.get(slot as usize - 1);
                known.cloned().ok_or_else(unknown_type)?
            }
            value => Datatype::predefined(value)
                .cloned()
                .ok_or_else(unknown_type)?,
        };
        let count = i64::try_from(elements.count).map_err(|_| unknown_type())?;
        let len = datatype.packed_size(count)?;
        let (low, end) = datatype.span(count)?;
        let (win, offset) = (self.win, elements.offset);
        if len == 0 {
            // No bytes: the offset may be anything.
            return Ok(Found {
                at: std::ptr::dangling_mut(),
                count: 0,
                datatype,
                len: 0,
            });
        }
        let fits = if win.flavor == Flavor::Dynamic {
            let regions = win.control.regions(win.member);
            let first = (offset as u64).checked_add_signed(low);
            let bytes = end.wrapping_sub(low) as u64;
            let inside = |first| regions.is_some_and(|r| r.find(first, bytes).is_some());
            first.is_some_and(inside)
        } else {
            let (first, last) = (offset.checked_add(low), offset.checked_add(end));
            matches!((first, last), (Some(first), Some(last))
                if first >= 0 && last >= first && last as u64 <= win.memory.size())
        };
        if !fits {
            return Err(self.out_of_range(call, offset, len, (low, end)));
        }
        let at = match win.flavor {
            Flavor::Dynamic => std::ptr::with_exposed_provenance_mut(offset as usize),
            _ => win.memory.base().wrapping_offset(offset as isize),
        };
        Ok(Found {
            at,
            count,
            datatype,
            len: len as usize,
        })
    }

    #[cold]
    fn out_of_range(&self, call: &str, offset: i64, len: i64, (low, end): (i64, i64)) -> Error {
        let (win, rank) = (self.win, self.win.rank());
        let first = offset.wrapping_add(low);
        let span = end.wrapping_sub(low);
        if win.flavor == Flavor::Dynamic {
            return err!(
                RmaRange,
                "{call} to rank {rank}: address {first:#x} and {len} bytes in {span} from \
                 there are not all in memory that is attached to its window"
            );
        }
        err!(
            RmaRange,
            "{call} to rank {rank}: displacement {first} bytes and {len} bytes in {span} \
             from there reach beyond its window of {} bytes",
            win.memory.size()
        )
    }

    fn put(&self, d: &mut Device, origin: &Origin, elements: Elements, data: &[u8]) -> Result<()> {
        let found = self.find(origin, elements, "MPI_Put")?;
        if found.len != data.len() {
            return Err(malformed());
        }
        charge(d, (found.at, found.count, &found.datatype), true);
        // SAFETY: the elements are in the window, which the program lends to all its members.
        unsafe {
            if found.datatype.is_dense() {
                std::ptr::copy_nonoverlapping(data.as_ptr(), found.at, data.len());
            } else {
                found.datatype.unpack(found.at, found.count, 0, data);
            }
        }
        Ok(())
    }

    fn get(&mut self, d: &mut Device, origin: &Origin, elements: Elements) -> Result<()> {
        let found = self.find(origin, elements, "MPI_Get")?;
        if !self.responses.make_room(d, found.len) {
            return Err(malformed());
        }
        charge(d, (found.at, found.count, &found.datatype), false);
        let out = &mut self.responses.packet;
        Response::data_head(out, found.len);
        let at = out.len();
        // SAFETY: the elements are in the window.
        unsafe {
            if found.datatype.is_dense() {
                out.extend_from_slice(std::slice::from_raw_parts(found.at, found.len));
            } else {
                out.resize(at + found.len, 0);
                let data = &mut out[at..];
                found.datatype.pack(found.at, found.count, 0, data);
            }
        }
        Ok(())
    }

    /// An accumulate, or compare and swap. False: it has to wait for the accumulate lock.
    fn update(&mut self, d: &mut Device, origin: &mut Origin, record: Record<'_>) -> Result<bool> {
        let update = self.checked_update(origin, record)?;
        let Found { at, count, len, .. } = update.found;
        if update.fetches && !self.responses.make_room(d, len) {
            return Err(malformed());
        }
        let atomics = self
            .win
            .targets
            .known(self.win.rank())
            .is_some_and(|own| own.atomics);
        let elements = (at, count, &*update.found.datatype);
        let locks = !atomics || Op::needs_lock((at.cast_const(), count, elements.2));
        if locks && !self.take(d, origin, WindowLock::Accumulate, true) {
            return Ok(false);
        }
        charge(d, elements, false);
        charge(d, elements, true);
        let mut result = None;
        if update.fetches {
            let out = &mut self.responses.packet;
            Response::data_head(out, len);
            let at = out.len();
            out.resize(at + len, 0);
            result = Some(out[at..].as_mut_ptr());
        }
        // SAFETY: the elements are in the window and of one type, operands and result as long as
        // they need, and the lock is taken if it has to be.
        unsafe {
            match (update.action, result) {
                (UpdateAction::Op(op), _) => {
                    op.accumulate(update.data.as_ptr(), elements, result, atomics);
                }
                (UpdateAction::CompareAndSwap(basic), Some(result)) => {
                    let (compare, new) = update.data.split_at(len);
                    let exchange = if locks {
                        ferry_op::compare_exchange_locked
                    } else {
                        ferry_op::compare_exchange
                    };
                    exchange(basic, compare.as_ptr(), new.as_ptr(), at, result);
                }
                (UpdateAction::CompareAndSwap(_), None) => {}
            }
        }
        if locks {
            self.release(d, WindowLock::Accumulate, true);
        }
        Ok(true)
    }

    /// What a record asks [`Server::update`] for, once elements and operands fit each other.
    fn checked_update<'a>(&self, origin: &Origin, record: Record<'a>) -> Result<CheckedUpdate<'a>> {
        let (elements, data, fetches, call) = match record {
            Record::Accumulate {
                elements,
                data,
                fetches,
                ..
            } => {
                let call = if fetches {
                    "MPI_Get_accumulate"
                } else {
                    "MPI_Accumulate"
                };
                (elements, data, fetches, call)
            }
            Record::CompareAndSwap(elements, values) => {
                (elements, values, true, "MPI_Compare_and_swap")
            }
            _ => return Err(malformed()),
        };
        let found = self.find(origin, elements, call)?;
        let element = element_of(&found.datatype).ok_or_else(malformed)?;
        let (action, operands) = match record {
            Record::Accumulate { op, .. } => {
                let op = Op::predefined(op).ok_or_else(malformed)?;
                op.check_accumulate(&element)?;
                let reads = op.predefined_kind() != Some(ferry_op::Predefined::NoOp);
                (UpdateAction::Op(op), if reads { found.len } else { 0 })
            }
            _ => {
                let basic = found.datatype.basic_kind().filter(|_| found.count == 1);
                let basic = basic.ok_or_else(malformed)?;
                ferry_op::check_compare_and_swap(&found.datatype)?;
                (UpdateAction::CompareAndSwap(basic), 2 * found.len)
            }
        };
        if data.len() != operands {
            return Err(malformed());
        }
        Ok(CheckedUpdate {
            action,
            found,
            data,
            fetches,
        })
    }

    fn pattern(&self, number: u32) -> Pattern {
        Pattern {
            context: self.win.comm.context,
            source: Some(self.rank),
            tag: Tags::one(number),
        }
    }

    /// The data of a put come as a message. They are received even if they belong nowhere.
    fn large_put(
        &mut self,
        d: &mut Device,
        origin: &mut Origin,
        elements: Elements,
        number: u32,
    ) -> Result<()> {
        let found = self.find(origin, elements, "MPI_Put");
        let room = match &found {
            Ok(found) => sink(found.at, found.count, &found.datatype),
            Err(_) => Sink::Bytes {
                ptr: std::ptr::null_mut(),
                cap: 0,
            },
        };
        let pattern = self.pattern(number);
        // SAFETY: the elements are in the window, which stays until all members have flushed.
        let req = unsafe { d.receive_from(self.responses.process, pattern, room) };
        match found {
            Ok(_) => {
                origin.receives.push(req);
                Ok(())
            }
            Err(error) => {
                d.detach(req);
                Err(error)
            }
        }
    }

    /// The data of a get go as a message, out of the window itself: what ends the epoch waits for
    /// that, for this process or the next origin may store there then.
    fn large_get(
        &mut self,
        d: &mut Device,
        origin: &mut Origin,
        elements: Elements,
        number: u32,
    ) -> Result<()> {
        let found = self.find(origin, elements, "MPI_Get")?;
        let key = Key {
            context: self.win.comm.context,
            source: self.win.rank(),
            tag: number,
        };
        // What was answered before must not come later.
        self.responses.send(d);
        let data = source(found.at, found.count, &found.datatype);
        // SAFETY: the elements are in the window, which stays until the origin has the data.
        if let Some(req) = unsafe { d.send(self.responses.process, key, data, SendMode::Standard) }
        {
            // An origin that only gets waits for none of them: they go when the list is full.
            if origin.sends.len() == origin.sends.capacity() {
                all_done(d, &mut origin.sends);
            }
            origin.sends.push(req);
        }
        Ok(())
    }

    /// A part of a type.
    fn learn(&self, origin: &mut Origin, slot: usize, last: bool, bytes: &[u8]) -> Result<()> {
        origin.part.extend_from_slice(bytes);
        if !last {
            return Ok(());
        }
        let datatype = Datatype::decode(&std::mem::take(&mut origin.part))?;
        datatype.commit();
        let known = origin.types.len();
        match origin.types.get_mut(slot) {
            Some(old) => *old = datatype,
            None if slot == known && slot < SLOTS => origin.types.push(datatype),
            None => return Err(unknown_type()),
        }
        Ok(())
    }

    /// The lock, and who takes it: an epoch belongs to its origin, an accumulate to this process.
    fn lock_of(&self, lock: WindowLock) -> (&NodeLock, u32) {
        let block = self.win.own_block();
        match lock {
            WindowLock::Epoch => (&block.lock.0, self.rank),
            WindowLock::Accumulate => (&block.accumulate.0, self.win.rank()),
        }
    }

    /// Takes a lock of this process's window. False: it is not free, and the origin is among those
    /// that are woken when it is. After a millisecond it reserves the next turn, for a while: this
    /// process may not be in MPI when that comes.
    fn take(&self, d: &mut Device, origin: &mut Origin, kind: WindowLock, exclusive: bool) -> bool {
        let (lock, who) = self.lock_of(kind);
        // In virtual time a reservation would depend on how long this host takes. Accumulates are
        // over in a microsecond.
        let patience = match origin.waits_for {
            Some((WindowLock::Epoch, since)) if !d.is_virtual() => {
                Patience::elsewhere_after(since.elapsed())
            }
            _ => Patience::New,
        };
        let attempt = || {
            if exclusive {
                lock.try_exclusive(who, patience)
            } else {
                lock.try_shared(who, patience)
            }
        };
        if origin.waits_for.is_none() {
            if attempt() {
                return true;
            }
            origin.waits_for = Some((kind, Instant::now()));
            lock.begin_wait();
        }
        self.win
            .control
            .wait_set(self.win.member)
            .add(self.win.member);
        if !attempt() {
            return false;
        }
        origin.waits_for = None;
        // The wait set keeps this process: another thread of it may wait.
        if lock.end_wait(who) {
            self.win.wake_waiting(d, self.win.member);
        }
        true
    }

    fn release(&mut self, d: &mut Device, kind: WindowLock, exclusive: bool) {
        self.released = true;
        let (lock, _) = self.lock_of(kind);
        let somebody_waits = if exclusive {
            lock.release_exclusive()
        } else {
            lock.release_shared()
        };
        if !somebody_waits {
            return;
        }
        let next = lock.reserved_by();
        match next.and_then(|rank| self.win.members.member(rank)) {
            Some(next) => self.win.wake(d, next),
            None => self.win.wake_waiting(d, self.win.member),
        }
    }
}

/// Are all these requests complete? Those that are leave the list.
fn all_done(d: &mut Device, requests: &mut Vec<ReqId>) -> bool {
    requests.retain(|&req| {
        let done = d.is_complete(req);
        if done {
            d.take(req);
        }
        !done
    });
    requests.is_empty()
}

#[cold]
fn malformed() -> Error {
    err!(Intern, "a packet of the window makes no sense")
}

#[cold]
fn unknown_type() -> Error {
    err!(
        Intern,
        "a packet of the window has a datatype that is not known"
    )
}
