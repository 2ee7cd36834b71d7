//! The device of a process, and its progress engine. What the layer above calls is in `device/`.

use crate::base::counters::HasDevice;
use crate::progress::background::Background;
use crate::progress::core_contention::CoreContention;
use crate::progress::outside_work;
use crate::progress::state::{CoreBalance, CoreSharing, Served, Sleepers, TestBackoff, WaitPolicy};
use crate::progress::thread_state::ThreadState;
use crate::protocol::engine::{Engine, Threads, Worker};
use crate::protocol::single_copy::{CopyAlone, CopyContext};
use crate::queue::batch::Batch;
use crate::queue::send_slots::SendSlots;
use ferry_job::{Directory, RankInfo, RankStatus, Segment};
use ferry_transport::TransportError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The device of one process.
pub struct Device {
    pub(crate) worker: Worker,
    pub(crate) background: Vec<Arc<dyn Background>>,
    /// This rank's page in the node's segment.
    pub(crate) status: &'static RankStatus,
    pub(crate) wait_policy: WaitPolicy,
    pub(crate) test_backoff: TestBackoff,
    pub(crate) core_balance: CoreBalance,
    pub(crate) core_sharing: CoreSharing,
    pub(crate) core_contention: CoreContention,
    /// The state of the progress thread, where there is one.
    pub(crate) progress_thread: Option<Box<ThreadState>>,
    /// What sleeping threads wait for, where several may be in MPI.
    pub(crate) sleepers: Sleepers,
    /// How much background work waits for shared memory, which no transport polls.
    pub(crate) memory_waits: u32,
    /// A thread of the program looks for the last time before it sleeps.
    pub(crate) about_to_sleep: bool,
    /// How long the next sleep of a waiting thread may last.
    pub(crate) sleep_max: Option<Duration>,
    /// This process's update slot, while it has windows for which peers use it.
    pub(crate) served: Option<Served>,
    /// The process has called MPI_Finalize; counts on modelled machines.
    pub(crate) finalized: bool,
}

impl HasDevice for Device {}

impl Device {
    pub(crate) fn new(
        rank_info: &RankInfo,
        segment: Option<Segment>,
        directory: Option<Box<dyn Directory>>,
        status: &'static RankStatus,
        wait_policy: WaitPolicy,
        multiple: bool,
    ) -> Result<Device, TransportError> {
        let node = segment.as_ref().map_or(&[][..], Segment::statuses);
        let send_slots = if wait_policy.oversubscribed {
            SendSlots::new(rank_info, node)
        } else {
            None
        };
        let mut transports = ferry_transport::open(rank_info, segment, directory, multiple)?;
        transports.set_coalescing(!multiple);
        let mut engine = Engine::new(rank_info.rank);
        engine.size = rank_info.size;
        if let Some(memory) = transports.card_memory() {
            engine.device_memory.set_range(memory.range());
        }
        Ok(Device {
            worker: Worker {
                me: rank_info.rank,
                size: rank_info.size,
                transports,
                engine,
                batch: Batch::default(),
                send_slots,
                threads: Threads {
                    multiple,
                    progress: false,
                },
                oversubscribed: wait_policy.oversubscribed,
            },
            background: Vec::new(),
            status,
            wait_policy,
            test_backoff: TestBackoff::NONE,
            core_balance: CoreBalance::NEW,
            core_sharing: CoreSharing::UNKNOWN,
            core_contention: CoreContention::NONE,
            progress_thread: None,
            sleepers: Sleepers::default(),
            memory_waits: 0,
            about_to_sleep: false,
            sleep_max: None,
            served: None,
            finalized: false,
        })
    }

    /// Makes progress: moves whatever can be moved, without blocking. Returns whether anything
    /// happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.worker.batch.end();
        let mut moved = false;
        loop {
            let Worker {
                transports, engine, ..
            } = &mut self.worker;
            let delivered = match transports.poll(engine) {
                Ok(n) => n,
                Err(e) => {
                    self.worker.fail_transport(&e);
                    1
                }
            };
            moved |= delivered > 0;
            if self.worker.engine.single_copies.has_tasks() && self.run_tasks() {
                // DATA that peers have requested is sent before the next message is read.
                self.worker.offer_queued();
                continue;
            }
            break;
        }
        if self.worker.engine.single_copies.has_reads() {
            moved |= self.worker.end_reads();
        }
        if !self.worker.engine.outbox.is_empty() {
            moved |= self.worker.offer_queued();
        }
        if !self.background.is_empty() {
            moved |= self.advance_background();
        }
        if !moved && self.worker.engine.withdrawables.has_open() {
            moved = self.worker.withdraw_overdue();
        }
        self.worker.settle_device_memory();
        // Messages that this has sent, such as those of collectives, wait for no other call.
        self.worker.transports.flush_coalesced();
        moved
    }

    /// Reads announced messages that have matched, unless that is left to the progress thread.
    /// Returns whether some are left that can be read at once.
    pub(crate) fn run_tasks(&mut self) -> bool {
        match self.copy_context() {
            Some(context) => self.worker.run_tasks(context),
            None => false,
        }
    }

    /// Which thread copies now. `None`: copying is left to the progress thread, while the program
    /// only passes through MPI.
    #[inline]
    fn copy_context(&self) -> Option<CopyContext> {
        let oversubscribed = self.wait_policy.oversubscribed;
        let Some(thread) = &self.progress_thread else {
            return Some(CopyContext {
                shares_core: oversubscribed,
                alone: CopyAlone::Never,
            });
        };
        if thread.does_copies() {
            return None;
        }
        Some(CopyContext {
            shares_core: thread.has_device || oversubscribed,
            alone: match (thread.has_device, thread.polls) {
                (false, _) => CopyAlone::Never,
                (true, false) => CopyAlone::Always,
                (true, true) => CopyAlone::UnlessPeerPolls,
            },
        })
    }

    /// Do other processes wait for progress of this one?
    pub(crate) fn is_urgent(&self) -> bool {
        let engine = &self.worker.engine;
        self.background.iter().any(|work| work.is_urgent(self))
            || !engine.outbox.is_empty()
            || engine.single_copies.has_tasks()
            || engine.requests.urgent() > 0
            || self.worker.transports.has_unsent()
    }

    /// Can something arrive that this process has to handle: is an operation pending, may active
    /// messages come, or does background work wait for shared memory?
    pub(crate) fn awaits_messages(&self) -> bool {
        let engine = &self.worker.engine;
        engine.requests.pending() > 0 || engine.active.is_expecting() || self.memory_waits > 0
    }

    /// Something has changed that a sleeping thread of this process may wait for. That thread looks
    /// again when this guard is dropped.
    pub fn notify_sleepers(&mut self) {
        self.worker.engine.notifications += 1;
    }

    /// Publishes in the status page how many messages were sent and received. While messages wait
    /// here for room or for a connection, or a file is transferred, one more is counted as sent:
    /// then no launcher takes the job for one without messages in flight.
    pub(crate) fn publish_counts(&self) {
        let engine = &self.worker.engine;
        let under_way = !engine.outbox.is_empty() || outside_work::is_running();
        let sent = engine.sent + u64::from(under_way);
        self.status.sent.store(sent, Ordering::Relaxed);
        let received = engine.received - engine.received_from_others;
        self.status.received.store(received, Ordering::Relaxed);
    }
}
