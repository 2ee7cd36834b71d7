//! Requests: sends, receives and probes of the program, from their beginning to their end.

use super::Node;
use crate::abi::{EndpointAddress, INFINITE, Segment, StatusCode};
use crate::connect::writable;
use crate::error::Error;
use ferry_fabric::rapidio::driver::control::UserMemory;
use ferry_fabric::rapidio::driver::mx::{self, Match, Request, SendMode};

/// Most segments of a list.
const SEGMENTS_MAX: u32 = 256;

/// A send or receive of the program.
pub(super) struct Operation {
    /// The handle of its endpoint.
    pub(super) endpoint: u64,
    request: Request,
    /// The program's pointer.
    context: usize,
    memory: Staged,
}

/// The memory of a list of segments, in one run.
struct Staged {
    run: UserMemory,
    /// The run of several segments. One segment is a run itself.
    bytes: Option<Vec<u8>>,
    /// Where the bytes of a receive belong.
    scatter: Vec<UserMemory>,
}

/// The end of a request, or what a probe has found.
pub struct Found {
    pub code: StatusCode,
    pub status: mx::Status,
    pub context: usize,
}

impl Node {
    /// Begins a send.
    ///
    /// # Safety
    /// The segments are valid for reading, and nobody writes to them, until the request is over.
    pub unsafe fn send(
        &mut self,
        mode: SendMode,
        handle: u64,
        segments: &[Segment],
        to: EndpointAddress,
        bits: u64,
        context: usize,
    ) -> Result<u64, Error> {
        let endpoint = self.endpoint(handle)?;
        let to = to.get(self.size).ok_or(Error::BadAddress)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { stage(segments, true) }?;
        if !self.mx.can_send() {
            self.wait_until(INFINITE, |node| node.mx.can_send().then_some(()))?;
        }
        let client = &mut self.client;
        // SAFETY: the caller's promise; staged bytes live as long as the operation.
        let request = unsafe { self.mx.isend(client, endpoint, to, bits, memory.run, mode) };
        Ok(self.begin(Operation {
            endpoint: handle,
            request,
            context,
            memory,
        }))
    }

    /// Begins a receive.
    ///
    /// # Safety
    /// The segments are valid for writing, and nobody has a reference to them, until the request is
    /// over.
    pub unsafe fn receive(
        &mut self,
        handle: u64,
        segments: &[Segment],
        wanted: Match,
        context: usize,
    ) -> Result<u64, Error> {
        let endpoint = self.endpoint(handle)?;
        // SAFETY: the caller's promise.
        let memory = unsafe { stage(segments, false) }?;
        // SAFETY: the caller's promise; staged bytes live as long as the operation.
        let posted = unsafe {
            self.mx
                .irecv(&mut self.client, endpoint, wanted, memory.run)
        };
        let request = posted.map_err(|e| Error::Failure(e.to_string()))?;
        Ok(self.begin(Operation {
            endpoint: handle,
            request,
            context,
            memory,
        }))
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        let handle = self.new_handle();
        self.handles.insert(operation.request, handle);
        self.operations.insert(handle, operation);
        handle
    }

    /// The operation of a request of this endpoint.
    fn operation(&self, endpoint: u64, request: u64) -> Result<&Operation, Error> {
        self.endpoint(endpoint)?;
        let operation = self.operations.get(&request);
        let known =
            operation.filter(|o| o.endpoint == endpoint && !self.forgotten.contains(&request));
        known.ok_or(Error::BadRequest)
    }

    /// The program's pointer of a request.
    pub fn context(&self, request: u64) -> Result<usize, Error> {
        let operation = self.operations.get(&request).ok_or(Error::BadRequest)?;
        Ok(operation.context)
    }

    /// Cancels a receive that nothing has matched. Returns whether it is cancelled.
    pub fn cancel(&mut self, endpoint: u64, request: u64) -> Result<bool, Error> {
        let inner = self.operation(endpoint, request)?.request;
        self.progress()?;
        let cancelled = self.mx.cancel(&mut self.client, inner);
        if cancelled {
            self.handles.remove(&inner);
            self.operations.remove(&request);
        }
        Ok(cancelled)
    }

    /// The program does not want to know a request's end.
    pub fn forget_request(&mut self, endpoint: u64, request: u64) -> Result<(), Error> {
        self.operation(endpoint, request)?;
        self.forgotten.push(request);
        Ok(())
    }

    /// Waits for a request. `None`: the time is over.
    pub fn wait(
        &mut self,
        endpoint: u64,
        request: u64,
        timeout: u32,
    ) -> Result<Option<Found>, Error> {
        self.operation(endpoint, request)?;
        self.wait_until(timeout, |node| node.take(request))
    }

    /// Waits for a request whose message matches. `None`: the time is over.
    pub fn wait_any(
        &mut self,
        endpoint: u64,
        wanted: Match,
        timeout: u32,
    ) -> Result<Option<Found>, Error> {
        let inner = self.endpoint(endpoint)?;
        self.wait_until(timeout, |node| {
            let (request, status) = node.mx.test_any(inner, wanted)?;
            let handle = node.handles.get(&request).copied();
            handle.map(|handle| node.end(handle, status))
        })
    }

    /// Waits for a message that matches and that no receive has taken. `None`: the time is over.
    pub fn probe(
        &mut self,
        endpoint: u64,
        wanted: Match,
        timeout: u32,
    ) -> Result<Option<Found>, Error> {
        let inner = self.endpoint(endpoint)?;
        let found = self.wait_until(timeout, |node| {
            node.mx.iprobe(&mut node.client, inner, wanted)
        })?;
        Ok(found.map(|status| Found {
            code: StatusCode::Pending,
            status,
            context: 0,
        }))
    }

    /// Ends a request if it is done.
    pub(super) fn take(&mut self, handle: u64) -> Option<Found> {
        let request = self.operations.get(&handle)?.request;
        let status = self.mx.test(request)?;
        Some(self.end(handle, status))
    }

    /// Ends a request that is done.
    fn end(&mut self, handle: u64, status: mx::Status) -> Found {
        let operation = self.operations.remove(&handle);
        let mut context = 0;
        if let Some(operation) = operation {
            self.handles.remove(&operation.request);
            context = operation.context;
            let mut rest = operation.memory.bytes.as_deref().unwrap_or_default();
            rest = &rest[..rest.len().min(status.bytes)];
            for memory in operation.memory.scatter {
                let (part, after) = rest.split_at(rest.len().min(memory.bytes));
                // SAFETY: the program's promise when it began the receive.
                unsafe { memory.write(part) };
                rest = after;
            }
        }
        let code = match status.is_truncated() {
            true => StatusCode::Truncated,
            false => StatusCode::Success,
        };
        Found {
            code,
            status,
            context,
        }
    }
}

/// Makes one run of a list of segments. The bytes of several that are sent are copied into it.
///
/// # Safety
/// The segments are valid for reading if they are sent.
unsafe fn stage(segments: &[Segment], sent: bool) -> Result<Staged, Error> {
    if segments.len() > SEGMENTS_MAX as usize {
        return Err(Error::BadSegments("there are at most 256"));
    }
    if segments.iter().any(|s| s.address.is_null() && s.bytes > 0) {
        return Err(Error::BadSegments("a segment is NULL"));
    }
    let memory = |s: &Segment| UserMemory {
        address: s.address.expose_provenance(),
        bytes: s.bytes as usize,
    };
    let parts: Vec<UserMemory> = segments.iter().map(memory).collect();
    if let [] | [_] = parts[..] {
        return Ok(Staged {
            run: parts.first().copied().unwrap_or(UserMemory::of(&[])),
            bytes: None,
            scatter: Vec::new(),
        });
    }
    let total: usize = parts.iter().map(|p| p.bytes).sum();
    if total > u32::MAX as usize {
        return Err(Error::BadSegments("a message has at most 4 GiB"));
    }
    let mut bytes = vec![0; total];
    let mut rest = &mut bytes[..];
    for part in parts.iter().filter(|_| sent) {
        let (place, after) = rest.split_at_mut(part.bytes);
        // SAFETY: the caller's promise.
        unsafe { part.read(place) };
        rest = after;
    }
    Ok(Staged {
        run: writable(&mut bytes),
        bytes: Some(bytes),
        scatter: if sent { Vec::new() } else { parts },
    })
}
