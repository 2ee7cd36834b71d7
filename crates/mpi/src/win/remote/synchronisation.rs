//! The origin's synchronisation with its targets: flushes, locks, MPI_Win_complete.

use super::notifications::{self, Notice};
use super::packets::Request as Record;
use super::pending::{Pending, lock};
use super::{card, service};
use crate::Result;
use crate::device::{self, Device};
use crate::win::Win;
use crate::win::target::{Reach, Target};
use ferry_job::TAG_WINDOW_FLUSH;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Makes progress until `done`, which is first called at once. If the target is lost, everything
/// under way to it ends first, with an error.
fn wait(
    win: &Win,
    target: &Target,
    mut done: impl FnMut(&mut Device, &mut Pending) -> bool,
) -> Result<()> {
    wait_only(win, target, &mut done);
    lock(&target.pending).take_error()
}

/// As [`wait`]; errors stay for the next synchronisation.
fn wait_only(win: &Win, target: &Target, mut done: impl FnMut(&mut Device, &mut Pending) -> bool) {
    let what = win.waiting_for(target.process, TAG_WINDOW_FLUSH);
    device::wait_until(&what, |d| {
        let mut pending = lock(&target.pending);
        pending.settle(d, target);
        let ended = done(d, &mut pending);
        if d.is_lost(target.process) {
            pending.settle(d, target);
            return true;
        }
        ended
    });
}

/// Asks for an acknowledgement. Returns its number; 0 if none can be had, for nothing was sent.
fn ask(
    win: &Win,
    target: &Target,
    d: &mut Device,
    pending: &mut Pending,
    request: fn(u64) -> Record<'static>,
) -> u64 {
    if pending.prepare(target, d).is_err() {
        return 0;
    }
    pending.ask(win, target, d, request)
}

/// Sends a record that asks for an acknowledgement, and blocks until that has come and all buffers
/// are free.
fn ask_and_wait(win: &Win, target: &Target, request: fn(u64) -> Record<'static>) -> Result<()> {
    let mut number = None;
    wait(win, target, |d, pending| {
        let number = *number.get_or_insert_with(|| ask(win, target, d, pending, request));
        pending.has_acknowledged(number) && pending.is_locally_complete()
    })
}

/// Blocks until the target has done all operations.
pub(in crate::win) fn flush(win: &Win, target: &Target) -> Result<()> {
    let by_card = flush_by_card(win, target)?;
    {
        let mut pending = lock(&target.pending);
        if by_card || !pending.is_open() {
            return pending.take_error();
        }
    }
    ask_and_wait(win, target, Record::Flush)
}

/// Flushes a target by the card if only the card has put something there. Returns false if there
/// may be more to flush.
fn flush_by_card(win: &Win, target: &Target) -> Result<bool> {
    let by_card = lock(&target.pending).is_open_by_card_alone();
    Ok(by_card && card::flush(win, target)?)
}

/// The targets that are reached by packets and have been used.
fn remote_targets(win: &Win) -> impl Iterator<Item = &Target> {
    win.targets.iter().filter(|t| t.reach == Reach::Remote)
}

/// As [`flush`], for all targets.
pub(in crate::win) fn flush_all(win: &Win) -> Result<()> {
    if remote_targets(win).next().is_none() {
        return Ok(());
    }
    let mut by_packets = Vec::new();
    for target in remote_targets(win) {
        let pending = lock(&target.pending);
        if pending.is_open() && !(win.card.flush && pending.is_open_by_card_alone()) {
            by_packets.push(target);
        }
    }
    let asked = ask_all(win, &by_packets, Record::Flush);
    let mut result = Ok(());
    for target in remote_targets(win) {
        result = result.and(flush_by_card(win, target).map(drop));
    }
    result = result.and(await_all(win, &by_packets, &asked));
    for target in remote_targets(win) {
        result = result.and_then(|()| lock(&target.pending).take_error());
    }
    result
}

/// Asks targets for acknowledgements. Returns their numbers.
fn ask_all(win: &Win, targets: &[&Target], request: fn(u64) -> Record<'static>) -> Vec<u64> {
    if targets.is_empty() {
        return Vec::new();
    }
    let mut d = device::device();
    let asked = targets.iter().map(|target| {
        let mut pending = lock(&target.pending);
        ask(win, target, &mut d, &mut pending, request)
    });
    let asked = asked.collect();
    d.drop_within_call();
    asked
}

/// Blocks until targets have sent the acknowledgements of these numbers, and buffers are free.
fn await_all(win: &Win, targets: &[&Target], asked: &[u64]) -> Result<()> {
    let mut result = Ok(());
    for (target, &number) in targets.iter().zip(asked) {
        let ended = wait(win, target, |_, pending| {
            pending.has_acknowledged(number) && pending.is_locally_complete()
        });
        result = result.and(ended);
    }
    result
}

/// Sends what has not been sent, and blocks until the origin's buffers can be used again. A program
/// may wait, without another call for this target, for what its operations change there.
pub(in crate::win) fn flush_local(win: &Win, target: &Target) -> Result<()> {
    {
        let mut pending = lock(&target.pending);
        if pending.is_locally_complete() && pending.has_sent_all() {
            return pending.take_error();
        }
    }
    wait(win, target, |d, pending| {
        pending.send(win, target, d);
        pending.is_locally_complete()
    })
}

/// As [`flush_local`], for all targets.
pub(in crate::win) fn flush_local_all(win: &Win) -> Result<()> {
    {
        let d = &mut *device::device();
        for target in remote_targets(win) {
            lock(&target.pending).send(win, target, d);
        }
    }
    let mut result = Ok(());
    for target in remote_targets(win) {
        result = result.and(flush_local(win, target));
    }
    result
}

/// Adds a record without data, and sends the packet if `at_once`.
fn add(win: &Win, target: &Target, record: Record<'_>, at_once: bool) -> Result<()> {
    let d = &mut *device::device();
    let mut pending = lock(&target.pending);
    pending.prepare(target, d)?;
    pending.make_room(win, target, d, 0);
    record.put(pending.record(win));
    if at_once {
        pending.send(win, target, d);
    }
    Ok(())
}

/// A lock that was asked for.
struct AskedLock {
    /// By which thread ([`this_thread`]).
    thread: usize,
    /// Of the window with this context, its target with this rank.
    context: u64,
    rank: u32,
}

/// Locks that were asked for, and may not have been given.
static ASKED_LOCKS: Mutex<Vec<AskedLock>> = Mutex::new(Vec::new());
/// How many they are.
static ASKED_LOCKS_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The thread that has called MPI_Win_lock for targets on other nodes. 0: none.
static LOCKING_THREAD: AtomicUsize = AtomicUsize::new(0);
/// Several threads have.
static SEVERAL_LOCK: AtomicBool = AtomicBool::new(false);

/// A number of this thread, not 0: an address of its own.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Asks for the lock of a target on another node. Does not block: later operations wait for it at
/// the target.
pub(in crate::win) fn lock_target(win: &Win, target: &Target, exclusive: bool) -> Result<()> {
    add(win, target, Record::Lock { exclusive }, false)?;
    let is_new = lock(&target.pending).on_lock_asked();
    if !is_new && !device::is_multiple() {
        return Ok(());
    }
    let (thread, context, rank) = (this_thread(), win.comm.context.0, target.rank);
    let mut asked = lock(&ASKED_LOCKS);
    // It may be listed for another thread that has had it.
    asked.retain(|one| is_new || (one.context, one.rank) != (context, rank));
    asked.push(AskedLock {
        thread,
        context,
        rank,
    });
    ASKED_LOCKS_COUNT.store(asked.len(), Ordering::Relaxed);
    Ok(())
}

/// Blocks until all locks that were asked for are held. Called before another one is taken:
/// programs avoid deadlock by the order of their locks, so they have to be taken in that order.
///
/// Threads that are in MPI at the same time have no order that can be seen here. One does not wait
/// for the locks of others, which may be held by ranks that wait for its own ([`await_own_lock`]).
#[inline]
pub(in crate::win) fn await_locks() {
    if ASKED_LOCKS_COUNT.load(Ordering::Relaxed) > 0 {
        await_asked_locks();
    }
}

#[cold]
fn await_asked_locks() {
    let thread = device::is_multiple().then(this_thread);
    let asked: Vec<AskedLock> = {
        let mut all = lock(&ASKED_LOCKS);
        let own = |one: &mut AskedLock| thread.is_none_or(|thread| thread == one.thread);
        let asked = all.extract_if(.., own).collect();
        ASKED_LOCKS_COUNT.store(all.len(), Ordering::Relaxed);
        asked
    };
    for AskedLock { context, rank, .. } in asked {
        let Some(win) = service::window(context) else {
            continue;
        };
        let Some(target) = win.targets.known(rank) else {
            continue;
        };
        if !lock(&target.pending).unlist() {
            continue;
        }
        await_given(&win, target);
    }
}

/// Behind MPI_Win_lock. Blocks until the lock is held, if several threads take locks: another of
/// them may take the next one, once this one has told it that it has this one.
pub(in crate::win) fn await_own_lock(win: &Win, target: &Target) {
    if target.member.is_some() || !device::is_multiple() {
        return;
    }
    let (thread, none) = (this_thread(), 0);
    let first = LOCKING_THREAD.compare_exchange(none, thread, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|other| other != thread) {
        SEVERAL_LOCK.store(true, Ordering::Relaxed);
    }
    if SEVERAL_LOCK.load(Ordering::Relaxed) {
        await_given(win, target);
    }
}

/// Blocks until the target has given the lock that was asked for.
fn await_given(win: &Win, target: &Target) {
    let mut number = None;
    wait_only(win, target, |d, pending| {
        let ask = || ask(win, target, d, pending, Record::Flush);
        let number = *number.get_or_insert_with(ask);
        pending.has_acknowledged(number)
    });
}

/// Bytes of data that one record to the target can have.
pub(super) fn inline_max(target: &Target) -> Result<usize> {
    let d = &mut *device::device();
    let mut pending = lock(&target.pending);
    pending.prepare(target, d)?;
    Ok(pending.inline_max())
}

/// Blocks until the target has given its lock, if it was asked for it and an operation of `len`
/// bytes does not fit the packet that asks. Returns whether it has given it.
pub(super) fn await_lock(win: &Win, target: &Target, len: usize) -> Result<bool> {
    if lock(&target.pending).has_lock() {
        return Ok(true);
    }
    if len <= inline_max(target)? {
        return Ok(false);
    }
    await_given(win, target);
    Ok(true)
}

/// Releases the lock. Blocks until the target has done all operations and released it.
pub(in crate::win) fn unlock(win: &Win, target: &Target) -> Result<()> {
    ask_and_wait(win, target, Record::Unlock)
}

/// As [`unlock`], for several targets at once.
pub(in crate::win) fn unlock_all(win: &Win, targets: &[&Target]) -> Result<()> {
    let asked = ask_all(win, targets, Record::Unlock);
    await_all(win, targets, &asked)
}

/// Tells a target that is reached by packets or on another node that this origin has completed
/// (MPI_Win_complete), once all operations before it are done there. Does not block.
pub(in crate::win) fn complete(win: &Win, target: &Target) -> Result<()> {
    let by_card = !lock(&target.pending).is_open_by_packets();
    let notified = by_card && {
        let d = &mut *device::device();
        notifications::notify(win, d, target.process, Notice::Complete)
    };
    if notified {
        return Ok(());
    }
    add(win, target, Record::Complete, true)
}
