//! The one device of this process, and its lock.

use crate::core::Device;
use std::ops::{Deref, DerefMut};

/// Exclusive use of the device until dropped.
pub struct DeviceGuard {
    device: &'static mut Device,
}

impl Deref for DeviceGuard {
    type Target = Device;
    #[inline]
    fn deref(&self) -> &Device {
        self.device
    }
}
impl DerefMut for DeviceGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Device {
        self.device
    }
}

/// Takes the device's lock. Panics if the device has not been started. Not reentrant: never call user code with it held.
#[inline]
pub fn device() -> DeviceGuard {
    todo!()
}

/// Starts the device of this process. `concurrent`: will several threads call MPI at once (MPI_THREAD_MULTIPLE)?
pub fn start(place: ferry_job::Place, concurrent: bool) -> Result<(), ferry_transport::TransportError> {
    let _ = (place, concurrent);
    todo!()
}

/// Completes what others still need of this process, then stops the device.
pub fn finish() {
    todo!()
}
