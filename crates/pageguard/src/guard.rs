//! A guard: pages that the program cannot access until their data are ready.

use crate::registry::{Kind, Piece, Registry, registry};
use crate::shadow::Shadow;
use crate::system::{TransferOutcome, Userfaultfd, populate};
use crate::{GuardError, PAGE_BYTES, protect};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The owner of a guard. It is told of each touch of a closed page.
pub trait Owner: Send + Sync {
    /// A thread has touched a closed page and waits. `address` is the address as it was when the
    /// guard began. Called by the watching thread without any lock, once for each thread. Must not
    /// touch guarded memory.
    fn on_touch(&self, guard: &Guard, address: usize);
}

/// Guarded pages, and the shadow into which their data are written.
pub struct Guard {
    kind: Kind,
    shadow: Shadow,
    owner: Arc<dyn Owner>,
    /// The guarded pages, by their addresses when the guard began.
    runs: Vec<Range<usize>>,
    /// Held while pages are opened.
    opening: Mutex<()>,
}

impl Guard {
    /// Closes the pages of `runs`. A thread that touches one of them waits until it is opened. Runs
    /// are whole pages and do not overlap. `span` is all memory that data will be written to, and
    /// includes the runs.
    ///
    /// # Errors
    /// The memory cannot be guarded. Nothing has changed.
    pub fn begin(
        kind: Kind,
        span: &Range<usize>,
        runs: Vec<Range<usize>>,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Guard>, GuardError> {
        let whole = |r: &Range<usize>| {
            r.start.is_multiple_of(PAGE_BYTES)
                && r.end.is_multiple_of(PAGE_BYTES)
                && r.start < r.end
        };
        if !runs.iter().all(whole) {
            return Err(GuardError::Unsupported("only whole pages can be"));
        }
        if kind == Kind::Protect {
            protect::check(&runs)?;
        }
        let guard = Arc::new(Guard {
            kind,
            shadow: Shadow::of(span)?,
            owner,
            runs,
            opening: Mutex::new(()),
        });
        match kind {
            // Usually all pages exist already. Populating them takes twice as long as moving them
            // (8 MiB: 320 µs and 160 µs, on a virtual machine with an AMD EPYC).
            Kind::Move if guard.close().is_ok() => {}
            Kind::Move => {
                guard.populate()?;
                guard.close()?;
            }
            Kind::Protect => {
                guard.populate()?;
                protect::close(&guard)?;
            }
        }
        Ok(guard)
    }

    /// Populates all pages. A page that is missing, or shared with a child, cannot be moved.
    fn populate(&self) -> Result<(), GuardError> {
        self.runs.iter().try_for_each(|run| {
            populate(run).map_err(|cause| GuardError::System {
                attempted: "making all pages of a buffer be there",
                cause,
            })
        })
    }

    /// Difference between an address in the span and the address where its data are to be written
    /// (wrapping).
    pub fn delta(&self) -> usize {
        self.shadow.delta
    }

    /// The runs of guarded pages, by their addresses when the guard began.
    pub fn runs(&self) -> &[Range<usize>] {
        &self.runs
    }

    pub(crate) fn on_touch(&self, original: usize) {
        self.owner.on_touch(self, original);
    }

    fn lock_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the pages to the shadow.
    ///
    /// # Errors
    /// Some page cannot be moved. Nothing has changed then.
    fn close(self: &Arc<Guard>) -> Result<(), GuardError> {
        let faults = own_faults(&registry())?;
        let mut closed = Vec::new();
        let result = self.runs.iter().try_for_each(|run| {
            let shadow = run.start.wrapping_add(self.shadow.delta);
            let area = shadow..shadow + run.len();
            let registered = |pages: &Range<usize>| {
                faults
                    .register(pages.clone())
                    .map_err(|cause| GuardError::System {
                        attempted: "watching the pages of a buffer",
                        cause,
                    })
            };
            registered(&area)?;
            registered(run)?;
            // A touch of a missing page belongs to this guard from now on.
            let piece = Piece {
                len: run.len(),
                original: run.start,
                guard: self.clone(),
            };
            if let Some(own) = registry().spaces.first_mut() {
                own.pieces.insert(run.start, piece);
            }
            let mut done = 0;
            let mut again = 0;
            let moved = loop {
                if done == run.len() {
                    break Ok(());
                }
                match faults.move_pages(run.start + done, shadow + done, run.len() - done) {
                    TransferOutcome::Bytes(n) => (done, again) = (done + n, 0),
                    TransferOutcome::Again if again < MOVE_ATTEMPTS_MAX => {
                        again += 1;
                        std::thread::yield_now();
                    }
                    _ => break Err(GuardError::last_os_error("moving the pages of a buffer")),
                }
            };
            let _ = faults.unregister(area);
            if moved.is_err()
                && let Some(own) = registry().spaces.first_mut()
            {
                // These pages have not been moved.
                own.cut(&(run.start + done..run.end));
            }
            closed.push(run.clone());
            moved
        });
        if result.is_err() {
            for run in &closed {
                self.open(run.clone());
                let _ = faults.unregister(run.clone());
            }
        }
        result
    }

    /// Puts these pages back with their data. They are given by their addresses when the guard
    /// began. Wakes the threads that wait for them. Does not block for long. Pages that the program
    /// has unmapped or dropped meanwhile stay so.
    pub fn open(&self, pages: Range<usize>) {
        let _opening = self.lock_opening();
        match self.kind {
            Kind::Move => self.put_back(&pages),
            Kind::Protect => protect::put_back(self, &pages),
        }
    }

    fn put_back(&self, pages: &Range<usize>) {
        loop {
            let mut all = registry();
            let Registry { spaces, watch, .. } = &mut *all;
            let mut must_retry = false;
            let mut child_done = false;
            // Children come first: they get copies of what is still in the shadow.
            for (number, space) in spaces.iter_mut().enumerate().rev() {
                let parts: Vec<(usize, usize, usize)> = space
                    .pieces
                    .iter()
                    .filter(|(_, p)| std::ptr::eq(&*p.guard, self))
                    .filter_map(|(&at, p)| {
                        let from = p.original.max(pages.start);
                        let to = (p.original + p.len).min(pages.end);
                        (from < to).then(|| (at + (from - p.original), from, to - from))
                    })
                    .collect();
                for (at, original, len) in parts {
                    if must_retry && number == 0 {
                        break;
                    }
                    let shadow = original.wrapping_add(self.shadow.delta);
                    match put(&space.faults, number == 0, shadow, at, len) {
                        Ok(()) => {
                            space.cut(&(at..at + len));
                        }
                        Err(done) => {
                            space.cut(&(at..at + done));
                            must_retry = true;
                        }
                    }
                }
                child_done |= number > 0 && space.pieces.is_empty();
            }
            if child_done {
                let mut first = true;
                spaces.retain(|s| std::mem::take(&mut first) || !s.pieces.is_empty());
                if let Some(watch) = watch {
                    watch.rescan();
                }
            }
            drop(all);
            if !must_retry {
                return;
            }
            // The watching thread must read an event before memory may change.
            std::thread::yield_now();
        }
    }

    /// Opens all pages that are still closed, and ends the guard. The shadow is unmapped with the
    /// last reference.
    pub fn end(&self) {
        for run in &self.runs {
            self.open(run.clone());
        }
        if self.kind == Kind::Protect {
            return protect::forget(self);
        }
        if let Ok(faults) = own_faults(&registry()) {
            for run in &self.runs {
                // Fails for pages that the program has unmapped or replaced: they are not
                // registered any more.
                let _ = faults.unregister(run.clone());
            }
        }
    }
}

/// Maximum number of attempts to move a page that is in use for a moment. A choice. The thread
/// yields after each attempt.
const MOVE_ATTEMPTS_MAX: u32 = 10_000;

/// Puts `len` bytes at `shadow` back to `at`. In this process pages are moved. Into a child they
/// are copied.
///
/// # Errors
/// An event must be read first. The error is the number of bytes that have been put back.
fn put(faults: &Userfaultfd, own: bool, shadow: usize, at: usize, len: usize) -> Result<(), usize> {
    let mut done = 0;
    let mut copies = !own;
    // All pages at once. If the program has changed the rights or the kind of some pages, one page
    // at a time.
    let mut stride = len;
    let mut again = 0;
    while done < len {
        let some = stride.min(len - done);
        let moved = if copies {
            faults.copy(shadow + done, at + done, some)
        } else {
            faults.move_pages(shadow + done, at + done, some)
        };
        match moved {
            TransferOutcome::Bytes(n) => {
                (done, again) = (done + n, 0);
                copies = !own;
            }
            TransferOutcome::Again if again < 3 => again += 1,
            TransferOutcome::Again => return Err(done),
            TransferOutcome::Exists => {
                // The program has a page of zeros there, or has mapped something new.
                faults.wake(at + done..at + done + PAGE_BYTES);
                done += PAGE_BYTES;
            }
            TransferOutcome::Refused if stride > PAGE_BYTES => stride = PAGE_BYTES,
            // The page is read-only now, or pinned. It can still be copied.
            TransferOutcome::Refused if !copies => copies = true,
            // The page is not guarded any more.
            TransferOutcome::Refused => {
                faults.wake(at + done..at + done + PAGE_BYTES);
                done += PAGE_BYTES;
                copies = !own;
            }
        }
    }
    Ok(())
}

fn own_faults(all: &Registry) -> Result<Arc<Userfaultfd>, GuardError> {
    match all.spaces.first() {
        Some(own) => Ok(own.faults.clone()),
        None => Err(GuardError::Unsupported(
            "guards have not been made possible",
        )),
    }
}
