//! Device memory: buffers in the memory of a modelled card. The card moves their bytes itself. The
//! processor reaches them through the card's windows, and its access is charged.

use crate::base::buffer::{Layout, Sink, Source};
use crate::base::header::{Fields, Header};
use crate::base::key::ProcId;
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::single_copy::{PendingRead, SingleCopyTask};
use std::ops::Range;

/// Stands for the address in the RTS of a message that lies in the memory of the sender's card. The
/// transport knows its runs.
pub(crate) const ON_CARD: u64 = 1;
/// Maximum number of memory runs that a layout returns at a time. A choice.
const RUNS_MAX: usize = 256;

/// Memory runs: address, bytes.
type Runs = Vec<(usize, usize)>;

/// What this process knows of its modelled card.
#[derive(Default)]
pub(crate) struct DeviceMemory {
    /// The addresses of the card's memory in this process. Empty if there is no card.
    range: Range<usize>,
    /// Runs that the processor has written and that have not been charged.
    uncharged: Vec<Runs>,
}

impl DeviceMemory {
    /// Is there a card with memory?
    #[inline]
    pub fn is_used(&self) -> bool {
        !self.range.is_empty()
    }

    /// Sets the addresses of the card's memory.
    pub fn set_range(&mut self, range: Range<usize>) {
        self.range = range;
    }

    /// The addresses of the card's memory.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// The runs of the first `len` packed bytes, if all of them lie in `range`.
fn layout_runs(view: &dyn Layout, len: u64, range: &Range<usize>) -> Option<Runs> {
    let mut out = Runs::new();
    // The first call asks for one run: that is enough to see that a buffer lies elsewhere.
    let mut some = Vec::with_capacity(1);
    let mut offset = 0;
    while offset < len {
        some.clear();
        let covered = view.runs(offset, &mut some).min(len - offset);
        if covered == 0 {
            return None;
        }
        let mut left = covered as usize;
        for &(ptr, bytes) in &some {
            let bytes = bytes.min(left);
            left -= bytes;
            if bytes > 0 {
                out.push(inside((ptr.addr(), bytes), range)?);
            }
        }
        offset += covered;
        some = Vec::with_capacity(RUNS_MAX);
    }
    Some(out)
}

fn inside(run: (usize, usize), range: &Range<usize>) -> Option<(usize, usize)> {
    let end = run.0.checked_add(run.1)?;
    (range.start <= run.0 && end <= range.end).then_some(run)
}

/// The runs of a message, if all of it lies on the card.
fn source_runs(source: &Source, range: &Range<usize>) -> Option<Runs> {
    match source {
        Source::Bytes { ptr, len } if *len > 0 => Some(vec![inside((ptr.addr(), *len), range)?]),
        Source::Layout { view, len } if *len > 0 => layout_runs(&**view, *len as u64, range),
        _ => None,
    }
}

/// The runs of the first `len` bytes of a receive's buffer, if all of them lie on the card.
fn sink_runs(sink: &Sink, len: u64, range: &Range<usize>) -> Option<Runs> {
    let len = len.min(sink.capacity() as u64);
    match sink {
        Sink::Bytes { ptr, .. } if len > 0 => {
            Some(vec![inside((ptr.addr(), len as usize), range)?])
        }
        Sink::Layout { view, .. } if len > 0 => layout_runs(&**view, len, range),
        _ => None,
    }
}

impl Engine {
    /// Charges the processor's access, if it has stored `bytes` bytes of a receive on the card.
    #[inline]
    pub fn charge_device_memory(&mut self, req: ReqId, bytes: u64) {
        if !self.device_memory.range.is_empty() {
            self.charge_card(req, bytes);
        }
    }

    #[cold]
    fn charge_card(&mut self, req: ReqId, bytes: u64) {
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req)
            && let Some(runs) = sink_runs(sink, bytes, &self.device_memory.range)
        {
            self.device_memory.uncharged.push(runs);
        }
    }

    /// Stores bytes of a message that the card brings into ordinary memory.
    pub fn on_card_part(&mut self, from: ProcId, number: u32, at: usize, bytes: &[u8]) {
        let Some(req) = self.single_copies.request_of(from, number) else {
            self.malformed += 1;
            return;
        };
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion, which is when all bytes
            // have come.
            unsafe { sink.write(at, bytes) };
        }
    }
}

impl Worker {
    /// Returns whether the card sends this message from its own memory. If it lies there and the
    /// processor must send it, the processor's access is charged.
    #[inline]
    pub fn goes_by_card(&mut self, to: ProcId, source: &Source) -> bool {
        !self.engine.device_memory.range.is_empty() && self.is_for_card(to, source)
    }

    #[cold]
    fn is_for_card(&mut self, to: ProcId, source: &Source) -> bool {
        if to == self.me {
            return false;
        }
        let runs = source_runs(source, &self.engine.device_memory.range);
        let (Some(runs), Some(memory)) = (runs, self.transports.card_memory()) else {
            return false;
        };
        if source.len() > memory.eager_max() && memory.describes(&runs) {
            return true;
        }
        memory.charge_reads(&runs);
        false
    }

    /// Tells the transport the runs of the message whose RTS is sent next.
    pub fn before_card_rts(&mut self, head: &Header) {
        let mut fields = Fields(head.bytes());
        let (Some(_), Some(_), Some(ON_CARD), Some(req)) =
            (fields.key(), fields.u64(), fields.u64(), fields.u32())
        else {
            return;
        };
        let Some(Operation::SendLarge { source, .. }) = self.engine.requests.operation(ReqId(req))
        else {
            return;
        };
        if let Some(runs) = source_runs(source, &self.engine.device_memory.range)
            && let Some(memory) = self.transports.card_memory()
        {
            memory.announces_runs(&runs);
        }
    }

    /// Has the card bring an announced message that has matched. If it cannot, asks for the bytes
    /// by CTS.
    pub fn read_by_card(&mut self, task: &SingleCopyTask) {
        let rts = &task.rts;
        let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(rts.req) else {
            return;
        };
        let into = sink_runs(sink, rts.len, &self.engine.device_memory.range);
        let fits = rts.len <= sink.capacity() as u64;
        let memory = self.transports.card_memory().filter(|_| fits);
        let begun =
            memory.and_then(|m| m.start_read(rts.from, rts.request, rts.len, into.as_deref()));
        match begun {
            Some(number) => {
                let read = PendingRead {
                    req: rts.req,
                    from: rts.from,
                    len: rts.len,
                    request: rts.request,
                    sample: None,
                };
                self.engine.single_copies.begin_read(number, read);
            }
            None => self
                .engine
                .queue_cts(rts.req, rts.from, rts.request, None, false),
        }
    }

    /// Charges the runs that the processor has written into the card's memory.
    #[inline]
    pub fn settle_device_memory(&mut self) {
        if !self.engine.device_memory.uncharged.is_empty() {
            self.settle_card();
        }
    }

    #[cold]
    fn settle_card(&mut self) {
        for runs in std::mem::take(&mut self.engine.device_memory.uncharged) {
            if let Some(memory) = self.transports.card_memory() {
                memory.charge_writes(&runs);
            }
        }
    }
}
