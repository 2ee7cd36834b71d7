//! The transport of a modelled machine: the driver of its card ([`ferry_fabric`]).
//!
//! It reaches all ranks of such a job, also those of the same node. Nothing here blocks for a peer,
//! only for the model to reach this rank's virtual time.

mod remote_memory;

use crate::{
    Body, CardMemory, Expected, FRAGMENT_BYTES, FRAGMENT_HEAD_MAX_BYTES, Features, Inbox, ProcId,
    RemoteMemory, RendezvousOffload, SendStatus, Streamed, Transport, TransportError, VirtualTime,
};
use ferry_fabric::driver::{self, Driver, Upcall};
use ferry_fabric::machine::Machine;
use ferry_fabric::platform::Compute;
use ferry_fabric::{Client, ModelSegment, Time};
use ferry_job::clock::thread_processor_time;
use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The transport's name in reports.
pub const NAME: &str = "model";

/// Bytes by which the head of a synchronous send's message is longer than that of others: a choice
/// of the layer above. An eager message must fit with it.
const SYNCHRONOUS_HEAD_BYTES: usize = 16;

/// The virtual time that this process's program sees.
struct Clock {
    /// The rank's time, picoseconds.
    now: &'static AtomicU64,
    /// Picoseconds that a look at the clock takes.
    read_ps: u64,
    /// Factor by which computation takes longer on the modelled machine. `None`: it takes no time.
    factor: Option<f64>,
}

/// This process's clock, if it is on a modelled machine.
static CLOCK: OnceLock<Clock> = OnceLock::new();

thread_local! {
    /// The thread's processor time when it last left MPI, nanoseconds.
    static LEFT_MPI_AT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Seconds of virtual time, if this process is on a modelled machine. A look at the clock takes
/// time, too, so that a loop that waits for a time to pass ends.
#[inline]
pub fn virtual_time() -> Option<f64> {
    CLOCK.get().map(|clock| {
        let computed = match clock.factor {
            Some(factor) => computed(factor, false).as_ps(),
            None => 0,
        };
        let now = clock.now.fetch_add(clock.read_ps, Ordering::Relaxed);
        Time::ps(now + clock.read_ps + computed).seconds()
    })
}

/// Returns whether this process is on a modelled machine.
pub fn is_modelled() -> bool {
    CLOCK.get().is_some()
}

/// The rank's virtual time in nanoseconds, for counters. A look takes no virtual time. Zero if this
/// process is not on a modelled machine.
pub fn clock_nanos() -> u64 {
    let clock = CLOCK.get();
    clock.map_or(0, |c| c.now.load(Ordering::Relaxed) / 1000)
}

/// Virtual time that this thread has computed since it was last in MPI. `enters`: it enters MPI
/// now.
fn computed(factor: f64, enters: bool) -> Time {
    let since = if enters {
        LEFT_MPI_AT.take()
    } else {
        LEFT_MPI_AT.get()
    };
    match since {
        Some(since) => Time::ns(thread_processor_time().saturating_sub(since)).scaled(factor),
        None => Time::ZERO,
    }
}

/// Sleeps until the word's value is no longer `seen`. Both come from [`VirtualTime::idle`].
pub fn sleep(word: &AtomicU32, seen: u32) {
    ferry_fabric::kernel::sleep(word, seen);
}

/// The transport of a process on a modelled machine.
pub struct Model {
    me: ProcId,
    size: u32,
    client: Client,
    driver: Box<dyn Driver>,
    /// As in [`Clock`].
    factor: Option<f64>,
    /// Time that a thread takes to enter MPI while others wait there: as much as a look at the
    /// clock.
    entry: Time,
}

impl Model {
    /// Joins the modelled machine in the memory `fd`, as process `me` of `size`. `concurrent`:
    /// threads of the program may use it at the same time.
    ///
    /// Errors: that is not the memory of a modelled machine.
    pub fn open(
        fd: OwnedFd,
        me: ProcId,
        size: u32,
        concurrent: bool,
    ) -> Result<Model, TransportError> {
        let wrong = |what: String| TransportError::Machine(what);
        let segment = ModelSegment::open(fd).map_err(|e| wrong(e.to_string()))?;
        let machine = Machine::decode(&segment.machine());
        let (Some(machine), true) = (machine, me < size && size == segment.ranks()) else {
            return Err(wrong("its description cannot be read".into()));
        };
        let mut client = Client::join(segment, me);
        if concurrent {
            client.set_concurrent();
        }
        let driver = machine.driver(me);
        let factor = (machine.platform.cpu.compute == Compute::Measured)
            .then(|| machine.platform.cpu.factor.unwrap_or(1.0));
        // A second one in this process is a test's.
        let _ = CLOCK.set(Clock {
            now: client.clock(),
            read_ps: machine.platform.cpu.clock.value.as_ps(),
            factor,
        });
        Ok(Model {
            me,
            size,
            client,
            driver,
            factor,
            entry: machine.platform.cpu.clock.value,
        })
    }

    /// Carries the frames of a TAP device, too.
    pub fn set_interface(&mut self, interface: OwnedFd) {
        let interface = Box::new(File::from(interface));
        self.driver.set_interface(self.size, interface);
    }

    /// Errors: it does not reach `peer`.
    fn check_reaches(&self, peer: ProcId) -> Result<(), TransportError> {
        if self.reaches(peer) {
            return Ok(());
        }
        Err(TransportError::Unreachable {
            peer,
            tried: NAME.into(),
        })
    }
}

/// The inbox, as drivers see it.
struct InboxUpcall<'a>(&'a mut dyn Inbox);

impl Upcall for InboxUpcall<'_> {
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) {
        self.0.on_message(from, message, bytes);
    }
    fn stream_buffer(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        self.0.stream_buffer(from, message, head, left)
    }
    fn stream_placed(&mut self, from: ProcId, message: u8, head: &[u8], bytes: usize) {
        self.0.stream_written(from, message, head, bytes);
    }
    fn stream_part(&mut self, from: ProcId, message: u8, head: &[u8], bytes: &[u8]) {
        self.0.stream_part(from, message, head, bytes);
    }
    fn card_part(&mut self, from: ProcId, number: u32, at: usize, bytes: &[u8]) {
        self.0.card_part(from, number, at, bytes);
    }
}

impl CardMemory for Model {
    fn range(&self) -> std::ops::Range<usize> {
        let (from, end) = self
            .driver
            .memory()
            .map_or((0, 0), |m| m.range(&self.client));
        from..end
    }
    fn eager_max(&self) -> usize {
        self.driver.memory().map_or(0, |m| m.eager_max())
    }
    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8> {
        let (client, memory) = (&self.client, self.driver.memory_mut()?);
        let address = memory.allocate(client, bytes, alignment)?;
        let (mapped, _) = client.mapped_memory();
        Some(mapped.with_addr(address))
    }
    fn release(&mut self, address: usize) -> bool {
        let memory = self.driver.memory_mut();
        memory.is_some_and(|m| m.release(&self.client, address))
    }
    fn describes(&self, runs: &[(usize, usize)]) -> bool {
        let memory = self.driver.memory();
        memory.is_some_and(|m| m.can_describe(&self.client, runs))
    }
    fn announces_runs(&mut self, runs: &[(usize, usize)]) {
        if let Some(memory) = self.driver.memory_mut() {
            memory.set_source(&self.client, runs);
        }
    }
    fn start_read(
        &mut self,
        from: ProcId,
        request: u32,
        bytes: u64,
        into: Option<&[(usize, usize)]>,
    ) -> Option<u32> {
        let memory = self.driver.memory_mut()?;
        memory.start_read(&mut self.client, from, request, bytes, into)
    }
    fn finished_read(&mut self, from: ProcId) -> Option<u32> {
        self.driver.memory_mut()?.finished_read(from)
    }
    fn charge_reads(&mut self, runs: &[(usize, usize)]) {
        if let Some(memory) = self.driver.memory_mut() {
            memory.charge_load(&mut self.client, runs);
        }
    }
    fn charge_writes(&mut self, runs: &[(usize, usize)]) {
        if let Some(memory) = self.driver.memory_mut() {
            memory.charge_store(&mut self.client, runs);
        }
    }
}

impl Transport for Model {
    fn name(&self) -> &'static str {
        NAME
    }

    fn reaches(&self, peer: ProcId) -> bool {
        peer < self.size && peer != self.me
    }

    fn features(&self, peer: ProcId) -> Features {
        let limits = self.driver.limits(peer);
        Features {
            message_max: limits.message_max,
            fragment_max: FRAGMENT_BYTES
                .min(limits.message_max.saturating_sub(FRAGMENT_HEAD_MAX_BYTES)),
            eager_max: limits
                .eager_max
                .min(limits.message_max.saturating_sub(SYNCHRONOUS_HEAD_BYTES)),
            remote_read: false,
            read_min: usize::MAX,
            same_node: false,
            stream: true,
            batch: false,
        }
    }

    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        self.check_reaches(to)?;
        let body = match body {
            Body::Bytes(bytes) => driver::Body::Bytes(bytes),
            Body::Fill(len, fill) => driver::Body::Fill(len, fill),
        };
        let taken = self.driver.send(&mut self.client, to, message, head, body);
        Ok(if taken {
            SendStatus::Done
        } else {
            SendStatus::Full
        })
    }

    fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.check_reaches(to)?;
        let taken = self
            .driver
            .stream(&mut self.client, to, message, head, body);
        Ok(Streamed {
            taken,
            between: true,
            under_way: taken < body.len() && self.driver.streams_side_by_side(),
        })
    }

    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let polled = self.driver.poll(&mut self.client, &mut InboxUpcall(inbox));
        self.client.end_poll(!matches!(polled, Ok(0)));
        polled.map_err(|e| TransportError::Malformed {
            peer: e.0,
            what: e.1,
        })
    }

    fn settle(&mut self) -> bool {
        self.driver.settle(&mut self.client)
    }

    fn virtual_time(&mut self) -> Option<&mut dyn VirtualTime> {
        Some(self)
    }

    fn rendezvous_offload(&mut self) -> Option<&mut dyn RendezvousOffload> {
        Some(self)
    }

    fn card_memory(&mut self) -> Option<&mut dyn CardMemory> {
        self.driver.memory()?;
        Some(self)
    }

    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        self.driver.remote_memory()?;
        Some(self)
    }

    fn wakeup_word(&self) -> Option<&'static AtomicU32> {
        Some(self.client.wakeup_word())
    }
}

impl RendezvousOffload for Model {
    fn before_rts(&mut self, to: ProcId, len: usize) {
        self.driver.before_rts(&mut self.client, to, len);
    }

    fn before_cts(&mut self, from: ProcId, what: &Expected<'_>) {
        let what = driver::Expected {
            address: what.address,
            len: what.len,
            message: what.message,
            head: what.head,
        };
        self.driver.before_cts(&mut self.client, from, &what);
    }

    fn forget_peer(&mut self, peer: ProcId) {
        self.driver.forget_peer(&mut self.client, peer);
    }
}

impl VirtualTime for Model {
    fn note_sent(&mut self, messages: u64, bytes: u64) {
        self.client.set_sent(messages, bytes);
    }

    fn will_idle(&mut self) {
        self.client.may_defer_poll();
    }

    fn poll_deferred(&self) -> bool {
        self.client.is_poll_deferred()
    }

    fn idle(&mut self) -> Option<(&'static AtomicU32, u32)> {
        self.client.begin_wait(self.driver.poll_period())
    }

    fn enter_mpi(&mut self) {
        // Read first: what resuming takes is not the program's.
        let computed = self.factor.map_or(Time::ZERO, |f| computed(f, true));
        if self.client.resume() {
            // A thread enters while the others wait. That takes time, so that one that enters again
            // and again does not stop the clock for what they wait for.
            self.client.charge("other threads' calls", self.entry);
        }
        if computed > Time::ZERO && !self.client.has_left() {
            self.client.charge("computing", computed);
        }
    }

    fn leave_within_call(&mut self, sleepers: bool) {
        if sleepers && (self.idle().is_none() || self.client.has_unseen_events()) {
            // Others of this rank's threads wait, too. Something has arrived, which one of them
            // must look at.
            self.client.wake_another_thread();
        }
    }

    fn leave_mpi(&mut self, sleepers: bool, finished: bool) {
        if finished {
            if !self.client.has_left() {
                self.client.leave();
            }
        } else {
            self.leave_within_call(sleepers);
        }
        if self.factor.is_some() {
            LEFT_MPI_AT.set(Some(thread_processor_time()));
        }
    }
}
