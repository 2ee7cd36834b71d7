//! What the transports deliver: each type of message goes to its protocol.

use crate::base::header;
use crate::base::key::ProcId;
use crate::protocol::early_cts::early_number;
use crate::protocol::engine::Engine;
use ferry_transport::Inbox;

impl Inbox for Engine {
    fn set_transport(&mut self, transport: usize) {
        self.polled_transport = transport;
    }

    fn first_touch(&mut self) {
        self.path_selector.count_first_touch();
    }

    #[inline]
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.received += 1;
        self.received_from_others += u64::from(from >= self.size);
        self.speculative.heard_from(from);
        // Most messages: their way is short. A malformed one is counted below.
        if message == header::EAGER
            && let Some(unexpected) = self.on_eager(from, header::EAGER, bytes)
        {
            return unexpected;
        }
        self.on_other(from, message, bytes)
    }

    fn stream_buffer(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        remaining: usize,
    ) -> Option<&mut [u8]> {
        if message == header::SPECULATIVE {
            return self.speculative_buffer(from, head, remaining);
        }
        if let Some(number) = early_number(message, head) {
            return self.early_buffer(from, number, remaining);
        }
        let req = self.streaming_receive(from, message, head)?;
        self.receive_buffer(from, req, remaining)
    }

    fn stream_is_unexpected(&self, _from: ProcId, message: u8, head: &[u8]) -> bool {
        early_number(message, head).is_some_and(|number| !self.early_cts.has_receive(number))
    }

    fn stream_written(&mut self, from: ProcId, message: u8, head: &[u8], bytes: usize) {
        let understood = self.on_stream(from, message, head, bytes, None);
        self.malformed += u64::from(understood.is_none());
    }

    fn stream_part(&mut self, from: ProcId, message: u8, head: &[u8], bytes: &[u8]) {
        let understood = self.on_stream(from, message, head, bytes.len(), Some(bytes));
        self.malformed += u64::from(understood.is_none());
    }

    fn takes_fragments(&self, message: u8) -> bool {
        matches!(message, header::DATA | header::SPECULATIVE)
    }

    fn fragment_written(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        bytes: usize,
        last: bool,
    ) {
        self.on_fragment(from, message, head, bytes, None, last);
    }

    fn fragment_part(&mut self, from: ProcId, message: u8, head: &[u8], bytes: &[u8], last: bool) {
        self.on_fragment(from, message, head, bytes.len(), Some(bytes), last);
    }

    fn card_part(&mut self, from: ProcId, number: u32, at: usize, bytes: &[u8]) {
        self.on_card_part(from, number, at, bytes);
    }

    fn on_message_start(
        &mut self,
        from: ProcId,
        message: u8,
        start: &[u8],
        len: usize,
    ) -> Option<usize> {
        self.on_eager_start(from, message, start, len)
    }
}

impl Engine {
    /// A message that is no EAGER, or a malformed one. Returns whether it is unexpected.
    #[inline(never)]
    fn on_other(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        let understood = match message {
            header::EAGER_SYNC => match self.on_eager(from, message, bytes) {
                Some(unexpected) => return unexpected,
                None => None,
            },
            header::RTS | header::RTS_SYNC | header::RTS_WITHDRAWABLE => {
                self.on_rts(from, message, bytes)
            }
            header::WITHDRAWN => self.on_withdrawn(from, bytes),
            header::CTS | header::CTS_PREPOSTED => self.on_cts(from, message, bytes),
            header::DATA => self.on_data(from, bytes),
            header::FIN => self.on_fin(from, bytes),
            header::EDGE_REQUEST => self.on_edge_request(from, bytes),
            header::EDGE_DATA => self.on_edge_data(from, bytes),
            header::EDGES => self.deferred.on_edges(from, bytes),
            header::ACTIVE => self.active.on_active(from, bytes),
            header::CONTROL => self.control.on_control(from, bytes),
            header::SPECULATIVE => self.on_speculative(from, bytes),
            header::UNEXPECTED => self.speculative.on_unexpected(from),
            _ => None,
        };
        if understood.is_none() {
            self.malformed += 1;
        }
        false
    }

    /// Bytes of a fragment have arrived. With `data`, this function stores them.
    fn on_fragment(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        bytes: usize,
        data: Option<&[u8]>,
        last: bool,
    ) {
        if last {
            self.received += 1;
            self.received_from_others += u64::from(from >= self.size);
        }
        self.speculative.heard_from(from);
        let understood = if message == header::SPECULATIVE {
            self.advance_speculative(from, head, bytes, data)
        } else {
            self.on_data_part(from, head, bytes, data)
        };
        self.malformed += u64::from(understood.is_none());
    }
}
