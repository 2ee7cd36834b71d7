//! This rank's node: its endpoints, its requests, and its way to virtual time.

use crate::abi::{self, ENDPOINTS, EndpointAddress, INFINITE, Segment, StatusCode};
use crate::connect::{SERVICE, Service, writable};
use crate::error::Error;
use ferry_fabric::machine::Machine;
use ferry_fabric::rapidio::MxLevel;
use ferry_fabric::rapidio::driver::control::UserMemory;
use ferry_fabric::rapidio::driver::ethernet::SecondUser;
use ferry_fabric::rapidio::driver::mx::{self, Address, Endpoint, Match, Request, SendMode};
use ferry_fabric::{Client, ModelSegment, Rank, Time};
use ferry_job::{RankState, RankStatus};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Most segments of a list.
const SEGMENTS_MAX: u32 = 256;

/// A wait with a timeout looks at the card this often in the timeout, or at each poll if that is
/// seldom enough.
const LOOKS: u64 = 1024;

/// The job that this process has joined. It can be joined once.
static JOB: OnceLock<JoinedJob> = OnceLock::new();

/// The node, from the first `mx_init` on.
static NODE: Mutex<Option<Node>> = Mutex::new(None);

/// What the library keeps of a job.
struct JoinedJob {
    status: &'static RankStatus,
    client: Mutex<Option<ferry_job::Client>>,
}

impl JoinedJob {
    fn set_state(state: RankState) {
        if let Some(job) = JOB.get() {
            job.status.state.store(state as u32, Ordering::Release);
        }
    }
}

/// This rank's node.
pub struct Node {
    pub client: Client,
    pub mx: MxLevel,
    pub service: Service,
    /// A network interface whose frames go beside the messages (`ferry ethernet --mpi`).
    second_user: Option<SecondUser>,
    /// Between `mx_init` and `mx_finalize`.
    active: bool,
    me: Rank,
    size: u32,
    /// By handle.
    endpoints: BTreeMap<u64, OpenEndpoint>,
    /// By handle.
    operations: HashMap<u64, Operation>,
    handles: HashMap<Request, u64>,
    /// Requests whose end the program does not want to know.
    forgotten: Vec<u64>,
    last_handle: u64,
}

struct OpenEndpoint {
    endpoint: Endpoint,
    filter: u32,
}

/// A send or receive of the program.
struct Operation {
    endpoint: u64,
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

/// The node between `mx_init` and `mx_finalize`. Other threads' calls wait.
pub struct Active(MutexGuard<'static, Option<Node>>);

impl Active {
    /// The node.
    pub fn node(&mut self) -> Result<&mut Node, Error> {
        self.0
            .as_mut()
            .filter(|node| node.active)
            .ok_or(Error::NotInitialized)
    }
}

/// Takes the node for a call.
pub fn lock() -> Active {
    Active(NODE.lock().unwrap_or_else(|e| e.into_inner()))
}

/// `mx_init`.
pub fn init() -> Result<(), Error> {
    let mut guard = lock().0;
    match &mut *guard {
        Some(node) if node.active => return Err(Error::AlreadyInitialized),
        Some(node) => node.active = true,
        None => *guard = Some(join()?),
    }
    JoinedJob::set_state(RankState::Running);
    Ok(())
}

/// Joins the job and its machine.
fn join() -> Result<Node, Error> {
    const START: &str = "start the program with mpiexec --machine NAME -n N ./program";
    if JOB.get().is_some() {
        return Err(Error::NoDriver("the job was joined before, in vain".into()));
    }
    let mut job = ferry_job::join().map_err(|e| Error::NoDriver(e.to_string()))?;
    let machine = job.segment.as_mut().and_then(|s| s.machine.take());
    let interface = job.segment.as_mut().and_then(|s| s.interfaces.pop());
    let (me, size) = (job.rank_info.rank, job.rank_info.size);
    let launched = job.client.is_some();
    let _ = JOB.set(JoinedJob {
        status: job.status,
        client: Mutex::new(job.client),
    });
    let Some(fd) = machine else {
        return Err(Error::NoDriver(match launched {
            true => format!("this job is on no modelled machine; {START}"),
            false => format!("this process was not started by mpiexec; {START}"),
        }));
    };
    let failure = |e: String| Error::NoDriver(e);
    let segment = ModelSegment::open(fd).map_err(|e| failure(e.to_string()))?;
    let Some(machine) = Machine::decode(&segment.machine()) else {
        return Err(failure("the machine's description cannot be read".into()));
    };
    let Some(mut mx) = machine.mx_level(me) else {
        let others = ferry_fabric::machine::built_in().filter(|known| {
            ferry_fabric::machine::read(known.name, known.text)
                .is_ok_and(|m| m.mx_level(0).is_some())
        });
        let others: Vec<&str> = others.map(|known| known.name).collect();
        return Err(Error::NoDevice(format!(
            "the card of machine {} has no MX level; these have: {}",
            machine.platform.about.name,
            others.join(", ")
        )));
    };
    let Some(service) = mx.open(SERVICE) else {
        return Err(Error::Failure("the library's endpoint is in use".into()));
    };
    let second_user = interface.map(|fd| {
        let interface = Box::new(File::from(fd));
        let frames = mx.control().register_user();
        SecondUser::new(frames, mx.control(), size, interface)
    });
    let mut node = Node {
        second_user,
        client: Client::join(segment, me),
        mx,
        service: Service::new(service),
        active: true,
        me,
        size,
        endpoints: BTreeMap::new(),
        operations: HashMap::new(),
        handles: HashMap::new(),
        forgotten: Vec::new(),
        last_handle: 0,
    };
    node.serve()?;
    Ok(node)
}

/// `mx_finalize`.
pub fn finalize() -> Result<(), Error> {
    let mut guard = lock();
    let node = guard.node()?;
    for handle in node.endpoints.keys().copied().collect::<Vec<_>>() {
        node.close(handle)?;
    }
    node.wait_until(INFINITE, |node| node.mx.is_settled().then_some(()))?;
    node.client.leave();
    node.active = false;
    JoinedJob::set_state(RankState::Finalized);
    Ok(())
}

/// Ends the job, after an error that is fatal.
pub fn abort(text: &str, code: c_int) -> ! {
    let client = JOB.get().map(|job| job.client.lock());
    match client
        .as_ref()
        .and_then(|client| client.as_ref().ok()?.as_ref())
    {
        Some(client) => client.abort(code, text),
        None => {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
    // SAFETY: ends this process alone. The job's other ranks are ended by mpiexec.
    unsafe { libc::_exit(code) }
}

/// This node, and the nodes of the job. Zeros before the first `mx_init`.
pub fn place() -> (Rank, u32) {
    let guard = lock().0;
    guard.as_ref().map_or((0, 0), |node| (node.me, node.size))
}

/// Virtual time.
pub fn time() -> Time {
    let guard = lock().0;
    guard.as_ref().map_or(Time::ZERO, |node| node.client.now())
}

impl Node {
    /// This node.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Nodes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    fn new_handle(&mut self) -> u64 {
        self.last_handle += 1;
        self.last_handle
    }

    /// Takes what the card has, and answers other nodes. Returns the number of the card's events.
    fn progress(&mut self) -> Result<usize, Error> {
        let polled = self.mx.poll(&mut self.client);
        let count = polled.map_err(|e| Error::Failure(e.to_string()))?;
        if let Some(user) = &mut self.second_user {
            let run = user.run(&mut self.client, self.mx.control());
            run.map_err(|e| Error::Failure(e.to_string()))?;
        }
        self.serve()?;
        for handle in std::mem::take(&mut self.forgotten) {
            if self.operations.contains_key(&handle) && self.take(handle).is_none() {
                self.forgotten.push(handle);
            }
        }
        Ok(count)
    }

    /// Looks until there is something, or until the timeout in milliseconds is over. The card is
    /// looked at once at least.
    pub fn wait_until<T>(
        &mut self,
        timeout: u32,
        mut look: impl FnMut(&mut Node) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let span = Time::us(1000) * u64::from(timeout);
        let end = self.client.now() + span;
        let poll = self.mx.poll_period();
        let step = poll.max(Time::ps(span.as_ps() / LOOKS));
        loop {
            let count = self.progress()?;
            if let Some(found) = look(self) {
                return Ok(Some(found));
            }
            if timeout == INFINITE {
                if count == 0 {
                    self.client.wait(poll);
                }
            } else if self.client.now() >= end {
                return Ok(None);
            } else {
                let left = end - self.client.now();
                self.client
                    .charge("MX: waiting with a timeout", step.min(left));
            }
        }
    }

    /// Opens an endpoint. `number`: `MX_ANY_ENDPOINT` is the lowest that is free.
    pub fn open(&mut self, number: u32, filter: u32) -> Result<u64, Error> {
        let endpoint = match number {
            abi::ANY => (0..ENDPOINTS)
                .find_map(|number| self.mx.open(number))
                .ok_or(Error::NoResources)?,
            number => {
                let known = u8::try_from(number).ok().filter(|n| *n < ENDPOINTS);
                let known = known.ok_or_else(|| {
                    let last = ENDPOINTS - 1;
                    Error::BadArgument(format!("endpoint {number}: there are 0 to {last}"))
                })?;
                self.mx.open(known).ok_or(Error::Busy(number))?
            }
        };
        let handle = self.new_handle();
        let open = OpenEndpoint { endpoint, filter };
        self.endpoints.insert(handle, open);
        self.answer();
        Ok(handle)
    }

    /// Closes an endpoint. Large messages that are under way end before.
    pub fn close(&mut self, handle: u64) -> Result<(), Error> {
        let endpoint = self.endpoint(handle)?;
        self.wait_until(INFINITE, |node| node.mx.close(endpoint).then_some(()))?;
        self.endpoints.remove(&handle);
        self.operations.retain(|_, o| o.endpoint != handle);
        let operations = &self.operations;
        self.handles
            .retain(|_, handle| operations.contains_key(handle));
        Ok(())
    }

    /// The endpoint with this handle.
    pub fn endpoint(&self, handle: u64) -> Result<Endpoint, Error> {
        let open = self.endpoints.get(&handle).ok_or(Error::BadEndpoint)?;
        Ok(open.endpoint)
    }

    /// The address of an endpoint of this node.
    pub fn address(&self, handle: u64) -> Result<EndpointAddress, Error> {
        let endpoint = self.endpoint(handle)?.number();
        Ok(EndpointAddress::new(Address {
            rank: self.me,
            endpoint,
        }))
    }

    /// The filter of an endpoint of this node, if it is open.
    pub fn filter_of(&self, number: u8) -> Option<u32> {
        let mut open = self.endpoints.values();
        Some(open.find(|o| o.endpoint.number() == number)?.filter)
    }

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
    fn take(&mut self, handle: u64) -> Option<Found> {
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

/// A handle in the program's form.
pub fn to_pointer(handle: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(handle as usize)
}

/// The handle in a pointer of the program.
pub fn from_pointer(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}
