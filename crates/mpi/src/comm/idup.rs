//! Duplicating without blocking (MPI_Comm_idup, MPI 5.0 §7.4.2): the agreement goes on in the
//! background.

use super::{Comm, Hints};
use crate::attr::Attributes;
use crate::device::{
    self, ContextId, Device, Key, Pattern, ProcId, ReqId, SendMode, Sink, Source, Tags,
};
use crate::process::process;
use crate::request::{Flag, Request};
use crate::{Result, err};
use std::sync::{Arc, Mutex};

/// The new communicator's context, and that of its local communicator (0 if it has none).
type Words = [u8; 16];

/// Called with the duplicate once it is there, under the device's lock.
pub type Ready = Box<dyn FnOnce(Arc<Comm>) + Send>;

impl Comm {
    /// As [`Comm::duplicate`], without waiting: `ready` hears of the duplicate before the request
    /// completes. Copy callbacks run at once.
    ///
    /// Errors: what an attribute's copy callback says; what [`Hints::check`] says.
    pub fn begin_duplicate(self: &Arc<Comm>, hints: Hints, ready: Ready) -> Result<Arc<Request>> {
        hints.check()?;
        let tag = self.next_agreement();
        // Whatever the callbacks say: the other members count on this one's messages.
        let attributes = self.attributes.duplicate(self.identity.bits());
        let (ready, kept, failed) = match attributes {
            Ok(attributes) => (Some(ready), attributes, None),
            Err(e) => (None, Attributes::new(), Some(e)),
        };
        let flag = Arc::new(Flag::default());
        let mut work = Duplication::begin(self, tag, kept, hints, ready, flag.clone());
        let advance = move |d: &mut Device| work.advance(d);
        device::device().add_background(Arc::new(Mutex::new(advance)));
        match failed {
            None => Ok(Request::work(Some(self.clone()), flag)),
            Some(e) => Err(e),
        }
    }
}

/// One member's part.
struct Duplication {
    old: Arc<Comm>,
    attributes: Attributes,
    hints: Hints,
    ready: Option<Ready>,
    flag: Arc<Flag>,
    /// What this process knows by itself: all of it at the root, its own side's contexts at the
    /// leader of an intercommunicator.
    own: Words,
    /// The message to wait for, from the parent in the tree or from the other leader.
    awaited: Option<(ReqId, Box<Words>)>,
    /// The leader of one side of an intercommunicator: it has the other side's words to wait for,
    /// and its own to weigh.
    leads_side: bool,
    /// Whom to tell, how.
    children: Vec<ProcId>,
    tell: Key,
}

impl Duplication {
    fn begin(
        old: &Arc<Comm>,
        tag: u32,
        attributes: Attributes,
        hints: Hints,
        ready: Option<Ready>,
        flag: Arc<Flag>,
    ) -> Duplication {
        // The tree spans the local group, whose private communicator lends an intercommunicator its
        // control context.
        let (tree, tree_tag) = match &old.local {
            None => (old, tag),
            Some(local) => (local, local.next_agreement()),
        };
        let me = process().me;
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
            ready,
            flag,
            own: [0; 16],
            awaited: None,
            leads_side: rank == 0 && old.is_inter(),
            children: children
                .filter(|&r| r < size)
                .map(|r| tree.group.process(r))
                .collect(),
            tell: Key {
                context: tree.context.control(),
                source: me,
                tag: tree_tag,
            },
        };
        if rank == 0 {
            work.own[..8].copy_from_slice(&process().new_context().0.to_le_bytes());
        }
        if work.leads_side {
            work.own[8..].copy_from_slice(&process().new_context().0.to_le_bytes());
            let key = Key {
                context: old.context.control(),
                source: me,
                tag,
            };
            send(&mut device::device(), old.peer(0), key, work.own);
            work.expect(old.peer(0), key);
        } else if rank != 0 {
            work.expect(tree.group.process(rank - mask), work.tell);
        }
        work
    }

    /// Starts to receive the one message that this member needs.
    fn expect(&mut self, from: ProcId, key: Key) {
        let mut words = Box::new([0; 16]);
        let pattern = Pattern {
            context: key.context,
            source: Some(from),
            tag: Tags::one(key.tag),
        };
        let sink = Sink::Bytes {
            ptr: words.as_mut_ptr(),
            cap: words.len(),
        };
        // SAFETY: the box lives, untouched, until the receive has completed: `self` is dropped
        // after that only.
        let req = unsafe { device::device().receive_from(from, pattern, sink) };
        self.awaited = Some((req, words));
    }

    fn end(&mut self, words: Words) {
        let word =
            |at: usize| ContextId(u64::from_le_bytes(std::array::from_fn(|i| words[at + i])));
        if let Some(ready) = self.ready.take() {
            let attributes = std::mem::take(&mut self.attributes);
            let old = &self.old;
            let new = old.duplicate_with(word(0), word(8), attributes, &self.hints);
            ready(new);
        }
        self.flag.set(Ok(()));
    }
}

fn send(d: &mut Device, to: ProcId, key: Key, words: Words) {
    // SAFETY: the device owns the bytes.
    let started = unsafe { d.send(to, key, Source::Owned(Box::new(words)), SendMode::Standard) };
    if let Some(req) = started {
        d.detach(req);
    }
}

impl Duplication {
    /// Goes on as far as it can. True: it has ended.
    fn advance(&mut self, d: &mut Device) -> bool {
        let mut words = self.own;
        if let Some((req, received)) = &self.awaited {
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
            words = **received;
            if self.leads_side {
                // Both leaders take the smaller of the two contexts offered; the local one stays
                // each side's own.
                let offered = |words: &Words| u64::from_le_bytes(std::array::from_fn(|i| words[i]));
                let context = offered(&words).min(offered(&self.own));
                words = self.own;
                words[..8].copy_from_slice(&context.to_le_bytes());
            }
            self.awaited = None;
        }
        for &child in &self.children {
            send(d, child, self.tell, words);
        }
        self.end(words);
        true
    }
}
