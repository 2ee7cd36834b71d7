//! Background work: a collective's schedule, which advances when the device makes progress.

use crate::progress::device::Device;
use std::sync::{Arc, Mutex, PoisonError};

/// Work that goes on whenever the device makes progress (a collective's schedule). Others may share
/// it.
pub trait Background: Send + Sync {
    /// Does what can be done now, without blocking. Returns true when all is done; then the device
    /// drops it.
    fn advance(&self, device: &mut Device) -> bool;

    /// Do other processes wait for what it does next, or does that take long? Otherwise the
    /// progress thread is not woken for this work alone; it goes on when the program is in MPI
    /// again. The work's requests count separately. The caller has the device.
    fn is_urgent(&self, _device: &Device) -> bool {
        true
    }
}

/// Work with a single owner: a function that is called until it returns true.
impl<F: FnMut(&mut Device) -> bool + Send> Background for Mutex<F> {
    fn advance(&self, device: &mut Device) -> bool {
        let mut advance = self.lock().unwrap_or_else(PoisonError::into_inner);
        advance(device)
    }
}

impl Device {
    /// Hands over work to go on in the background.
    #[inline]
    pub fn add_background(&mut self, work: Arc<dyn Background>) {
        if !work.advance(self) {
            self.background.push(work);
        }
    }

    /// Drops work that has ended, by its address. Not while the device advances it.
    pub fn drop_background(&mut self, ended: *const ()) {
        let is_other = |work: &Arc<dyn Background>| Arc::as_ptr(work).cast::<()>() != ended;
        self.background.retain(is_other);
    }

    pub(crate) fn advance_background(&mut self) -> bool {
        let before = self.worker.engine.requests.completed();
        let mut all = std::mem::take(&mut self.background);
        let running = all.len();
        all.retain(|work| !work.advance(self));
        let ended = all.len() < running;
        all.append(&mut self.background);
        self.background = all;
        let completed = self.worker.engine.requests.completed();
        self.take_background_advanced() || ended || completed != before
    }
}
