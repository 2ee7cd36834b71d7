//! Sleeping: a waiting thread sleeps on the process's wakeup word, until virtual time goes on, or
//! while the progress thread works.

use crate::base::counters::COUNTERS;
use crate::progress::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use crate::progress::wait::report::WaitReport;
use crate::progress::wait::waiting_for::WaitingFor;
use ferry_transport::Sleeper;

/// Sleeps until the wakeup word is signalled, unless there was a signal meanwhile. Returns whether
/// `done` has returned true. It is not called again then.
pub(crate) fn sleep(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    report: &mut WaitReport,
) -> (DeviceGuard, bool) {
    if guard.worker.transports.is_virtual() {
        report.begin_sleep(&mut guard, what);
        guard = crate::progress::virtual_time::sleep(guard);
        report.end_sleep(&mut guard);
        return (guard, false);
    }
    let wakeup = guard.worker.transports.wakeup();
    let seen = wakeup.epoch();
    guard.worker.withdraw_announcements();
    guard.worker.engine.path_selector.hold_no_more();
    guard.worker.transports.arm(Sleeper::Program);
    guard.about_to_sleep = true;
    // What came before the word was armed has not signalled it.
    let moved = guard.progress();
    let ended = done(&mut guard);
    guard.about_to_sleep = false;
    if moved || ended {
        if lock::sleepers() == 0 {
            guard.worker.transports.disarm();
        }
        return (guard, ended);
    }
    fall_asleep(&mut guard, what, report);
    let watches = wakeup.has_descriptors() && lock::take_watch();
    let at_most = guard.sleep_max.take();
    guard.worker.transports.set_off_core(true);
    drop(guard);
    if watches {
        wakeup.wait_descriptors(at_most);
    } else {
        wakeup.wait(Sleeper::Program, seen, at_most);
    }
    let mut guard = lock::device();
    guard.worker.transports.set_off_core(false);
    report.end_sleep(&mut guard);
    if watches {
        lock::end_watch();
    }
    if lock::wake_up() == 0 {
        guard.worker.transports.disarm();
    } else if watches {
        // What came may be for another thread, and another thread must watch.
        wakeup.signal(Sleeper::Program, false);
    }
    (guard, false)
}

/// The thread is about to sleep: reports it, and tells if another thread sleeps that must not be in
/// MPI.
fn fall_asleep(guard: &mut DeviceGuard, what: &WaitingFor<'_>, report: &mut WaitReport) {
    report.begin_sleep(guard, what);
    match lock::fall_asleep() {
        1 => guard.ignore_activity(),
        _ => lock::tell_of_several_threads(),
    }
    COUNTERS.sleeps.add(1);
}

/// Sleeps while the progress thread makes progress, if that has a core of its own. Returns whether
/// `done` has returned true. It is not called again then. Otherwise the progress thread needs the
/// program, or there is none to rely on.
pub(crate) fn rely_on_thread(
    mut guard: DeviceGuard,
    what: &WaitingFor<'_>,
    done: &mut dyn FnMut(&mut Device) -> bool,
    report: &mut WaitReport,
) -> (DeviceGuard, bool) {
    let core = guard.core_sharing.core;
    if !guard.rely_on_thread(core) {
        return (guard, false);
    }
    guard.stop_serving();
    let wakeup = guard.worker.transports.wakeup();
    let mut ended = false;
    report.restart();
    while !ended && !guard.must_make_progress() {
        let seen = wakeup.epoch();
        fall_asleep(&mut guard, what, report);
        // From here on the wakeup word is the progress thread's.
        drop(guard);
        wakeup.wait(Sleeper::Program, seen, None);
        guard = lock::device();
        report.end_sleep(&mut guard);
        lock::wake_up();
        ended = done(&mut guard);
    }
    guard.end_reliance();
    (guard, ended)
}
