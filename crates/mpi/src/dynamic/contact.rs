//! The launchers of two jobs that were started apart get to know each other, through the roots of
//! the groups that connect: so they can find that both jobs hang.

use super::Relation;
use super::group_info::VERSION;
use crate::Result;
use crate::comm::agree::{Reader, put_framed, put_u64};
use crate::process::process;
use ferry_job::{NameRequest, NameSocket};
use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a root says of its group, with the contact of its launcher
/// ([`ferry_job::NameRequest::Contact`]), which only roots and launchers know. Empty: there is
/// none.
pub(super) fn with_contact(contact: &str, mut side: Vec<u8>) -> Vec<u8> {
    let rest = side.split_off(size_of::<u64>());
    put_framed(&mut side, contact.as_bytes());
    side.extend(rest);
    side
}

/// The reverse of [`with_contact`].
pub(super) fn without_contact(said: Vec<u8>) -> Result<(Vec<u8>, String)> {
    let mut reader = Reader(&said);
    let mut side = Vec::new();
    let version = reader.u64()?;
    put_u64(&mut side, version);
    if version != VERSION {
        // It says so when it is read.
        return Ok((side, String::new()));
    }
    let contact = String::from_utf8_lossy(reader.framed()?).into_owned();
    side.extend(reader.0);
    Ok((side, contact))
}

/// Where this process's launcher listens, once it has said so. Empty: nowhere.
static CONTACT: OnceLock<String> = OnceLock::new();

/// Were the jobs of the two groups started apart, so that their launchers do not know each other?
pub(super) fn are_started_apart(relation: Relation) -> bool {
    matches!(relation, Relation::AnyJob | Relation::KnownJob)
}

/// Asks this process's launcher where it listens for those of jobs that were started apart. `None`:
/// it is known, or need not be.
pub(super) fn ask_contact(relation: Relation) -> Option<NameSocket> {
    let client = process().client().filter(|_| are_started_apart(relation))?;
    match CONTACT.get() {
        Some(_) => None,
        None => client.begin_to_ask(&NameRequest::Contact).ok(),
    }
}

/// Where it listens. Empty: nowhere, or the jobs were not started apart. `asked`: the question.
pub(super) fn contact(relation: Relation, asked: Option<NameSocket>) -> String {
    if let Some(Ok(Some(contact))) = asked.map(NameSocket::answer) {
        let _ = CONTACT.set(contact);
    }
    let contact = CONTACT.get().filter(|_| are_started_apart(relation));
    contact.cloned().unwrap_or_default()
}

/// Tells this process's launcher of the other job's, so that both can find that the jobs hang.
pub(super) fn tell_launcher(contact: String) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if let Some(client) = process().client() {
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(contact.clone()) {
            // Nobody waits for the answer. If it gets lost, the launchers do not look for hangs.
            drop(client.begin_to_ask(&NameRequest::JobConnected { contact }));
        }
    }
}
