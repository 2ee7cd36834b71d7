//! Large messages in fragments.

use super::Transports;
use crate::{Body, Fragments, ProcId, SendStatus, TransportError};

impl Transports {
    /// [`Transport::fragments`](crate::Transport::fragments) on the transport to `to`.
    pub fn fragments(
        &mut self,
        to: ProcId,
        head: usize,
        awaited: bool,
    ) -> Result<Fragments, TransportError> {
        Ok(self.transport(to)?.fragments(to, head, awaited))
    }

    /// [`Transport::send_fragment`](crate::Transport::send_fragment) on the transport to `to`.
    pub fn send_fragment(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
        awaited: bool,
    ) -> Result<SendStatus, TransportError> {
        self.transport(to)?
            .send_fragment(to, message, head, body, awaited)
    }

    /// [`Transport::first_touches`](crate::Transport::first_touches) on the transport to `peer`.
    pub fn first_touches(&mut self, peer: ProcId) -> u64 {
        self.transport(peer)
            .map_or(0, |transport| transport.first_touches(peer))
    }
}
