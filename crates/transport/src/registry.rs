//! The wires of a process: which there are, and which one leads to whom.

use crate::self_loop::SelfLoop;
use crate::shm::{Board, Shm};
use crate::{Answer, Body, Features, Inbox, ProcId, ReadError, Transport, TransportError};
use ferry_job::{Segment, Welcome};
use std::sync::atomic::AtomicU32;

/// All wires of this process. The first that reaches a peer carries its messages.
pub struct Wires {
    me: ProcId,
    itself: SelfLoop,
    shm: Option<Shm>,
}

/// The bell of a process that no peer can ring: its own threads do.
static OWN_BELL: AtomicU32 = AtomicU32::new(0);

/// Opens every transport that this process can use.
pub fn open(welcome: &Welcome, segment: Option<Segment>) -> Result<Wires, TransportError> {
    let shm = match segment {
        Some(segment) if welcome.local_ranks.len() > 1 => Some(Shm::open(
            segment,
            welcome.local_ranks.clone(),
            welcome.local_rank as usize,
            welcome.job,
        )?),
        _ => None,
    };
    Ok(Wires {
        me: welcome.rank,
        itself: SelfLoop::new(welcome.rank),
        shm,
    })
}

impl Wires {
    fn unreachable(&self, peer: ProcId) -> TransportError {
        TransportError::Unreachable {
            peer,
            tried: if self.shm.is_some() {
                "self, shm"
            } else {
                "self"
            }
            .into(),
        }
    }

    /// What can be done for `peer`.
    pub fn features(&self, peer: ProcId) -> Result<Features, TransportError> {
        if peer == self.me {
            return Ok(self.itself.features(peer));
        }
        match &self.shm {
            Some(shm) if shm.reaches(peer) => Ok(shm.features(peer)),
            _ => Err(self.unreachable(peer)),
        }
    }

    /// [`Transport::send`] on the wire to `to`.
    #[inline]
    pub fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError> {
        if to == self.me {
            return self.itself.send(to, message, head, body);
        }
        match &mut self.shm {
            Some(shm) => shm.send(to, message, head, body),
            None => Err(self.unreachable(to)),
        }
    }

    /// [`Transport::poll`] on every wire.
    #[inline]
    pub fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let mut delivered = self.itself.poll(inbox)?;
        if let Some(shm) = &mut self.shm {
            delivered += shm.poll(inbox)?;
        }
        Ok(delivered)
    }

    /// [`Transport::read`] on the wire to `from`.
    ///
    /// # Safety
    /// The local runs must be writable.
    pub unsafe fn read(
        &mut self,
        from: ProcId,
        address: u64,
        into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            if from == self.me {
                return self.itself.read(from, address, into);
            }
            match &mut self.shm {
                Some(shm) => shm.read(from, address, into),
                None => Err(ReadError::Refused),
            }
        }
    }

    /// [`Transport::arm`] on every wire.
    pub fn arm(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.arm();
        }
    }

    /// [`Transport::disarm`] on every wire.
    pub fn disarm(&mut self) {
        if let Some(shm) = &mut self.shm {
            shm.disarm();
        }
    }

    /// [`Transport::lend_board`] on the wire that has boards.
    pub fn lend_board(&mut self, members: u32) -> Option<u32> {
        self.shm.as_mut()?.lend_board(members)
    }

    /// [`Transport::board`] on the wire that has boards.
    pub fn board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<Board> {
        self.shm.as_mut()?.board(owner, number, members)
    }

    /// [`Transport::rouse`] on the wire that has boards.
    #[inline]
    pub fn rouse(&self, peer: ProcId) {
        if let Some(shm) = &self.shm {
            shm.rouse(peer);
        }
    }

    /// The word on which this process sleeps.
    pub fn doorbell(&self) -> &'static AtomicU32 {
        self.shm
            .as_ref()
            .and_then(|s| s.doorbell())
            .unwrap_or(&OWN_BELL)
    }

    /// Names of the wires that are open, for reports.
    pub fn names(&self) -> Vec<&'static str> {
        let shm = self.shm.as_ref().map(|s| s.name());
        std::iter::once(self.itself.name()).chain(shm).collect()
    }
}
