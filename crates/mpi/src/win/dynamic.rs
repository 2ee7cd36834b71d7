//! Windows whose memory is attached after they were made (MPI 5.0 §12.2.4).
//!
//! Displacements are addresses in the target. Its list of regions in shared memory tells members of
//! its node what is attached. Members of other nodes are told by its service.

use super::control::{REGIONS_MAX, Region};
use super::target::{Reach, Target};
use super::transfer::elements_text;
use super::{Flavor, TargetBuffer, Win};
use crate::{Result, err};

impl Win {
    /// Attaches memory of this process (MPI_Win_attach).
    ///
    /// Errors: RmaFlavor unless the window is dynamic; Size; Base; RmaAttach if it overlaps what is
    /// attached, or if too much is.
    pub fn attach(&self, base: *mut u8, size: i64) -> Result<()> {
        self.check_dynamic("MPI_Win_attach")?;
        if size < 0 {
            return Err(err!(Size, "size is {size}, which is negative"));
        }
        if base.is_null() && size > 0 {
            return Err(err!(Base, "base is null, for {size} bytes"));
        }
        let new = Region {
            base: base.expose_provenance() as u64,
            size: size as u64,
        };
        let _one = self.epochs.state();
        let Some(regions) = self.control.regions(self.member) else {
            return Ok(());
        };
        let mut all = regions.all();
        // Regions without bytes overlap nothing.
        let overlaps = |r: &&Region| {
            let (both_start, both_end) = (
                new.base.max(r.base),
                new.base
                    .saturating_add(new.size)
                    .min(r.base.saturating_add(r.size)),
            );
            both_start < both_end
        };
        if let Some(old) = all.iter().find(overlaps) {
            return Err(err!(
                RmaAttach,
                "the {size} bytes at {base:?} overlap the {} bytes at {:#x}, which are attached",
                old.size,
                old.base
            ));
        }
        if all.len() == REGIONS_MAX {
            return Err(err!(
                RmaAttach,
                "{REGIONS_MAX} regions are attached already, which is the most for a window"
            ));
        }
        all.push(new);
        regions.set(&all);
        Ok(())
    }

    /// Detaches what was attached last at `base` (MPI_Win_detach).
    ///
    /// Errors: RmaFlavor unless the window is dynamic; Base if nothing was attached there.
    pub fn detach(&self, base: *const u8) -> Result<()> {
        self.check_dynamic("MPI_Win_detach")?;
        let _one = self.epochs.state();
        let Some(regions) = self.control.regions(self.member) else {
            return Ok(());
        };
        let mut all = regions.all();
        let Some(at) = all.iter().rposition(|r| r.base == base.addr() as u64) else {
            return Err(err!(
                Base,
                "base is {base:?}, but nothing is attached to the window at that address"
            ));
        };
        all.remove(at);
        regions.set(&all);
        Ok(())
    }

    fn check_dynamic(&self, call: &str) -> Result<()> {
        if self.flavor == Flavor::Dynamic {
            return Ok(());
        }
        Err(err!(
            RmaFlavor,
            "{call} of a window that was not made by MPI_Win_create_dynamic"
        ))
    }

    /// The address of an operation in a dynamic window, as [`Win::locate`].
    pub(super) fn locate_attached(
        &self,
        target: &Target,
        target_buffer: &TargetBuffer<'_>,
        call: &str,
    ) -> Result<*mut u8> {
        let (low, end) = target_buffer.datatype.span(target_buffer.count)?;
        let at = target_buffer.disp as u64;
        let address = if target.reach == Reach::Mapped {
            std::ptr::with_exposed_provenance_mut(at as usize)
        } else {
            std::ptr::without_provenance_mut(at as usize)
        };
        if low == end {
            return Ok(address);
        }
        let Some(regions) = target.member.and_then(|m| self.control.regions(m)) else {
            // The target's service checks it.
            return Ok(address);
        };
        let first = at.checked_add_signed(low);
        let len = end.wrapping_sub(low) as u64;
        if first.is_some_and(|first| regions.find(first, len).is_some()) {
            return Ok(address);
        }
        Err(err!(
            RmaRange,
            "{call} to rank {}: address {at:#x} and {} are not all in memory that is attached to \
             its window",
            target.rank,
            elements_text(target_buffer, (low, end))
        ))
    }
}
