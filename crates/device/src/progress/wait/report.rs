//! The report of a wait: the call in which a rank sleeps, and what for, on its status page. The
//! launcher's hang report shows it.

use crate::progress::device::Device;
use crate::progress::lock;
use crate::progress::wait::waiting_for::WaitingFor;
use ferry_job::{RankStatus, Wait};
use std::sync::atomic::{AtomicU32, Ordering};

/// The MPI function that is being executed: its index in the description of all functions, plus 1;
/// 0 for none. The abi layer writes it on entry; a wait reads it when it begins. With several
/// threads in MPI it is the function of the last one to enter.
pub static CURRENT_CALL: AtomicU32 = AtomicU32::new(0);

/// The report of one call's wait to the launcher.
pub(crate) struct WaitReport {
    /// The call's number, from before another thread wrote its own: see [`CURRENT_CALL`].
    call: u32,
    /// The wait is reported. It is reported again, without details, after the thread was woken for
    /// nothing.
    reported: bool,
    /// The report, where several threads may be in MPI: they share one page.
    wait: Option<Wait>,
}

impl WaitReport {
    /// Before anything is reported. Called when the wait begins.
    pub fn new() -> WaitReport {
        WaitReport {
            call: CURRENT_CALL.load(Ordering::Relaxed),
            reported: false,
            wait: None,
        }
    }

    /// Something has moved: the wait begins anew.
    pub fn restart(&mut self) {
        (self.reported, self.wait) = (false, None);
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The thread is about to sleep.
    pub fn begin_sleep(&mut self, device: &mut Device, what: &WaitingFor<'_>) {
        device.publish_counts();
        let status = device.status;
        let again = std::mem::replace(&mut self.reported, true);
        if let Some(wait) = &self.wait {
            status.show(wait);
        } else if again {
            status.asleep.store(1, Ordering::Release);
        } else {
            report_wait(device, what, self.call);
        }
        if lock::is_multiple() {
            let wait = *self.wait.get_or_insert_with(|| status.shown());
            device.sleepers.0.push((self.key(), wait));
        }
    }

    /// The thread is awake again.
    pub fn end_sleep(&self, device: &mut Device) {
        if lock::is_multiple() {
            let key = self.key();
            device.sleepers.0.retain(|&(of, _)| of != key);
        }
        match device.sleepers.0.last() {
            Some((_, wait)) => device.status.show(wait),
            None => device.status.asleep.store(0, Ordering::Relaxed),
        }
    }
}

/// Tells the launcher what this rank waits for in this call.
fn report_wait(device: &mut Device, what: &WaitingFor<'_>, call: u32) {
    let status = device.status;
    status.call.store(call, Ordering::Relaxed);
    status.context.store(what.context.0, Ordering::Relaxed);
    status.peer.store(what.peer, Ordering::Relaxed);
    status.tag.store(what.tag, Ordering::Relaxed);
    // An earlier wait may have left other values.
    status.collective.store(0, Ordering::Relaxed);
    status.root.store(-1, Ordering::Relaxed);
    status.peer_job.store(0, Ordering::Relaxed);
    status.comm_size.store(0, Ordering::Relaxed);
    status.comm_name.clear();
    status.operation.clear();
    status.awaited_count.store(0, Ordering::Relaxed);
    if let Some(details) = what.details {
        details.describe(device, status);
    }
    status.since.store(RankStatus::now(), Ordering::Relaxed);
    status.asleep.store(1, Ordering::Release);
}
