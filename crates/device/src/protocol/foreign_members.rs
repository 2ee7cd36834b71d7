//! In which communicators processes of other jobs are. When one is lost, only what may come from it
//! fails: a process may know several jobs, and has communicators of its own job.

use crate::base::key::{ContextId, ProcId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often a process is in a communicator, which may have been counted twice while it is made.
static MEMBERS: Mutex<BTreeMap<(ContextId, ProcId), usize>> = Mutex::new(BTreeMap::new());

fn members() -> MutexGuard<'static, BTreeMap<(ContextId, ProcId), usize>> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// These processes of other jobs may send messages in a communicator's contexts. May be called with
/// the device or without it.
pub fn add_foreign_members(context: ContextId, processes: &[ProcId]) {
    let mut members = members();
    for &process in processes {
        *members.entry((context.of_comm(), process)).or_default() += 1;
    }
}

/// Takes back one [`add_foreign_members`].
pub fn remove_foreign_members(context: ContextId, processes: &[ProcId]) {
    let mut members = members();
    for &process in processes {
        let key = (context.of_comm(), process);
        if let Some(count) = members.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                members.remove(&key);
            }
        }
    }
}

/// May a process of another job send messages in this context?
pub(crate) fn may_send_in(process: ProcId, context: ContextId) -> bool {
    members().contains_key(&(context.of_comm(), process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_that_were_added_and_not_removed() {
        let (a, b) = (ContextId::random(1 << 20), ContextId::random(2 << 20));
        add_foreign_members(a, &[7, 8]);
        add_foreign_members(a, &[7]);
        add_foreign_members(b, &[8]);
        assert!(may_send_in(7, a) && may_send_in(8, a.collective()) && may_send_in(8, b));
        assert!(!may_send_in(7, b) && !may_send_in(9, a));
        remove_foreign_members(a, &[7, 8]);
        assert!(may_send_in(7, a) && !may_send_in(8, a));
        remove_foreign_members(a, &[7]);
        assert!(!may_send_in(7, a) && may_send_in(8, b));
        remove_foreign_members(b, &[8]);
    }
}
