//! Who may connect. A node asks another one whether an endpoint is open and has the same filter.
//!
//! The questions go to an endpoint of the library's own on each node. A node answers them whenever
//! it is in a call of the library. A question about an endpoint that is not open is answered once
//! it is.

use crate::abi::ENDPOINTS;
use crate::error::Error;
use crate::node::Node;
use ferry_fabric::rapidio::driver::control::UserMemory;
use ferry_fabric::rapidio::driver::mx::{Address, Endpoint, Match, Request, SendMode};

/// The endpoint that answers.
pub const SERVICE: u8 = ENDPOINTS;

/// Match bits of a question. The lower half is the asker's number for it.
const QUESTION: u64 = 1 << 32;
/// Match bits of an answer. The lower half is that of the question.
const ANSWER: u64 = 2 << 32;
const KIND_MASK: u64 = !0 << 32;

/// Bytes of a question: the endpoint and its filter.
const QUESTION_BYTES: usize = 5;

/// A node's part in it: the questions of others, and the number of its own last question.
pub struct Service {
    endpoint: Endpoint,
    /// The receive that is posted for the next question.
    posted: Option<Request>,
    memory: Vec<u8>,
    /// Questions about endpoints that are not open.
    unanswered: Vec<Question>,
    last_number: u32,
}

/// Another node's question about an endpoint of this one.
struct Question {
    from: Address,
    number: u32,
    endpoint: u8,
    filter: u32,
}

impl Service {
    /// The service of a node. Its first question can come after [`Node::serve`].
    pub fn new(endpoint: Endpoint) -> Service {
        Service {
            endpoint,
            posted: None,
            memory: vec![0; QUESTION_BYTES],
            unanswered: Vec::new(),
            last_number: 0,
        }
    }
}

/// A question that this node has asked.
pub struct Asked {
    request: Request,
    answer: Vec<u8>,
}

/// The memory of bytes that a receive writes.
pub fn writable(bytes: &mut Vec<u8>) -> UserMemory {
    UserMemory {
        address: bytes.as_mut_ptr().expose_provenance(),
        bytes: bytes.len(),
    }
}

impl Node {
    /// Answers the questions that have come.
    pub fn serve(&mut self) -> Result<(), Error> {
        loop {
            if let Some(request) = self.service.posted {
                let Some(status) = self.mx.test(request) else {
                    return Ok(());
                };
                self.service.posted = None;
                let question = self.service.memory.first_chunk::<QUESTION_BYTES>();
                if let (Some(&[endpoint, filter @ ..]), QUESTION_BYTES) = (question, status.bytes) {
                    self.service.unanswered.push(Question {
                        from: status.peer,
                        number: status.bits as u32,
                        endpoint,
                        filter: u32::from_le_bytes(filter),
                    });
                    self.answer();
                }
            }
            let wanted = Match {
                bits: QUESTION,
                mask: KIND_MASK,
            };
            let memory = writable(&mut self.service.memory);
            let (client, service) = (&mut self.client, self.service.endpoint);
            // SAFETY: the memory is the service's, and nobody looks at it until the receive is
            // done.
            let posted = unsafe { self.mx.irecv(client, service, wanted, memory) };
            self.service.posted = Some(posted.map_err(|e| Error::Failure(e.to_string()))?);
        }
    }

    /// Answers the questions about endpoints that are open now.
    pub fn answer(&mut self) {
        for question in std::mem::take(&mut self.service.unanswered) {
            match self.filter_of(question.endpoint) {
                Some(filter) => {
                    let fits = [u8::from(filter == question.filter)];
                    let bits = ANSWER | u64::from(question.number);
                    self.send_small(question.from, bits, &fits);
                }
                None => self.service.unanswered.push(question),
            }
        }
    }

    /// Asks a node about an endpoint.
    pub fn ask(&mut self, to: Address, filter: u32) -> Result<Asked, Error> {
        self.service.last_number = self.service.last_number.wrapping_add(1);
        let number = u64::from(self.service.last_number);
        let mut answer = vec![0];
        let wanted = Match {
            bits: ANSWER | number,
            mask: !0,
        };
        let (client, service) = (&mut self.client, self.service.endpoint);
        let memory = writable(&mut answer);
        // SAFETY: nobody looks at the memory until the receive is done or cancelled. `Asked` is
        // kept until then.
        let request = unsafe { self.mx.irecv(client, service, wanted, memory) }
            .map_err(|e| Error::Failure(e.to_string()))?;
        let [a, b, c, d] = filter.to_le_bytes();
        let service = Address {
            rank: to.rank,
            endpoint: SERVICE,
        };
        self.send_small(service, QUESTION | number, &[to.endpoint, a, b, c, d]);
        Ok(Asked { request, answer })
    }

    /// The answer: whether the filter is the same. `None`: there is none yet.
    pub fn answered(&mut self, asked: &Asked) -> Option<bool> {
        self.mx.test(asked.request)?;
        Some(asked.answer == [1])
    }

    /// The answer is no longer awaited.
    pub fn forget(&mut self, asked: Asked) {
        if !self.mx.cancel(&mut self.client, asked.request) {
            // It has just come, or its memory stays for it.
            if self.mx.test(asked.request).is_none() {
                std::mem::forget(asked.answer);
            }
        }
    }

    /// Sends a message that the card copies at once to the endpoint that answers, or to the
    /// asker's.
    fn send_small(&mut self, to: Address, bits: u64, bytes: &[u8]) {
        let memory = UserMemory::of(bytes);
        let (client, service) = (&mut self.client, self.service.endpoint);
        let mode = SendMode::Standard;
        // SAFETY: a small message is copied by the call.
        let request = unsafe { self.mx.isend(client, service, to, bits, memory, mode) };
        self.mx.test(request);
    }
}
