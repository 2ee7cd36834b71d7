//! The registry: what is guarded at the moment, in this process and in forked children.

use crate::guard::Guard;
use crate::system::{Event, TransferOutcome, Userfaultfd};
use crate::watch::Watch;
use crate::{GuardError, PAGE_BYTES, fork, protect};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How memory is guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages are moved away by userfaultfd.
    Move,
    /// Rights to pages are taken away by mprotect.
    Protect,
}

/// A run of guarded pages.
#[derive(Clone)]
pub(crate) struct Piece {
    pub len: usize,
    /// Their address when the guard began.
    pub original: usize,
    pub guard: Arc<Guard>,
}

/// The guarded pages of one process: this one, or a forked child that still waits for data.
pub(crate) struct Space {
    pub faults: Arc<Userfaultfd>,
    /// By present address.
    pub pieces: BTreeMap<usize, Piece>,
}

impl Space {
    /// The guard of the page at `address`, and the address when the guard began.
    pub fn find(&self, address: usize) -> Option<(Arc<Guard>, usize)> {
        let (&start, piece) = self.pieces.range(..=address).next_back()?;
        let offset = address - start;
        (offset < piece.len).then(|| (piece.guard.clone(), piece.original + offset))
    }

    /// Removes what lies in `pages`, which are present addresses. Returns the removed pieces.
    pub fn cut(&mut self, pages: &Range<usize>) -> Vec<(usize, Piece)> {
        let mut out = Vec::new();
        let overlapping: Vec<usize> = self
            .pieces
            .range(..pages.end)
            .rev()
            .take_while(|(start, p)| **start + p.len > pages.start)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
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
    pub fn move_pages(&mut self, from: usize, to: usize, len: usize) {
        for (start, piece) in self.cut(&(from..from + len)) {
            self.pieces.insert(to + (start - from), piece);
        }
    }

    /// Fills a missing page that is not guarded with zeros, as the system would.
    pub fn fill(&self, address: usize) {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        if self.faults.zero(page) != TransferOutcome::Bytes(PAGE_BYTES) {
            self.faults.wake(page..page + PAGE_BYTES);
        }
    }
}

/// What is guarded.
#[derive(Default)]
pub(crate) struct Registry {
    /// This process first, then forked children.
    pub spaces: Vec<Space>,
    /// The thread that reads the descriptors.
    pub watch: Option<Watch>,
    /// Touched pages whose guards have not been told: the guard, and the address when it began.
    pub touched: Vec<(Arc<Guard>, usize)>,
}

impl Registry {
    /// The space that `faults` belongs to.
    fn space(&mut self, faults: &Arc<Userfaultfd>) -> Option<&mut Space> {
        self.spaces
            .iter_mut()
            .find(|s| Arc::ptr_eq(&s.faults, faults))
    }

    /// Applies an event to what is known of a process's memory.
    pub fn apply(&mut self, faults: &Arc<Userfaultfd>, event: Event) {
        let Some(space) = self.space(faults) else {
            return;
        };
        match event {
            Event::Fault(address) => match space.find(address) {
                Some(found) => self.touched.push(found),
                None => space.fill(address),
            },
            Event::Remap { from, to, len } => space.move_pages(from, to, len),
            Event::Remove(pages) | Event::Unmap(pages) => {
                space.cut(&pages);
            }
            Event::Fork(fd) => {
                let pieces = space.pieces.clone();
                self.spaces.push(Space {
                    faults: Arc::new(Userfaultfd::of_child(fd)),
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

/// Locks the registry. The holder must not touch the program's memory.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    let mut all = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    fork::apply_unapplied(&mut all);
    all
}

/// Enables guards of this kind in this process. Starts the watching thread, which sleeps until a
/// guarded page is touched. Further calls have no effect.
///
/// # Errors
/// The system lacks a feature that this kind needs, or refuses it.
pub fn enable(kind: Kind) -> Result<(), GuardError> {
    register_fork_handlers()?;
    let _no_fork = fork::prevent();
    let mut all = registry();
    if kind == Kind::Protect {
        return protect::begin(&mut all);
    }
    if all.spaces.is_empty() {
        let faults = Arc::new(Userfaultfd::open()?);
        fork::set_userfaultfd(Some(faults.clone()));
        all.spaces.push(Space {
            faults,
            pieces: BTreeMap::new(),
        });
    }
    Watch::start(&mut all)
}

/// Returns whether guards stay in force in a forked child until its data have arrived. If not, all
/// guards must end before a fork.
pub fn survives_fork() -> bool {
    registry()
        .spaces
        .first()
        .is_some_and(|s| s.faults.reports_forks)
}

static BEFORE_FORK: Mutex<Option<fn()>> = Mutex::new(None);

/// Sets the function that ends all guards before a fork. It is called if guards do not survive a
/// fork ([`survives_fork`]).
///
/// # Errors
/// The fork handlers cannot be registered: there is no memory.
pub fn set_before_fork(end_all: fn()) -> Result<(), GuardError> {
    *BEFORE_FORK.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_all);
    register_fork_handlers()
}

/// Registers this crate's fork handlers (pthread_atfork), once.
fn register_fork_handlers() -> Result<(), GuardError> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    extern "C" fn before() {
        if !survives_fork() {
            let end_all = *BEFORE_FORK.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(end_all) = end_all {
                end_all();
            }
        }
        fork::before();
    }
    extern "C" fn after() {
        fork::after();
    }
    extern "C" fn in_child() {
        fork::after_in_child();
        crate::arena::in_child();
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if *registered {
        return Ok(());
    }
    // SAFETY: the functions live as long as the library, which is never unloaded.
    if unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) } != 0 {
        return Err(GuardError::last_os_error("asking to be told of forks"));
    }
    *registered = true;
    Ok(())
}

/// Stops the watching thread and closes the descriptors. There must be no guard. Forked children
/// that still wait get the data that have arrived.
pub fn stop() {
    let watch = registry().watch.take();
    if let Some(watch) = watch {
        watch.stop();
    }
    fork::set_userfaultfd(None);
    registry().spaces.clear();
}
