//! Coalescing of eager messages, on the transports that do it.

use super::{ROUTE_SHM, Transports};
use crate::{Body, ProcId, SendStatus, Transport, TransportError};

impl Transports {
    /// [`Transport::send_eager`] on the transport to `to`.
    #[inline]
    pub fn send_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        match (self.route(to)?, &mut self.shm) {
            (ROUTE_SHM, Some(shm)) => shm.send(to, message, head, body),
            _ => self.transport(to)?.send_eager(to, message, head, body),
        }
    }

    /// [`Transport::set_coalescing`] on every transport.
    pub fn set_coalescing(&mut self, coalesces: bool) {
        for transport in &mut self.others {
            transport.set_coalescing(coalesces);
        }
    }

    /// [`Transport::flush_coalesced`] on every transport.
    #[inline]
    pub fn flush_coalesced(&mut self) {
        for transport in &mut self.others {
            transport.flush_coalesced();
        }
    }
}
