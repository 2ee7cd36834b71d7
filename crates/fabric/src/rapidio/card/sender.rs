//! The sending half of a card: its send list, letters, and what it resends.

use super::packet::{LETTERS, Message, Segment};
use crate::rapidio::command::SendId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A message in the send list.
#[derive(Debug)]
pub struct Listed {
    /// The node that it is for.
    pub to: u32,
    /// Its mailbox number.
    pub mailbox: u8,
    /// The driver's number, if the driver wants to know that it is accepted.
    pub id: Option<SendId>,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A message that has left the list and is not accepted whole.
#[derive(Debug)]
struct Flight {
    id: Option<SendId>,
    /// Segments that are not accepted, a bit each.
    missing: u16,
}

/// The messages for one node with one mailbox number.
#[derive(Debug, Default)]
struct Stream {
    /// Number of the oldest message in `flights`.
    base: u64,
    /// In order of their numbers. At most [`LETTERS`].
    flights: VecDeque<Flight>,
}

/// The sending half of a card.
#[derive(Debug, Default)]
pub struct Sender {
    list: VecDeque<Listed>,
    streams: FxHashMap<(u32, u8), Stream>,
    /// Nodes that the driver has forgotten.
    forgotten: BTreeSet<u32>,
    /// A message is being put onto the link, or is about to be.
    pub is_busy: bool,
}

impl Sender {
    /// Appends a message to the send list.
    pub fn append(&mut self, message: Listed) {
        self.list.push_back(message);
    }

    /// Drops the messages to a node, those under way and those to come. Returns the driver's
    /// numbers of the former.
    pub fn forget(&mut self, node: u32) -> Vec<SendId> {
        self.forgotten.insert(node);
        let mut dropped = Vec::new();
        self.streams.retain(|(to, _), stream| {
            if *to == node {
                dropped.extend(stream.flights.iter().filter_map(|f| f.id));
            }
            *to != node
        });
        self.list.retain(|message| {
            if message.to == node {
                dropped.extend(message.id);
            }
            message.to != node
        });
        dropped
    }

    /// Returns whether the driver has forgotten a node.
    pub fn is_forgotten(&self, node: u32) -> bool {
        self.forgotten.contains(&node)
    }

    /// Takes the first message of the list whose stream has a free letter.
    pub fn take(&mut self, from: u32) -> Option<Arc<Message>> {
        let streams = &self.streams;
        let has_letter = |m: &Listed| {
            let stream = streams.get(&(m.to, m.mailbox));
            stream.is_none_or(|s| (s.flights.len() as u64) < LETTERS)
        };
        let place = self.list.iter().position(has_letter)?;
        let listed = self.list.remove(place)?;
        let stream = self.streams.entry((listed.to, listed.mailbox)).or_default();
        let number = stream.base + stream.flights.len() as u64;
        let message = Message {
            from,
            to: listed.to,
            mailbox: listed.mailbox,
            letter: (number % LETTERS) as u8,
            data: listed.data,
        };
        stream.flights.push_back(Flight {
            id: listed.id,
            missing: u16::MAX >> (16 - message.segments()),
        });
        Some(Arc::new(message))
    }

    /// A segment has been accepted. Returns the driver's numbers of messages that are accepted
    /// whole, in order, and whether a letter has become free.
    pub fn accepted(&mut self, segment: &Segment) -> (Vec<SendId>, bool) {
        let message = &segment.message;
        let Some(stream) = self.streams.get_mut(&(message.to, message.mailbox)) else {
            return (Vec::new(), false);
        };
        let place = (u64::from(message.letter) + LETTERS - stream.base % LETTERS) % LETTERS;
        if let Some(flight) = stream.flights.get_mut(place as usize) {
            flight.missing &= !(1 << segment.number);
        }
        let mut done = Vec::new();
        let mut freed = false;
        while let Some(flight) = stream.flights.front()
            && flight.missing == 0
        {
            done.extend(flight.id);
            freed = true;
            stream.base += 1;
            stream.flights.pop_front();
        }
        (done, freed)
    }

    /// Messages in the list and under way.
    pub fn unfinished(&self) -> usize {
        let flights: usize = self.streams.values().map(|s| s.flights.len()).sum();
        self.list.len() + flights
    }
}
