//! What the target's service does for one origin: each record is checked, done, and answered.

use super::answers::Answers;
use super::card::charge;
use super::packets::{Answer, BYTES, Elements, Refused, Request as Record, SLOTS};
use super::service::on_complete;
use crate::buffer::{sink, source};
use crate::device::{Device, Key, NodeLock, Patience, Pattern, ReqId, SendMode, Sink, Tags};
use crate::win::accumulate::element_of;
use crate::win::{Flavor, Win};
use crate::{Datatype, Error, Op, Result, err};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The lock that an origin waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Epoch,
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
    pub waits_for: Option<(Which, Instant)>,
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
    pub answers: Answers<'a>,
    /// The origin's.
    pub rank: u32,
    /// A lock was released.
    pub released: bool,
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
                if !self.take(d, origin, Which::Epoch, exclusive) {
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
                    self.release(d, Which::Epoch, true);
                } else if let Some(left) = origin.shared.checked_sub(1) {
                    origin.shared = left;
                    self.release(d, Which::Epoch, false);
                }
                self.answers.push(d, Answer::Acknowledged(number));
                (Refused::Silent, Ok(()))
            }
            Record::Flush(number) => {
                // The origin itself waits for the data of its gets.
                if !all_done(d, &mut origin.receives) {
                    return false;
                }
                self.answers.push(d, Answer::Acknowledged(number));
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
            self.answers.refuse(d, refused, &error);
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
        if !self.answers.make_room(d, found.len) {
            return Err(malformed());
        }
        charge(d, (found.at, found.count, &found.datatype), false);
        let out = &mut self.answers.packet;
        Answer::data_head(out, found.len);
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
        let op = match record {
            Record::Accumulate { op, .. } => Some(Op::predefined(op).ok_or_else(malformed)?),
            _ => None,
        };
        let operands = match op {
            Some(op) if op.predefined_kind() == Some(ferry_op::Predefined::NoOp) => 0,
            Some(_) => found.len,
            None => 2 * found.len,
        };
        if data.len() != operands {
            return Err(malformed());
        }
        if fetches && !self.answers.make_room(d, found.len) {
            return Err(malformed());
        }
        let Some(element) = element_of(&found.datatype) else {
            return Err(malformed());
        };
        let single = found.datatype.basic_kind();
        match (op, single) {
            (Some(op), _) => op.check_accumulate(&element)?,
            (None, Some(_)) if found.count == 1 => {
                ferry_op::check_compare_and_swap(&found.datatype)?;
            }
            (None, _) => return Err(malformed()),
        }
        let atomics = self
            .win
            .targets
            .known(self.win.rank())
            .is_some_and(|own| own.atomics);
        let elements = (found.at, found.count, &*found.datatype);
        let locks = !atomics || Op::needs_lock((found.at.cast_const(), elements.1, elements.2));
        if locks && !self.take(d, origin, Which::Accumulate, true) {
            return Ok(false);
        }
        charge(d, elements, false);
        charge(d, elements, true);
        let mut result = None;
        if fetches {
            let out = &mut self.answers.packet;
            Answer::data_head(out, found.len);
            let at = out.len();
            out.resize(at + found.len, 0);
            result = Some(out[at..].as_mut_ptr());
        }
        // SAFETY: the elements are in the window and of one type, operands and result as long as
        // they need, and the lock is taken if it has to be.
        unsafe {
            match (op, single, result) {
                (Some(op), ..) => op.accumulate(data.as_ptr(), elements, result, atomics),
                (None, Some(basic), Some(result)) => {
                    let (compare, new) = data.split_at(found.len);
                    let exchange = if locks {
                        ferry_op::compare_exchange_locked
                    } else {
                        ferry_op::compare_exchange
                    };
                    exchange(basic, compare.as_ptr(), new.as_ptr(), found.at, result);
                }
                _ => {}
            }
        }
        if locks {
            self.release(d, Which::Accumulate, true);
        }
        Ok(true)
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
        let req = unsafe { d.receive_from(self.answers.process, pattern, room) };
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
        self.answers.send(d);
        let data = source(found.at, found.count, &found.datatype);
        // SAFETY: the elements are in the window, which stays until the origin has the data.
        if let Some(req) = unsafe { d.send(self.answers.process, key, data, SendMode::Standard) } {
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

    fn lock_of(&self, which: Which) -> (&NodeLock, u32) {
        let block = self.win.own_block();
        match which {
            Which::Epoch => (&block.lock.0, self.rank),
            Which::Accumulate => (&block.accumulate.0, self.win.rank()),
        }
    }

    /// Takes a lock of this process's window. False: it is not free, and the origin is among those
    /// that are woken when it is. After a millisecond it reserves the next turn, for a while: this
    /// process may not be in MPI when that comes.
    fn take(&self, d: &mut Device, origin: &mut Origin, which: Which, exclusive: bool) -> bool {
        let (lock, who) = self.lock_of(which);
        // In virtual time a reservation would depend on how long this host takes. Accumulates are
        // over in a microsecond.
        let patience = match origin.waits_for {
            Some((Which::Epoch, since)) if !d.is_virtual() => {
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
            origin.waits_for = Some((which, Instant::now()));
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

    fn release(&mut self, d: &mut Device, which: Which, exclusive: bool) {
        self.released = true;
        let (lock, _) = self.lock_of(which);
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
