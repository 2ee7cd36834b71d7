//! Non-blocking duplication (MPI_Comm_idup, MPI 5.0 §7.4.2). The agreement runs in the background.

use super::{Comm, Hints};
use crate::attr::Attributes;
use crate::device::{
    self, ContextId, Device, Key, Pattern, ProcId, ReqId, SendMode, Sink, Source, Tags,
};
use crate::process::process;
use crate::request::{Flag, Request};
use crate::{Result, err};
use std::sync::{Arc, Mutex};

/// Contexts of the duplicate and of its local communicator (0 if it has none), 8 bytes each.
type ContextPair = [u8; 16];

/// Called with the duplicate once it exists, under the device's lock.
pub type OnDuplicate = Box<dyn FnOnce(Arc<Comm>) + Send>;

impl Comm {
    /// Non-blocking [`Comm::duplicate`]. `on_duplicate` gets the duplicate before the request
    /// completes. Copy callbacks run at once.
    ///
    /// Errors: an attribute's copy callback's; those of [`Hints::check`].
    pub fn idup(self: &Arc<Comm>, hints: Hints, on_duplicate: OnDuplicate) -> Result<Arc<Request>> {
        hints.check()?;
        let tag = self.next_agreement();
        // Starts even if a callback fails, because other members need this member's messages.
        let attributes = self.attributes.duplicate(self.identity.bits());
        let (on_duplicate, kept, failed) = match attributes {
            Ok(attributes) => (Some(on_duplicate), attributes, None),
            Err(e) => (None, Attributes::new(), Some(e)),
        };
        let flag = Arc::new(Flag::default());
        let mut work = Duplication::start(self, tag, kept, hints, on_duplicate, flag.clone());
        let advance = move |d: &mut Device| work.advance(d);
        device::device().add_background(Arc::new(Mutex::new(advance)));
        match failed {
            None => Ok(Request::work(Some(self.clone()), flag)),
            Some(e) => Err(e),
        }
    }
}

/// One member's part in the agreement.
struct Duplication {
    old: Arc<Comm>,
    attributes: Attributes,
    hints: Hints,
    on_duplicate: Option<OnDuplicate>,
    flag: Arc<Flag>,
    /// Contexts that this process allocated: both at the root, those of its own side at the leader
    /// of an intercommunicator.
    own: ContextPair,
    /// Receive of the one message that this member needs, from its parent in the tree or from the
    /// other leader.
    pending_receive: Option<(ReqId, Box<ContextPair>)>,
    /// This is the leader of one side of an intercommunicator. It takes the smaller of both sides'
    /// contexts.
    is_side_leader: bool,
    /// Children in the tree, and the key of the messages to them.
    children: Vec<ProcId>,
    child_key: Key,
}

impl Duplication {
    fn start(
        old: &Arc<Comm>,
        tag: u32,
        attributes: Attributes,
        hints: Hints,
        on_duplicate: Option<OnDuplicate>,
        flag: Arc<Flag>,
    ) -> Duplication {
        // The tree spans the local group. An intercommunicator uses the control context of its
        // local communicator.
        let (tree, tree_tag) = match &old.local {
            None => (old, tag),
            Some(local) => (local, local.next_agreement()),
        };
        let (rank, size) = (tree.rank(), tree.size());
        let mut mask = 1;
        while mask < size && rank & mask == 0 {
            mask <<= 1;
        }
        let children = std::iter::successors(Some(mask >> 1), |m| Some(m >> 1))
            .take_while(|&m| m > 0)
            .map(|m| rank + m);
        let mut work = Duplication {
            old: old.clone(),
            attributes,
            hints,
            on_duplicate,
            flag,
            own: [0; 16],
            pending_receive: None,
            is_side_leader: rank == 0 && old.is_inter(),
            children: children
                .filter(|&r| r < size)
                .map(|r| tree.group.process(r))
                .collect(),
            child_key: Key {
                context: tree.context.control(),
                source: rank,
                tag: tree_tag,
            },
        };
        if rank == 0 {
            work.own[..8].copy_from_slice(&process().new_context().0.to_le_bytes());
        }
        if work.is_side_leader {
            work.own[8..].copy_from_slice(&process().new_context().0.to_le_bytes());
            let key = Key {
                context: old.context.control(),
                // Both leaders are rank 0 of their side.
                source: 0,
                tag,
            };
            send(&mut device::device(), old.peer(0), key, work.own);
            work.post_receive(old.peer(0), key);
        } else if rank != 0 {
            let key = Key {
                source: rank - mask,
                ..work.child_key
            };
            work.post_receive(tree.group.process(rank - mask), key);
        }
        work
    }

    /// Posts the receive of the one message that this member needs.
    fn post_receive(&mut self, from: ProcId, key: Key) {
        let mut contexts = Box::new([0; 16]);
        let pattern = Pattern {
            context: key.context,
            source: Some(key.source),
            tag: Tags::one(key.tag),
        };
        let sink = Sink::Bytes {
            ptr: contexts.as_mut_ptr(),
            cap: contexts.len(),
        };
        // SAFETY: the box is not accessed until the receive has completed. `self` is dropped after
        // that.
        let req = unsafe { device::device().receive_from(from, pattern, sink) };
        self.pending_receive = Some((req, contexts));
    }

    fn complete(&mut self, contexts: ContextPair) {
        let word = |at: usize| {
            ContextId(u64::from_le_bytes(std::array::from_fn(|i| {
                contexts[at + i]
            })))
        };
        if let Some(on_duplicate) = self.on_duplicate.take() {
            let attributes = std::mem::take(&mut self.attributes);
            let old = &self.old;
            let new = old.duplicate_with(word(0), word(8), attributes, &self.hints);
            on_duplicate(new);
        }
        self.flag.set(Ok(()));
    }
}

fn send(d: &mut Device, to: ProcId, key: Key, contexts: ContextPair) {
    // SAFETY: the device owns the bytes.
    let started = unsafe {
        d.send(
            to,
            key,
            Source::Owned(Box::new(contexts)),
            SendMode::Standard,
        )
    };
    if let Some(req) = started {
        d.detach(req);
    }
}

impl Duplication {
    /// Advances the agreement. True if it is complete.
    fn advance(&mut self, d: &mut Device) -> bool {
        let mut contexts = self.own;
        if let Some((req, received)) = &self.pending_receive {
            if !d.is_complete(*req) {
                return false;
            }
            if let Some(fault) = d.take(*req).fault {
                let cause = device::last_failure().unwrap_or_else(|| fault.to_string());
                self.flag.set(Err(err!(
                    Other,
                    "a message about a new communicator was lost: {cause}"
                )));
                return true;
            }
            contexts = **received;
            if self.is_side_leader {
                // Both leaders take the smaller of the two contexts offered. Each side keeps its
                // own local context.
                let offered = |contexts: &ContextPair| {
                    u64::from_le_bytes(std::array::from_fn(|i| contexts[i]))
                };
                let context = offered(&contexts).min(offered(&self.own));
                contexts = self.own;
                contexts[..8].copy_from_slice(&context.to_le_bytes());
            }
            self.pending_receive = None;
        }
        for &child in &self.children {
            send(d, child, self.child_key, contexts);
        }
        self.complete(contexts);
        true
    }
}
