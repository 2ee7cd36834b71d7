//! Failed transports. Pending operations with a lost peer fail. Later operations that need the peer
//! fail at once.

use crate::base::key::{ContextId, ProcId};
use crate::base::request::{Completion, Fault, Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use crate::protocol::foreign_members::may_send_in;
use ferry_transport::TransportError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last failure of a transport of this process.
static LAST_FAILURE: Mutex<Option<String>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<String>> {
    LAST_FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a transport has failed, if one has. May be called with the device or without it.
pub fn last_failure() -> Option<String> {
    lock().clone()
}

/// Records why a transport has failed, unless another failure is recorded.
#[cold]
pub(crate) fn record_first(e: &TransportError) {
    lock().get_or_insert_with(|| e.to_string());
}

/// Returns whether a transport has failed as a whole, so that no peer may be heard of any more.
pub fn failed_wholly() -> bool {
    FAILED_WHOLLY.load(Ordering::Relaxed)
}

static FAILED_WHOLLY: AtomicBool = AtomicBool::new(false);

/// Processes whose transport has failed: no message of them arrives any more.
#[derive(Default)]
pub(crate) struct LostPeers {
    /// Each with the number of the loss, from 1 on.
    peers: BTreeMap<ProcId, u64>,
    losses: u64,
    /// All processes are lost.
    all: bool,
    /// In which communicators the loss of a peer has failed an operation without a named source.
    reported: BTreeSet<(ContextId, ProcId)>,
}

impl LostPeers {
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && !self.all
    }

    /// Is this process one of them?
    #[inline]
    pub fn contains(&self, peer: ProcId) -> bool {
        !self.is_empty() && (self.all || self.peers.contains_key(&peer))
    }

    /// How many losses there have been.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// Returns whether there are lost members that no operation of the communicator has failed for,
    /// or that were lost after the first `since` losses. They count as reported from now on.
    pub fn report_losses(
        &mut self,
        context: ContextId,
        since: u64,
        is_member: impl Fn(ProcId) -> bool,
    ) -> bool {
        let mut is_new = self.all;
        for (&peer, &loss) in self.peers.iter().filter(|&(&peer, _)| is_member(peer)) {
            is_new |= self.reported.insert((context.of_comm(), peer)) || loss > since;
        }
        is_new
    }

    /// Returns whether the loss is new.
    fn insert(&mut self, peer: ProcId) -> bool {
        let new = !self.peers.contains_key(&peer);
        if new {
            self.losses += 1;
            self.peers.insert(peer, self.losses);
        }
        new
    }

    fn remove(&mut self, peer: ProcId) {
        if self.peers.remove(&peer).is_some() {
            self.reported.retain(|&(_, lost)| lost != peer);
        }
    }
}

impl Worker {
    /// A request that has failed at once: no transport accepts its message.
    #[cold]
    pub fn failed_request(&mut self, e: TransportError) -> ReqId {
        if matches!(e, TransportError::DescriptorClosed) {
            self.fail_transport(&e);
        }
        let req = self.engine.requests.insert(Operation::Failed);
        record_first(&e);
        let completion = Completion {
            fault: Some(Fault::Transport),
            ..Completion::EMPTY
        };
        self.engine.requests.complete(req, completion);
        req
    }

    /// A transport has failed: the pending operations with its peer fail. All receives that have
    /// not matched fail too, because their message may be one of that peer. If that is a process of
    /// another job, those of the communicators in which it is.
    #[cold]
    pub fn fail_transport(&mut self, e: &TransportError) {
        *lock() = Some(e.to_string());
        match e.peer() {
            Some(peer) => {
                if self.engine.lost_peers.insert(peer) {
                    // Before the requests end, and their memory is the program's again.
                    self.transports.forget_lost_peer(peer);
                }
                self.engine.fail_peer(peer);
            }
            None => {
                FAILED_WHOLLY.store(true, Ordering::Relaxed);
                self.engine.lost_peers.all |= matches!(e, TransportError::DescriptorClosed);
                self.engine.requests.fail_all(Fault::Transport);
            }
        }
    }

    /// Drops what is known of a peer whose process number may become another process's.
    pub fn forget_peer(&mut self, peer: ProcId) {
        self.engine.fail_sends_to(peer);
        self.engine.lost_peers.remove(peer);
    }
}

impl Engine {
    /// Fails the sends to `peer`. Each protocol drops its state of the peer.
    fn fail_sends_to(&mut self, peer: ProcId) {
        let mut failed = self.outbox.forget(peer);
        self.streams.forget(peer);
        self.withdrawables.forget(peer);
        self.speculative.forget(peer);
        self.early_cts.forget(peer);
        failed.extend(self.deferred.forget(peer));
        for req in failed {
            self.requests.fail(req, Fault::Transport);
        }
    }

    /// Fails what cannot complete without `peer`.
    fn fail_peer(&mut self, peer: ProcId) {
        self.fail_sends_to(peer);
        let mut failed = Vec::new();
        let mut unmatched = Vec::new();
        let foreign = peer >= self.size;
        for (req, operation) in self.requests.iter_pending() {
            match operation {
                Operation::Receive {
                    context,
                    stream: None,
                    ..
                } if foreign && !may_send_in(peer, *context) => {}
                Operation::SendSync { to } | Operation::SendLarge { to, .. } if *to == peer => {
                    failed.push(req);
                }
                Operation::Receive {
                    stream: Some(stream),
                    ..
                } if stream.from == peer => failed.push(req),
                Operation::Receive {
                    context,
                    stream: None,
                    ..
                } => unmatched.push((*context, req)),
                _ => {}
            }
        }
        for (context, req) in unmatched {
            if self.matcher.withdraw(context, req) {
                self.lost_peers.reported.insert((context.of_comm(), peer));
                failed.push(req);
            }
        }
        for req in failed {
            self.requests.fail(req, Fault::Transport);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_reported_once_in_each_communicator_and_to_whom_waits_already() {
        let mut lost = LostPeers::default();
        let (a, b) = (ContextId::random(1 << 20), ContextId::random(2 << 20));
        let all = |_| true;
        assert!(!lost.report_losses(a, 0, all));
        assert!(lost.insert(3) && !lost.insert(3) && lost.losses() == 1);
        assert!(!lost.report_losses(a, 1, |p| p == 4), "it is no member");
        assert!(lost.report_losses(a, 1, all) && !lost.report_losses(a.collective(), 1, all));
        assert!(lost.report_losses(b, 1, all), "another communicator");
        assert!(
            lost.report_losses(a, 0, all),
            "who has waited since before the loss"
        );
        assert!(lost.insert(4) && lost.report_losses(a, 2, all) && !lost.report_losses(a, 2, all));
        lost.remove(3);
        assert!(!lost.contains(3) && lost.insert(3) && lost.report_losses(a, 3, all));
        let none = LostPeers {
            all: true,
            ..LostPeers::default()
        };
        assert!(!none.is_empty() && none.contains(0) && none.contains(7));
    }
}
