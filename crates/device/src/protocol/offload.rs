//! What the device tells a transport before an RTS or a CTS, so that a modelled card can prepare
//! for the message (rendezvous offload).

use crate::base::buffer::Sink;
use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::Worker;
use ferry_transport::Expected;

impl Worker {
    /// Tells the transport of the large message that the header which goes next is about.
    #[inline]
    pub fn before_header(&mut self, to: ProcId, message: u8, head: &Header) {
        match message {
            header::RTS | header::RTS_SYNC => self.before_rts(to, head),
            header::CTS | header::CTS_PREPOSTED => self.before_cts(to, head),
            _ => {}
        }
    }

    fn before_rts(&mut self, to: ProcId, head: &Header) {
        let mut fields = Fields(head.bytes());
        if let (Some(_), Some(len)) = (fields.key(), fields.u64()) {
            self.transports.before_rts(to, len as usize);
        }
        self.before_card_rts(head);
    }

    fn before_cts(&mut self, to: ProcId, head: &Header) {
        let mut fields = Fields(head.bytes());
        let (Some(_), Some(mine)) = (fields.u32(), fields.u32()) else {
            return;
        };
        let req = ReqId(mine);
        let Some(len) = self.engine.requests.envelope_of(req).map(|e| e.len) else {
            return;
        };
        let address = match self.engine.requests.operation(req) {
            Some(Operation::Receive {
                sink: Sink::Bytes { ptr, cap },
                ..
            }) if *cap as u64 >= len => Some(ptr.addr()),
            _ => None,
        };
        let head = Header::new().u32(mine);
        let what = Expected {
            address,
            len: len as usize,
            message: header::DATA,
            head: head.bytes(),
        };
        self.transports.before_cts(to, &what);
    }
}
