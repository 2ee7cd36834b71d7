//! Buffers in the memory of a modelled card: the card brings their bytes, and the processor that
//! needs them goes through its windows.

use crate::base::buffer::{Layout, Sink, Source};
use crate::base::header::{Fields, Header};
use crate::base::key::ProcId;
use crate::base::request::{Operation, ReqId};
use crate::device::Device;
use crate::protocol::engine::{Engine, Fetching, SingleCopyTask};
use std::ops::Range;

/// In an announcement's head, in the place of an address: the message lies on the sender's card,
/// and the wire knows where.
pub(crate) const ON_CARD: u64 = 1;
/// Runs asked for at a time.
const RUNS: usize = 256;

/// Memory runs: address, bytes.
pub(crate) type Runs = Vec<(usize, usize)>;

/// The runs of the first `len` packed bytes, if all of them lie in `range`.
fn layout_runs(view: &dyn Layout, len: u64, range: &Range<usize>) -> Option<Runs> {
    let mut out = Runs::new();
    // A buffer that lies elsewhere is seen at its first run.
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
        some = Vec::with_capacity(RUNS);
    }
    Some(out)
}

fn inside(run: (usize, usize), range: &Range<usize>) -> Option<(usize, usize)> {
    let end = run.0.checked_add(run.1)?;
    (range.start <= run.0 && end <= range.end).then_some(run)
}

/// Where a message lies on the card, if all of it does.
fn source_runs(source: &Source, range: &Range<usize>) -> Option<Runs> {
    match source {
        Source::Bytes { ptr, len } if *len > 0 => Some(vec![inside((ptr.addr(), *len), range)?]),
        Source::Layout { view, len } if *len > 0 => layout_runs(&**view, *len as u64, range),
        _ => None,
    }
}

/// Where so many bytes of a message are to lie on the card, if all of them are.
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
    /// So many bytes of a receive have come by the processor: if they lie on the card, what writing
    /// them there costs is to be charged.
    #[inline]
    pub(crate) fn note_landed(&mut self, req: ReqId, bytes: u64) {
        if !self.card.is_empty() {
            self.note_landed_on_card(req, bytes);
        }
    }

    #[cold]
    fn note_landed_on_card(&mut self, req: ReqId, bytes: u64) {
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req)
            && let Some(runs) = sink_runs(sink, bytes, &self.card)
        {
            self.landed.push(runs);
        }
    }

    /// Bytes of a message that the card is bringing, for ordinary memory.
    pub(crate) fn fetched_part(&mut self, from: ProcId, number: u32, at: usize, bytes: &[u8]) {
        let is = |(n, fetch): &&(u32, Fetching)| *n == number && fetch.from == from;
        let Some(req) = self.fetching.iter().find(is).map(|(_, fetch)| fetch.req) else {
            self.malformed += 1;
            return;
        };
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion, which is when all has
            // come.
            unsafe { sink.write(at, bytes) };
        }
    }
}

impl Device {
    /// Memory for the program on this process's card, at a multiple of `alignment` (a power of
    /// two). `None`: there is no such memory, or none left.
    pub fn allocate_on_card(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8> {
        self.wires.card_memory()?.allocate(bytes, alignment)
    }

    /// Gives it back. False: this is no such memory.
    pub fn release_on_card(&mut self, address: usize) -> bool {
        let memory = self.wires.card_memory();
        memory.is_some_and(|m| m.release(address))
    }

    /// A message is sent that may lie on the card: is it to be announced so? If it is not, and
    /// does, its bytes are charged.
    #[inline]
    pub(crate) fn goes_by_card(&mut self, to: ProcId, source: &Source) -> bool {
        !self.engine.card.is_empty() && self.is_for_card(to, source)
    }

    #[cold]
    fn is_for_card(&mut self, to: ProcId, source: &Source) -> bool {
        if to == self.me() {
            return false;
        }
        let runs = source_runs(source, &self.engine.card);
        let (Some(runs), Some(memory)) = (runs, self.wires.card_memory()) else {
            return false;
        };
        if source.len() > memory.eager_max() && memory.describes(&runs) {
            return true;
        }
        memory.charge_reads(&runs);
        false
    }

    /// Tells the wire where the message lies that the next one announces.
    pub(crate) fn prepare_on_card(&mut self, head: &Header) {
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
        if let Some(runs) = source_runs(source, &self.engine.card)
            && let Some(memory) = self.wires.card_memory()
        {
            memory.announces_runs(&runs);
        }
    }

    /// Lets the card bring an announced message that has been matched, or asks for it.
    pub(crate) fn fetch_by_card(&mut self, task: &SingleCopyTask) {
        let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(task.req) else {
            return;
        };
        let into = sink_runs(sink, task.len, &self.engine.card);
        let fits = task.len <= sink.capacity() as u64;
        let memory = self.wires.card_memory().filter(|_| fits);
        let begun =
            memory.and_then(|m| m.start_read(task.from, task.request, task.len, into.as_deref()));
        match begun {
            Some(number) => {
                let fetch = Fetching {
                    req: task.req,
                    from: task.from,
                    take: task.len,
                    request: task.request,
                    measured: None,
                };
                self.engine.fetching.push((number, fetch));
            }
            None => self.engine.ask(task.req, task.from, task.request, None),
        }
    }

    /// The processor has written what came into the card's memory: what that costs.
    #[inline]
    pub(crate) fn land(&mut self) {
        if !self.engine.landed.is_empty() {
            self.land_on_card();
        }
    }

    #[cold]
    fn land_on_card(&mut self) {
        for runs in std::mem::take(&mut self.engine.landed) {
            if let Some(memory) = self.wires.card_memory() {
                memory.charge_writes(&runs);
            }
        }
    }
}
