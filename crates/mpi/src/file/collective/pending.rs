//! Collective transfers in the background (MPI_File_iread_all, MPI_File_iwrite_all and others).

use super::super::File;
use super::super::access::{Direction, Transfer};
use super::super::background::engine;
use super::driver::Driver;
use super::exchange::{Exchange, Step};
use super::extent::Extent;
use super::plan::Plan;
use super::{AccessArguments, AllgatherBuffers};
use crate::device::{self, Device};
use crate::request::{Outcome, Work};
use crate::{Request, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A collective transfer that goes on after its call.
struct PendingCollectiveTransfer {
    file: Arc<File>,
    done: AtomicBool,
    outcome: OnceLock<Outcome>,
}

impl PendingCollectiveTransfer {
    fn end(&self, result: Result<Outcome>) {
        let outcome = result.unwrap_or_else(|e| Outcome {
            error: Some(e.on_file(&self.file)),
            ..Outcome::EMPTY
        });
        let _ = self.outcome.set(outcome);
        self.done.store(true, Ordering::Release);
    }
}

impl Work for PendingCollectiveTransfer {
    fn is_done(&self, _d: &mut Device) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn must_be_completed(&self) -> Option<&'static str> {
        Some("collective file")
    }

    fn outcome(&self) -> Outcome {
        self.outcome.get().cloned().unwrap_or(Outcome::EMPTY)
    }
}

/// What the transfer waits for.
enum Stage {
    /// The extents of all ranks.
    Extents(Box<Gathering>),
    /// The same, on a rank whose arguments are bad: it only lets the others go on.
    Failed(AllgatherBuffers, Arc<Request>),
    /// Messages and windows.
    Exchange(Driver),
    /// Its own transfer, by itself: the engine ends it.
    Alone,
    Ended,
}

/// The extents of all ranks, while they are gathered.
struct Gathering {
    words: AllgatherBuffers,
    request: Arc<Request>,
    transfer: Transfer,
    extent: Extent,
}

/// The transfer, which the progress engine advances.
struct BackgroundTransfer {
    pending: Arc<PendingCollectiveTransfer>,
    stage: Stage,
    /// Of its messages: its number among the file's collective transfers.
    tag: u32,
}

/// # Safety
/// The buffer stays as it is until the request completes.
pub(super) unsafe fn start(
    file: &Arc<File>,
    direction: Direction,
    arguments: AccessArguments<'_>,
) -> Result<Arc<Request>> {
    let by_itself = file.comm.size() == 1
        || !file.view().representation.is_native()
        || device::device().is_virtual();
    let transfer = arguments.and_then(|(at, buffer)| file.transfer(direction, at, buffer));
    if by_itself {
        // SAFETY: the caller's promise.
        return Ok(unsafe { file.start(transfer?) });
    }
    let extent = transfer.as_ref().map_or(Extent::FAILED, |t| file.extent(t));
    let pending = Arc::new(PendingCollectiveTransfer {
        file: file.clone(),
        done: AtomicBool::new(false),
        outcome: OnceLock::new(),
    });
    let mut words = AllgatherBuffers::new(&file.comm, &extent.words());
    let request = words.start(&file.comm);
    let (stage, started) = match transfer {
        Ok(transfer) => {
            let gathering = Gathering {
                words,
                request,
                transfer,
                extent,
            };
            let started = Request::work(Some(file.comm.clone()), pending.clone());
            (Stage::Extents(Box::new(gathering)), Ok(started))
        }
        Err(e) => (Stage::Failed(words, request), Err(e)),
    };
    let mut advance = BackgroundTransfer {
        pending,
        stage,
        tag: file.next_transfer(),
    };
    let work = Mutex::new(move |d: &mut Device| advance.advance(d));
    device::device().add_background(Arc::new(work));
    started
}

impl BackgroundTransfer {
    /// Goes on as far as it can. Returns whether it has ended.
    fn advance(&mut self, d: &mut Device) -> bool {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return true,
                Stage::Alone => {
                    self.stage = Stage::Alone;
                    return self.pending.is_done(d);
                }
                Stage::Extents(gathering) => match gathering.request.end_background(d) {
                    None => {
                        self.stage = Stage::Extents(gathering);
                        return false;
                    }
                    Some(Err(e)) => self.end(d, Err(e)),
                    Some(Ok(())) => self.decide(*gathering),
                },
                Stage::Failed(words, request) => {
                    if request.end_background(d).is_none() {
                        self.stage = Stage::Failed(words, request);
                        return false;
                    }
                }
                Stage::Exchange(mut driver) => match driver.advance(d) {
                    // SAFETY: the promise at `start`.
                    Step::Done => self.end(d, unsafe { driver.end() }),
                    Step::Pending | Step::Window(_) => {
                        self.stage = Stage::Exchange(driver);
                        return false;
                    }
                },
            }
        }
    }

    fn end(&mut self, d: &mut Device, result: Result<Outcome>) {
        self.pending.end(result);
        d.notify_sleepers();
        self.stage = Stage::Ended;
    }

    fn decide(&mut self, gathering: Gathering) {
        let Gathering {
            words,
            transfer,
            extent,
            ..
        } = gathering;
        let file = self.pending.file.clone();
        let Some(plan) = Plan::new(&file, transfer.direction, &words.all, false) else {
            let pending = self.pending.clone();
            device::begin_outside_work();
            engine().run(Box::new(move || {
                // SAFETY: the promise at `start`.
                pending.end(unsafe { transfer.run() });
                device::end_outside_work();
            }));
            self.stage = Stage::Alone;
            return;
        };
        // SAFETY: the promise at `start`.
        let exchange =
            unsafe { Exchange::new(&file, plan, transfer, Vec::new(), extent, self.tag) };
        self.stage = Stage::Exchange(Driver::new(exchange, true));
    }
}
