//! What a hang report says of a collective.

use super::tag::Number;
use crate::Comm;
use crate::device::{Describe, Device};
use std::sync::atomic::Ordering;

/// Tells who looks at a hang which collective is waited in.
pub(crate) struct Story<'a>(pub(crate) &'a Comm, pub(crate) Number, pub(crate) i32);

impl Describe for Story<'_> {
    fn describe(&self, device: &mut Device, status: &ferry_job::RankStatus) {
        self.0.describe(device, status);
        let number = self.1.in_program(self.0);
        status.collective.store(number, Ordering::Relaxed);
        status.root.store(self.2, Ordering::Relaxed);
    }
}
