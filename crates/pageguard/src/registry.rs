//! What is guarded at the moment, and by what means.

use crate::guard::Guard;
use crate::system::{Event, Faults, Went};
use crate::watch::Watch;
use crate::{PAGE, Refusal, fork, protect};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A means to guard memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages are moved away by userfaultfd.
    Move,
    /// Rights to pages are taken away by mprotect.
    Protect,
}

/// Guarded pages.
#[derive(Clone)]
pub(crate) struct Piece {
    pub len: usize,
    /// Where they were when the guard began.
    pub original: usize,
    pub guard: Arc<Guard>,
}

/// The guarded pages of one process: this one, or a forked child that still waits for data.
pub(crate) struct Space {
    pub faults: Arc<Faults>,
    /// By their present address.
    pub pieces: BTreeMap<usize, Piece>,
}

impl Space {
    /// The piece in which `address` lies, and where that was when the guard began.
    pub fn find(&self, address: usize) -> Option<(Arc<Guard>, usize)> {
        let (&start, piece) = self.pieces.range(..=address).next_back()?;
        let offset = address - start;
        (offset < piece.len).then(|| (piece.guard.clone(), piece.original + offset))
    }

    /// Takes out what lies in `pages`, which are present addresses. Returns the parts.
    pub fn cut(&mut self, pages: &Range<usize>) -> Vec<(usize, Piece)> {
        let mut out = Vec::new();
        let touched: Vec<usize> = self
            .pieces
            .range(..pages.end)
            .rev()
            .take_while(|(start, p)| **start + p.len > pages.start)
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let Some(piece) = self.pieces.remove(&start) else {
                continue;
            };
            let (from, to) = (start.max(pages.start), (start + piece.len).min(pages.end));
            let part = |from: usize, to: usize| Piece {
                len: to - from,
                original: piece.original + (from - start),
                guard: piece.guard.clone(),
            };
            if start < from {
                self.pieces.insert(start, part(start, from));
            }
            if to < start + piece.len {
                self.pieces.insert(to, part(to, start + piece.len));
            }
            out.push((from, part(from, to)));
        }
        out
    }

    /// mremap has moved pages.
    pub fn shift(&mut self, from: usize, to: usize, len: usize) {
        for (start, piece) in self.cut(&(from..from + len)) {
            self.pieces.insert(to + (start - from), piece);
        }
    }

    /// A page that nobody guards was missed: the program sees it as if nobody watched.
    pub fn fill(&self, address: usize) {
        let page = address / PAGE * PAGE;
        if self.faults.zero(page) != Went::Bytes(PAGE) {
            self.faults.wake(page..page + PAGE);
        }
    }
}

/// The first is this process.
#[derive(Default)]
pub(crate) struct Registry {
    pub spaces: Vec<Space>,
    /// Whoever reads the descriptors.
    pub watch: Option<Watch>,
    /// Guards whose pages somebody waits for, and which; the watching thread tells them.
    pub touched: Vec<(Arc<Guard>, usize)>,
}

impl Registry {
    /// The space that `faults` belongs to.
    fn space(&mut self, faults: &Arc<Faults>) -> Option<&mut Space> {
        self.spaces
            .iter_mut()
            .find(|s| Arc::ptr_eq(&s.faults, faults))
    }

    /// Notes what has happened to a process's memory.
    pub fn note(&mut self, faults: &Arc<Faults>, event: Event) {
        let Some(space) = self.space(faults) else {
            return;
        };
        match event {
            Event::Fault(address) => match space.find(address) {
                Some(found) => self.touched.push(found),
                None => space.fill(address),
            },
            Event::Remap { from, to, len } => space.shift(from, to, len),
            Event::Remove(pages) | Event::Unmap(pages) => {
                space.cut(&pages);
            }
            Event::Fork(fd) => {
                let pieces = space.pieces.clone();
                self.spaces.push(Space {
                    faults: Arc::new(Faults::of_child(fd)),
                    pieces,
                });
            }
        }
    }
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    spaces: Vec::new(),
    watch: None,
    touched: Vec::new(),
});

/// What is guarded. Nobody touches a program's memory while holding this.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    let mut all = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    fork::note(&mut all);
    all
}

/// Makes guards of this kind possible in this process, with a thread that sleeps until somebody
/// touches a guarded page. May be called again.
///
/// Errors: the system does not give what they need.
pub fn available(kind: Kind) -> Result<(), Refusal> {
    hear_of_forks()?;
    let _no_fork = fork::none();
    let mut all = registry();
    if kind == Kind::Protect {
        return protect::begin(&mut all);
    }
    if all.spaces.is_empty() {
        let faults = Arc::new(Faults::open()?);
        fork::watch(Some(faults.clone()));
        all.spaces.push(Space {
            faults,
            pieces: BTreeMap::new(),
        });
    }
    Watch::start(&mut all)
}

/// Do guards stay in force in a forked child, until its data have come? If not, all have to end
/// before a fork.
pub fn lasting() -> bool {
    registry().spaces.first().is_some_and(|s| s.faults.forks)
}

static BEFORE_FORK: Mutex<Option<fn()>> = Mutex::new(None);

/// `end_all` ends all guards; it is called before a fork of a process whose child could not wait
/// for its data. Once for a process.
///
/// Errors: no memory.
pub fn settle_before_fork(end_all: fn()) -> Result<(), Refusal> {
    *BEFORE_FORK.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_all);
    hear_of_forks()
}

/// From here on this crate is told of forks. May be called again.
fn hear_of_forks() -> Result<(), Refusal> {
    static HEARS: Mutex<bool> = Mutex::new(false);
    extern "C" fn before() {
        if !lasting() {
            let end_all = *BEFORE_FORK.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(end_all) = end_all {
                end_all();
            }
        }
        fork::begins();
    }
    extern "C" fn after() {
        fork::over();
    }
    extern "C" fn in_child() {
        fork::over_in_child();
        crate::arena::in_child();
    }
    let mut hears = HEARS.lock().unwrap_or_else(PoisonError::into_inner);
    if *hears {
        return Ok(());
    }
    // SAFETY: the functions live as long as the library, which is never unloaded.
    if unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) } != 0 {
        return Err(Refusal::last("asking to be told of forks"));
    }
    *hears = true;
    Ok(())
}

/// Ends the thread and gives the descriptors back; no guard may be there. Forked children that
/// still wait get what there is.
pub fn stop() {
    let watch = registry().watch.take();
    if let Some(watch) = watch {
        watch.stop();
    }
    fork::watch(None);
    registry().spaces.clear();
}
