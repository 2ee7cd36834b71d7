//! Responses of the target's service to one origin, collected in packets.

use super::packets::{HEADER_BYTES, Head, PacketKind, RECORD_MAX_BYTES, Refused, Response};
use super::pending::PACKET_MAX_BYTES;
use crate::Error;
use crate::device::{Device, ProcId};
use crate::win::Win;

/// Longest text of an error that is sent, bytes.
const TEXT_MAX_BYTES: usize = 400;

/// Responses to one origin.
pub(super) struct Responses<'a> {
    win: &'a Win,
    pub process: ProcId,
    pub packet: Vec<u8>,
}

impl<'a> Responses<'a> {
    pub fn new(win: &'a Win, rank: u32) -> Responses<'a> {
        Responses {
            win,
            process: win.comm.peer(rank),
            packet: Vec::new(),
        }
    }

    /// Makes room for a record with `len` bytes of data. False: there is never so much room.
    pub fn make_room(&mut self, d: &mut Device, len: usize) -> bool {
        let (max, record) = (d.active_max(self.process), RECORD_MAX_BYTES + len);
        if HEADER_BYTES + record > max {
            return false;
        }
        // As long as a packet of requests, so that they are as fast on their way.
        if self.packet.len() + record > max.min(PACKET_MAX_BYTES) {
            self.send(d);
        }
        if self.packet.is_empty() {
            let head = Head {
                context: self.win.comm.context.0,
                rank: self.win.rank(),
                kind: PacketKind::Responses,
            };
            head.put(&mut self.packet);
        }
        true
    }

    pub fn push(&mut self, d: &mut Device, response: Response<'_>) {
        let len = match response {
            Response::Data(data) => data.len(),
            Response::Error(_, _, text) => text.len(),
            Response::Acknowledged(_) | Response::Post => 0,
        };
        if self.make_room(d, len) {
            response.put(&mut self.packet);
        }
    }

    pub fn refuse(&mut self, d: &mut Device, refused: Refused, error: &Error) {
        let text = error.text();
        let longest = TEXT_MAX_BYTES.min(d.active_max(self.process) / 4);
        let mut end = longest.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.push(d, Response::Error(error.kind(), refused, &text[..end]));
    }

    pub fn send(&mut self, d: &mut Device) {
        if !self.packet.is_empty() {
            let packet = std::mem::take(&mut self.packet);
            d.send_active(self.process, packet.into_boxed_slice());
        }
    }
}
