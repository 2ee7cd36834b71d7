//! The checker (`mpiexec --machine-check`): names programming of the card that hardware would
//! accept and get wrong.

use super::receiver::{OpenQueue, Receiver};
use crate::rapidio::command::{Command, MESSAGE_MAX_BYTES, Piece, QueueId, SEGMENT_MAX_BYTES};

/// What a card is programmed for.
pub struct Programming {
    /// Alignment of physical addresses.
    pub alignment: u64,
    /// Number of mailboxes.
    pub mailboxes: u32,
    /// Messages that one programming of a dedicated queue can describe.
    pub list: usize,
    /// Most bytes of an NREAD or NWRITE.
    pub io: usize,
}

impl Programming {
    /// What is wrong with a command, if something is. `receiver` is the receiving half of the same
    /// card.
    pub fn check(&self, command: &Command<'_>, receiver: &Receiver) -> Option<String> {
        match command {
            Command::Send {
                mailbox, pieces, ..
            } => self
                .check_mailbox(*mailbox)
                .or_else(|| self.check_pieces(pieces, false)),
            Command::Expect {
                queue,
                from,
                mailbox,
                pieces,
            } => self
                .check_mailbox(*mailbox)
                .or_else(|| self.check_pieces(pieces, true))
                .or_else(|| {
                    let most = self.list;
                    (pieces.len() > most).then(|| {
                        format!(
                            "{} messages; one queue describes at most {most}",
                            pieces.len()
                        )
                    })
                })
                .or_else(|| check_binding(*queue, *from, *mailbox, receiver)),
            Command::Write { data, .. } => self.check_io(data.len()),
            Command::Read { bytes, .. } => self.check_io((*bytes).into()),
            Command::Release { .. }
            | Command::Doorbell { .. }
            | Command::Segment { .. }
            | Command::Forget { .. }
            | Command::Fault { .. } => None,
        }
    }

    fn check_mailbox(&self, mailbox: u8) -> Option<String> {
        let most = self.mailboxes;
        (u32::from(mailbox) >= most).then(|| format!("mailbox {mailbox}; there are {most}"))
    }

    fn check_pieces(&self, pieces: &[Piece], is_dedicated: bool) -> Option<String> {
        if pieces.is_empty() {
            return Some("no message".into());
        }
        let alignment = self.alignment;
        (0..).zip(pieces).find_map(|(n, piece): (usize, _)| {
            let bytes = usize::from(piece.bytes);
            if !(1..=MESSAGE_MAX_BYTES).contains(&bytes) {
                return Some(format!(
                    "message {n} has {bytes} bytes; it can have from 1 to {MESSAGE_MAX_BYTES}"
                ));
            }
            if !piece.at.0.is_multiple_of(alignment) {
                return Some(format!(
                    "message {n} lies at physical address {:#x}, which is no multiple of \
                     {alignment}: the card drops the low bits",
                    piece.at.0
                ));
            }
            let is_rounded = bytes <= SEGMENT_MAX_BYTES || bytes.is_multiple_of(SEGMENT_MAX_BYTES);
            (is_dedicated && !is_rounded).then(|| {
                format!(
                    "message {n} has {bytes} bytes, which is not rounded up to \
                     {SEGMENT_MAX_BYTES}: a last segment that comes first is written beyond them"
                )
            })
        })
    }

    fn check_io(&self, bytes: usize) -> Option<String> {
        let most = self.io;
        (bytes == 0 || bytes > most)
            .then(|| format!("{bytes} bytes; a transaction moves from 1 to {most}"))
    }
}

fn check_binding(queue: QueueId, from: u32, mailbox: u8, receiver: &Receiver) -> Option<String> {
    receiver.open_queues().find_map(|(id, open)| {
        if id == queue {
            return Some(format!("dedicated queue {} is open already", id.0));
        }
        let is_bound = (open.from, open.mailbox) == (from, mailbox);
        is_bound.then(|| {
            format!(
                "mailbox {mailbox} of node {from} is bound to dedicated queue {} already, which \
                 takes all of its messages",
                id.0
            )
        })
    })
}

/// What is wrong with a queue that is open when nothing is under way any more.
pub fn incomplete(id: QueueId, queue: &OpenQueue) -> String {
    format!(
        "dedicated queue {} for mailbox {} of node {} is programmed for {} messages, and {} came",
        id.0,
        queue.mailbox,
        queue.from,
        queue.pieces.len(),
        queue.landed
    )
}
