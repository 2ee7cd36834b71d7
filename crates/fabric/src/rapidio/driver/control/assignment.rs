//! Mailbox numbers and dedicated queues, one of each for a request.
//!
//! Both are few. A request that finds none is postponed. Requests are served in their order, except
//! that one whose node has no mailbox left does not hold up those for other nodes. Nothing starves:
//! a mailbox of a node is freed together with a queue, and the oldest request of that node is then
//! the first that may take both.

use super::RequestId;
use crate::kernel::Rank;
use crate::rapidio::command::QueueId;
use std::collections::VecDeque;

/// A dedicated queue in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub request: RequestId,
    pub from: Rank,
    pub mailbox: u8,
}

/// All queues of this node, and the requests that wait for one.
pub(super) struct Assignment {
    /// Mailbox numbers of the card. Number 0 belongs to the general queue.
    mailboxes: u8,
    queues: Vec<Option<Binding>>,
    postponed: VecDeque<(RequestId, Rank)>,
}

impl Assignment {
    pub fn new(queues: u8, mailboxes: u8) -> Assignment {
        Assignment {
            mailboxes,
            queues: vec![None; queues.into()],
            postponed: VecDeque::new(),
        }
    }

    /// Adds a request for messages from a node.
    pub fn request(&mut self, request: RequestId, from: Rank) {
        self.postponed.push_back((request, from));
    }

    /// Binds the first request that there are a queue and a mailbox for.
    pub fn bind_next(&mut self) -> Option<(QueueId, Binding)> {
        let queue = self.queues.iter().position(Option::is_none)?;
        let (at, binding) =
            self.postponed
                .iter()
                .enumerate()
                .find_map(|(at, &(request, from))| {
                    let mailbox = self.free_mailbox(from)?;
                    let binding = Binding {
                        request,
                        from,
                        mailbox,
                    };
                    Some((at, binding))
                })?;
        self.postponed.remove(at);
        self.queues[queue] = Some(binding);
        Some((QueueId(queue as u8), binding))
    }

    /// A mailbox number that no open queue takes from this node.
    fn free_mailbox(&self, from: Rank) -> Option<u8> {
        (1..self.mailboxes).find(|&mailbox| {
            let mut bound = self.queues.iter().flatten();
            !bound.any(|b| b.from == from && b.mailbox == mailbox)
        })
    }

    /// The card has closed a queue. Returns what it was bound to.
    pub fn release(&mut self, queue: QueueId) -> Option<Binding> {
        self.queues.get_mut(usize::from(queue.0))?.take()
    }

    /// Drops the requests for messages from a node. Returns those and the ones that have a queue.
    /// The queues stay bound until [`Assignment::release_of`].
    pub fn forget(&mut self, node: Rank) -> Vec<RequestId> {
        let bound = self.queues.iter().flatten().filter(|b| b.from == node);
        let mut dropped: Vec<_> = bound.map(|b| b.request).collect();
        self.postponed.retain(|(request, from)| {
            if *from == node {
                dropped.push(*request);
            }
            *from != node
        });
        dropped
    }

    /// The card has closed all queues for a node.
    pub fn release_of(&mut self, node: Rank) {
        for queue in &mut self.queues {
            queue.take_if(|b| b.from == node);
        }
    }

    /// Queues that are open, and requests that are postponed.
    pub fn counts(&self) -> (usize, usize) {
        (self.queues.iter().flatten().count(), self.postponed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_request_is_bound_once_and_oldest_first(
            queues in 1u8..9,
            mailboxes in 2u8..6,
            steps in prop::collection::vec((0u32..4, any::<bool>(), 0usize..8), 1..200),
        ) {
            let mut all = Assignment::new(queues, mailboxes);
            let mut open: Vec<(QueueId, Binding)> = Vec::new();
            let mut bound_of = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
            let mut requested = 0;
            for (from, adds, which) in steps {
                if adds {
                    all.request(requested, from);
                    requested += 1;
                } else if !open.is_empty() {
                    let (queue, binding) = open.swap_remove(which % open.len());
                    prop_assert_eq!(all.release(queue), Some(binding));
                }
                while let Some((queue, binding)) = all.bind_next() {
                    prop_assert!(binding.mailbox > 0 && binding.mailbox < mailboxes);
                    prop_assert!(open.iter().all(|(q, b)| *q != queue
                        && (b.from, b.mailbox) != (binding.from, binding.mailbox)));
                    bound_of[binding.from as usize].push(binding.request);
                    open.push((queue, binding));
                }
            }
            // None starves: all are served once those before them have ended.
            while let Some((queue, _)) = open.pop() {
                all.release(queue);
                while let Some((queue, binding)) = all.bind_next() {
                    bound_of[binding.from as usize].push(binding.request);
                    open.push((queue, binding));
                }
            }
            prop_assert_eq!(all.counts(), (0, 0));
            prop_assert_eq!(bound_of.iter().map(Vec::len).sum::<usize>(), requested as usize);
            for one in bound_of {
                prop_assert!(one.is_sorted());
            }
        }
    }
}
