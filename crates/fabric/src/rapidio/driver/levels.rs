//! The levels of a node's driver, one on the other, with the costs of the machine file.

use super::control::{ControlCosts, ControlLevel};
use super::lower::LowerLevel;
use super::mx::{Mx, MxCosts};
use crate::kernel::Rank;
use crate::platform::Platform;
use crate::rapidio::figures::Figures;

/// The control level of rank `me`.
pub fn control_level(platform: &Platform, f: &Figures, me: Rank) -> ControlLevel<LowerLevel> {
    let costs = ControlCosts {
        call: f.instructions(&f.instructions_control),
        page: f.instructions(&f.instructions_page),
        copy: platform.cpu.copy.value,
        cache: f.cache.value.0,
        write_back: f.write_back.value,
    };
    ControlLevel::new(LowerLevel::new(f), me, costs)
}

/// The MX level of rank `me`. Messages of at most `eager_max` bytes go eagerly.
pub fn mx_level(platform: &Platform, f: &Figures, me: Rank, eager_max: usize) -> Mx<LowerLevel> {
    let costs = MxCosts {
        call: f.instructions(&f.instructions_mx),
        poll: f.instructions(&f.instructions_poll),
        eager_max,
    };
    Mx::new(control_level(platform, f, me), costs)
}
