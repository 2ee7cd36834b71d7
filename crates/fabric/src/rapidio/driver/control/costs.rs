//! What the control level's work costs the processor.

use super::buffer::Buffer;
use crate::rapidio::driver::lower::Host;
use crate::time::{Rate, Time};

/// What the control level's work costs the processor.
#[derive(Clone, Copy, Debug)]
pub struct ControlCosts {
    /// A call: sending a datum, requesting a queue, sending a buffer, handling an event.
    pub call: Time,
    /// Finding a page's physical address, with paging in.
    pub page: Time,
    /// Copying between the user's memory and bounce pages or the general queue.
    pub copy: Rate,
    /// Most bytes of a buffer that are written back from the processor's cache and invalidated.
    pub cache: u64,
    /// Rate of that.
    pub write_back: Rate,
}

/// Charges the translation of so many pages.
pub(super) fn charge_pages(c: &mut dyn Host, costs: &ControlCosts, pages: u64) {
    if pages > 0 {
        c.charge("control level: page translation", costs.page * pages);
    }
}

/// Writes the processor's cache back over those pages of a buffer that are translated, and
/// invalidates it: the card's accesses to memory do not see it.
pub(super) fn charge_write_back(c: &mut dyn Host, costs: &ControlCosts, buffer: &mut Buffer) {
    let bytes = buffer.write_back(costs.cache);
    if bytes > 0 {
        let cost = costs.write_back.time_of(bytes);
        c.charge("control level: writing the cache back", cost);
    }
}
