//! Virtual time: waiting, and leaving the job, on a modelled machine.

use crate::base::counters::{COUNTERS, TRANSPORT_NAMES};
use crate::progress::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use ferry_transport::model;

/// Sleeps until the machine, or another thread of this rank, has something for it.
pub(crate) fn sleep(mut guard: DeviceGuard) -> DeviceGuard {
    if lock::fall_asleep() == 1 {
        guard.ignore_activity();
    }
    COUNTERS.sleeps.add(1);
    let began = model::clock_nanos();
    if let Some((word, seen)) = guard.worker.transports.idle() {
        guard.drop_within_call();
        model::sleep(word, seen);
        guard = lock::device();
    }
    COUNTERS.idle_ns.add(model::clock_nanos() - began);
    lock::wake_up();
    guard
}

impl Device {
    /// Is the job on a modelled machine?
    pub fn is_virtual(&self) -> bool {
        self.worker.transports.is_virtual()
    }

    /// The process has called MPI_Finalize, or begins a new session. On a modelled machine
    /// no process waits for one that has finished.
    pub fn set_finalized(&mut self, finalized: bool) {
        self.finalized = finalized;
    }

    /// The rank leaves: reports what its program has sent.
    pub(crate) fn report_sent(&mut self) {
        if let Some(transport) = TRANSPORT_NAMES.iter().position(|t| *t == model::NAME) {
            let sent = &COUNTERS.sent[transport];
            self.worker
                .transports
                .note_sent(sent.messages.value(), sent.bytes.value());
        }
    }
}
