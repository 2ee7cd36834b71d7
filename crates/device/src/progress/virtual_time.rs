//! On a modelled machine: waiting in its time, taking part and leaving, and what a wire that writes
//! into memory is told beforehand.

use crate::base::buffer::Sink;
use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::request::{Operation, ReqId};
use crate::counters::{COUNTERS, TRANSPORT_NAMES};
use crate::device::Device;
use crate::progress::lock::{self, DeviceGuard};
use ferry_transport::{Expected, model};

/// Waits until the machine has something for this rank, or another thread of it has.
pub(crate) fn rest(mut guard: DeviceGuard) -> DeviceGuard {
    if lock::fall_asleep() == 1 {
        guard.calm();
    }
    COUNTERS.sleeps.add(1);
    let began = model::clock_nanos();
    if let Some((word, seen)) = guard.wires.idle() {
        drop(guard);
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
        self.wires.is_virtual()
    }

    /// The process has done with MPI, or begins again: on a modelled machine nobody waits for one
    /// that has.
    pub fn set_finalized(&mut self, left: bool) {
        self.left = left;
    }

    /// The rank leaves: what its program has sent is told, for the report.
    pub(crate) fn tell_sent(&mut self) {
        if let Some(way) = TRANSPORT_NAMES.iter().position(|w| *w == model::NAME) {
            let sent = &COUNTERS.sent[way];
            self.wires
                .note_sent(sent.messages.value(), sent.bytes.value());
        }
    }

    /// Tells the wire what the next message is about, if it is about a large one.
    #[inline]
    pub(crate) fn prepare(&mut self, to: ProcId, message: u8, head: &Header) {
        match message {
            header::RTS => self.prepare_announcement(to, head),
            header::CTS | header::CTS_PREPOSTED => self.prepare_answer(to, head),
            _ => {}
        }
    }

    fn prepare_announcement(&mut self, to: ProcId, head: &Header) {
        let mut fields = Fields(head.bytes());
        if let (Some(_), Some(len)) = (fields.key(), fields.u64()) {
            self.wires.before_rts(to, len as usize);
        }
        self.prepare_on_card(head);
    }

    fn prepare_answer(&mut self, to: ProcId, head: &Header) {
        let mut fields = Fields(head.bytes());
        let (Some(_), Some(mine)) = (fields.u32(), fields.u32()) else {
            return;
        };
        let req = ReqId(mine);
        let Some(len) = self.engine.requests.envelope_of(req).map(|e| e.len) else {
            return;
        };
        let address = match self.engine.requests.operation(req) {
            Some(Operation::Receive {
                sink: Sink::Bytes { ptr, cap },
                ..
            }) if *cap as u64 >= len => Some(ptr.addr()),
            _ => None,
        };
        let head = Header::new().u32(mine);
        let what = Expected {
            address,
            len: len as usize,
            message: header::DATA,
            head: head.bytes(),
        };
        self.wires.before_cts(to, &what);
    }
}
