//! One guard: pages that the program cannot see until they are ready.

use crate::registry::{Kind, Piece, Registry, registry};
use crate::shadow::Shadow;
use crate::system::{Faults, Went, populate};
use crate::{PAGE, Refusal, protect};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who wants to know what is touched too early.
pub trait Owner: Send + Sync {
    /// Somebody waits for the page of `address`, which is where the page was when the guard began.
    /// Called by the watching thread without any lock; must not touch guarded memory. A page is
    /// told of each time that somebody begins to wait for it.
    fn touched(&self, guard: &Guard, address: usize);
}

/// Guarded pages, and the shadow in which their data land.
pub struct Guard {
    kind: Kind,
    shadow: Shadow,
    owner: Arc<dyn Owner>,
    /// What the program's pages have been registered for, at their original addresses.
    runs: Vec<Range<usize>>,
    /// Somebody opens pages: one at a time.
    opening: Mutex<()>,
}

impl Guard {
    /// Takes the pages of `runs` (whole pages, apart from each other) away from the program.
    /// `span`: all that data are to be written to, the runs among it. A thread that touches one
    /// of them waits until it is opened.
    ///
    /// Errors: the memory cannot be guarded; then nothing has changed.
    pub fn begin(
        kind: Kind,
        span: &Range<usize>,
        runs: Vec<Range<usize>>,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Guard>, Refusal> {
        let whole = |r: &Range<usize>| {
            r.start.is_multiple_of(PAGE) && r.end.is_multiple_of(PAGE) && r.start < r.end
        };
        if !runs.iter().all(whole) {
            return Err(Refusal::Memory("only whole pages can be"));
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
            // Mostly all pages are there, and to make sure of it takes twice as long as to move
            // them (8 MiB: 320 us and 160, on an AMD EPYC VM).
            Kind::Move if guard.take_away().is_ok() => {}
            Kind::Move => {
                guard.populate()?;
                guard.take_away()?;
            }
            Kind::Protect => {
                guard.populate()?;
                protect::take_away(&guard)?;
            }
        }
        Ok(guard)
    }

    /// Makes all pages be there, each the process's own: one that is missing, or shared with a
    /// child, cannot move.
    fn populate(&self) -> Result<(), Refusal> {
        self.runs.iter().try_for_each(|run| {
            populate(run).map_err(|cause| Refusal::System {
                attempted: "making all pages of a buffer be there",
                cause,
            })
        })
    }

    /// To be added (wrapping) to an address in the span: where its data are to be written.
    pub fn delta(&self) -> usize {
        self.shadow.delta
    }

    /// The runs of guarded pages, where they were when the guard began.
    pub fn runs(&self) -> &[Range<usize>] {
        &self.runs
    }

    pub(crate) fn touched(&self, original: usize) {
        self.owner.touched(self, original);
    }

    fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Errors: some page cannot be moved; nothing has changed.
    fn take_away(self: &Arc<Guard>) -> Result<(), Refusal> {
        let faults = own_faults(&registry())?;
        let mut taken = Vec::new();
        let result = self.runs.iter().try_for_each(|run| {
            let landing = run.start.wrapping_add(self.shadow.delta);
            let area = landing..landing + run.len();
            let registered = |pages: &Range<usize>| {
                faults
                    .register(pages.clone())
                    .map_err(|cause| Refusal::System {
                        attempted: "watching the pages of a buffer",
                        cause,
                    })
            };
            registered(&area)?;
            registered(run)?;
            // From here on a touch of a missing page is known for one of this guard's.
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
                match faults.shift(run.start + done, landing + done, run.len() - done) {
                    Went::Bytes(n) => (done, again) = (done + n, 0),
                    Went::Later if again < PATIENCE => {
                        again += 1;
                        std::thread::yield_now();
                    }
                    _ => break Err(Refusal::last("moving the pages of a buffer")),
                }
            };
            let _ = faults.unregister(area);
            if moved.is_err()
                && let Some(own) = registry().spaces.first_mut()
            {
                // These are where they were.
                own.cut(&(run.start + done..run.end));
            }
            taken.push(run.clone());
            moved
        });
        if result.is_err() {
            for run in &taken {
                self.open(run.clone());
                let _ = faults.unregister(run.clone());
            }
        }
        result
    }

    /// Puts the data of these pages (where they were when the guard began) in their places; whoever
    /// waits for them goes on. Does not block for long. Pages that the program has unmapped or
    /// dropped meanwhile stay so.
    pub fn open(&self, pages: Range<usize>) {
        let _one = self.one_at_a_time();
        match self.kind {
            Kind::Move => self.put_back(&pages),
            Kind::Protect => protect::put_back(self, &pages),
        }
    }

    fn put_back(&self, pages: &Range<usize>) {
        loop {
            let mut all = registry();
            let Registry { spaces, watch, .. } = &mut *all;
            let mut later = false;
            let mut waited_out = false;
            // Children first: they get copies of what is still in the shadow.
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
                    if later && number == 0 {
                        break;
                    }
                    let shadow = original.wrapping_add(self.shadow.delta);
                    match put(&space.faults, number == 0, shadow, at, len) {
                        Ok(()) => {
                            space.cut(&(at..at + len));
                        }
                        Err(done) => {
                            space.cut(&(at..at + done));
                            later = true;
                        }
                    }
                }
                waited_out |= number > 0 && space.pieces.is_empty();
            }
            if waited_out {
                let mut first = true;
                spaces.retain(|s| std::mem::take(&mut first) || !s.pieces.is_empty());
                if let Some(watch) = watch {
                    watch.nudge();
                }
            }
            drop(all);
            if !later {
                return;
            }
            // The watching thread has an event to read before memory may change.
            std::thread::yield_now();
        }
    }

    /// Opens all that is still closed, and forgets the program's pages. The shadow goes with the
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
                // What the program has unmapped, or put something else in place of, is not
                // registered any more.
                let _ = faults.unregister(run.clone());
            }
        }
    }
}

/// Attempts to move a page that is in use for a moment.
const PATIENCE: u32 = 10_000;

/// Puts `len` bytes at `shadow` to `at`: by moving pages in this process, by copying into a child.
/// `Err`: so many bytes have gone, and an event must be read before more can.
fn put(faults: &Faults, own: bool, shadow: usize, at: usize, len: usize) -> Result<(), usize> {
    let mut done = 0;
    let mut copies = !own;
    // All at once; a page at a time where the program has changed the rights or the kind of some of
    // them.
    let mut stride = len;
    let mut again = 0;
    while done < len {
        let some = stride.min(len - done);
        let went = if copies {
            faults.copy(shadow + done, at + done, some)
        } else {
            faults.shift(shadow + done, at + done, some)
        };
        match went {
            Went::Bytes(n) => {
                (done, again) = (done + n, 0);
                copies = !own;
            }
            Went::Later if again < 3 => again += 1,
            Went::Later => return Err(done),
            Went::There => {
                // The program has been given a page of zeros there, or has mapped something new.
                faults.wake(at + done..at + done + PAGE);
                done += PAGE;
            }
            Went::No if stride > PAGE => stride = PAGE,
            // It may be written to no more, or somebody holds it: a copy does.
            Went::No if !copies => copies = true,
            // Not guarded any more, whatever it is now.
            Went::No => {
                faults.wake(at + done..at + done + PAGE);
                done += PAGE;
                copies = !own;
            }
        }
    }
    Ok(())
}

fn own_faults(all: &Registry) -> Result<Arc<Faults>, Refusal> {
    match all.spaces.first() {
        Some(own) => Ok(own.faults.clone()),
        None => Err(Refusal::Memory("guards have not been made possible")),
    }
}
