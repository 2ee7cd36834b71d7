//! This rank's node: the job that it has joined, its endpoints, and its way to virtual time.
//!
//! - here: joining and leaving the job, waiting, endpoints
//! - `requests`: sends, receives and probes

mod requests;

use crate::abi::{self, ENDPOINTS, EndpointAddress, INFINITE};
use crate::connect::{SERVICE, Service};
use crate::error::Error;
use ferry_fabric::machine::Machine;
use ferry_fabric::rapidio::MxLevel;
use ferry_fabric::rapidio::driver::ethernet::SecondUser;
use ferry_fabric::rapidio::driver::mx::{Address, Endpoint, Request};
use ferry_fabric::{Client, ModelSegment, Rank, Time};
use ferry_job::{RankState, RankStatus};
pub use requests::Found;
use requests::Operation;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// A wait with a timeout looks at the card this often in the timeout, or at each poll if that is
/// seldom enough.
const LOOKS_PER_TIMEOUT: u64 = 1024;

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
    /// This rank's clock and its way to the model.
    pub client: Client,
    /// The driver's MX level, which matches and transfers messages.
    pub mx: MxLevel,
    /// What answers other nodes' `mx_connect`.
    pub service: Service,
    /// A network interface whose frames go beside the messages (`ferry ethernet --mpi`).
    second_user: Option<SecondUser>,
    /// Between `mx_init` and `mx_finalize`.
    active: bool,
    me: Rank,
    size: u32,
    /// The open endpoints by their handles.
    endpoints: BTreeMap<u64, OpenEndpoint>,
    /// The requests that are not over by their handles.
    operations: HashMap<u64, Operation>,
    /// The handles of the MX level's requests.
    handles: HashMap<Request, u64>,
    /// Requests whose end the program does not want to know.
    forgotten: Vec<u64>,
    last_handle: u64,
}

struct OpenEndpoint {
    endpoint: Endpoint,
    filter: u32,
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
        let step = poll.max(Time::ps(span.as_ps() / LOOKS_PER_TIMEOUT));
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
}

/// A handle in the program's form.
pub fn to_pointer(handle: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(handle as usize)
}

/// The handle in a pointer of the program.
pub fn from_pointer(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}
