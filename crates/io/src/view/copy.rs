//! Copying between a window of a file in memory and data bytes in the order of positions.

use super::View;

impl View {
    /// Copies data bytes from a window of the file to `out`, from `position` on. `window` holds the
    /// file's bytes from `window_start` on.
    ///
    /// # Panics
    /// If a data byte lies outside the window.
    pub fn gather(&self, position: u64, window: &[u8], window_start: u64, out: &mut [u8]) {
        self.check_window(position, out.len(), window.len(), window_start);
        let Some((address, count, skip)) = self.elements(
            position,
            out.len() as u64,
            window.as_ptr().cast_mut(),
            window_start,
        ) else {
            let mut done = 0;
            for run in self.runs(position, out.len() as u64) {
                let (at, len) = ((run.offset - window_start) as usize, run.len as usize);
                out[done..done + len].copy_from_slice(&window[at..at + len]);
                done += len;
            }
            return;
        };
        if let Some((filetype, _)) = self.filetype() {
            // SAFETY: all data bytes lie within the window, which `out` cannot overlap.
            unsafe { filetype.pack(address, count, skip, out) };
        }
    }

    /// Copies data bytes to a window of the file from `data`, from `position` on. `window` holds
    /// the file's bytes from `window_start` on.
    ///
    /// # Panics
    /// If a data byte lies outside the window.
    pub fn scatter(&self, position: u64, data: &[u8], window: &mut [u8], window_start: u64) {
        self.check_window(position, data.len(), window.len(), window_start);
        let Some((address, count, skip)) = self.elements(
            position,
            data.len() as u64,
            window.as_mut_ptr(),
            window_start,
        ) else {
            let mut done = 0;
            for run in self.runs(position, data.len() as u64) {
                let (at, len) = ((run.offset - window_start) as usize, run.len as usize);
                window[at..at + len].copy_from_slice(&data[done..done + len]);
                done += len;
            }
            return;
        };
        if let Some((filetype, _)) = self.filetype() {
            // SAFETY: all data bytes lie within the window, which `data` cannot overlap.
            unsafe { filetype.unpack(address, count, skip, data) };
        }
    }

    /// For views whose offsets rise: the first and the last byte show where all are.
    fn check_window(&self, position: u64, len: usize, window_len: usize, window_start: u64) {
        if len > 0 && self.is_rising() {
            let span = self.span(position, len as u64);
            assert!(
                span.start >= window_start && span.end - window_start <= window_len as u64,
                "data bytes {span:?} of the file in a window of {window_len} from {window_start}"
            );
        }
    }

    /// The filetypes that hold the data: address of the first one in the window, which may lie
    /// outside, how many there are, and data bytes before `position`. `None` if the datatype's
    /// copying has no use: few filetypes tell nothing, or offsets do not rise.
    fn elements(
        &self,
        position: u64,
        len: u64,
        window: *mut u8,
        window_start: u64,
    ) -> Option<(*mut u8, i64, u64)> {
        if !self.is_rising() || len == 0 {
            return None;
        }
        let (filetype, displacement) = self.filetype()?;
        let (size, extent) = (filetype.size() as u64, filetype.extent() as u64);
        let (tile, skip) = (position / size, position % size);
        let start = displacement.checked_add(tile.checked_mul(extent)?)?;
        let count = i64::try_from((skip + len).div_ceil(size)).ok()?;
        let address = window.wrapping_offset(start.wrapping_sub(window_start) as isize);
        Some((address, count, skip))
    }
}
