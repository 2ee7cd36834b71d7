//! Who reads and writes an exchange's windows: the caller, or threads beside it.

use super::super::background::engine;
use super::exchange::{Exchange, Step};
use super::window::Window;
use crate::Result;
use crate::device::{self, Device};
use crate::request::Outcome;
use std::sync::{Arc, Mutex, PoisonError};

/// Drives an exchange.
pub(super) struct Driver {
    exchange: Box<Exchange>,
    /// Windows are read and written by threads, while the next ones are exchanged.
    beside: bool,
    /// Windows that threads have read or written.
    returned: Arc<Mutex<Vec<Window>>>,
}

impl Driver {
    pub fn new(exchange: Exchange, beside: bool) -> Driver {
        Driver {
            exchange: Box::new(exchange),
            beside,
            returned: Arc::default(),
        }
    }

    /// Goes on as far as it can without blocking. A window is for the caller to read or write, and
    /// to give back by [`Driver::transferred`].
    pub fn advance(&mut self, d: &mut Device) -> Step {
        loop {
            let returned = self.returned.lock();
            let mut returned = returned.unwrap_or_else(PoisonError::into_inner);
            for window in returned.drain(..) {
                self.exchange.transferred(window);
            }
            drop(returned);
            match self.exchange.advance(d) {
                Step::Window(window) if self.beside => self.start(window),
                step => return step,
            }
        }
    }

    fn start(&self, mut window: Window) {
        let returned = self.returned.clone();
        device::begin_outside_work();
        engine().run(Box::new(move || {
            window.transfer();
            let mut all = returned.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(window);
            drop(all);
            device::end_outside_work();
        }));
    }

    /// The caller has read or written a window.
    pub fn transferred(&mut self, window: Window) {
        self.exchange.transferred(window);
    }

    /// The outcome, after the last step.
    ///
    /// # Safety
    /// As for [`Exchange::new`].
    pub unsafe fn end(self) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        unsafe { self.exchange.end() }
    }
}
