//! The transports of a job whose processes are all in this one, and their inboxes.

use super::memory::{Cards, Memory};
use ferry_fabric::{ModelSegment, machine};
use ferry_job::{NodeJob, RankInfo, Segment};
use ferry_transport::model::Model;
use ferry_transport::shm::Shm;
use ferry_transport::tcp::{Settings, Tcp};
use ferry_transport::tipc::{self, Tipc};
use ferry_transport::{
    Body, Expected, Features, Inbox, ProcId, RendezvousOffload, SendStatus, Streamed, Transport,
    TransportError, VirtualTime,
};
use std::time::{Duration, Instant};

/// How long a step may take. Long, for machines that are busy with other things.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A modelled machine for each kind of card.
const MACHINES: [&str; 5] = ["mpc1", "mpc2", "loggp", "dimmnet2", "rapidio-1890vm6"];

/// The transports of all processes of a job.
pub type Transports = Vec<Box<dyn Transport>>;

/// The launcher's rank_info, all ranks on one host.
fn rank_info(rank: u32, size: u32) -> RankInfo {
    RankInfo {
        job: 5,
        cores: 2,
        key: [3; 32],
        ..RankInfo::on_one_host(rank, size, "here")
    }
}

/// Shared memory in a segment of its own.
fn shm(size: u32) -> Transports {
    let node = NodeJob::new(5, size, 2).unwrap();
    let open = |me: u32| {
        let fd = node.segment.fd.try_clone().unwrap();
        let segment = Segment::open(fd, size, Some(node.segment.layout.total_bytes())).unwrap();
        let transport = Shm::open(segment, (0..size).collect(), me as usize, 5, 1).unwrap();
        Box::new(transport) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// TCP on the loopback.
fn tcp(size: u32, encrypt: bool) -> Transports {
    let cards = Cards::default();
    let settings = Settings {
        interfaces: Some("127.0.0.1".into()),
        timeout: Duration::from_secs(20),
    };
    let open = |rank| {
        let directory = Memory {
            rank,
            cards: cards.clone(),
        };
        let transport = Tcp::open(
            &rank_info(rank, size),
            Box::new(directory),
            &settings,
            encrypt,
        )
        .unwrap();
        Box::new(transport) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// TIPC on this node.
pub fn tipc(size: u32, encrypt: bool) -> Transports {
    let cards = Cards::default();
    let settings = tipc::Settings {
        kind: tipc::DEFAULT_KIND,
    };
    let open = |rank| {
        let directory = Memory {
            rank,
            cards: cards.clone(),
        };
        let directory = Box::new(directory);
        let transport = Tipc::open(&rank_info(rank, size), directory, &settings, encrypt).unwrap();
        Box::new(transport) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// The transport of a modelled machine for one of several processes that are all this one. After
/// each call it leaves MPI, so that the others can go on. The next call enters again.
struct Turns(Model);

impl Turns {
    fn turn<T>(&mut self, call: impl FnOnce(&mut Model) -> T) -> T {
        let result = call(&mut self.0);
        self.0.leave_mpi(false, true);
        result
    }
}

impl Transport for Turns {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn reaches(&self, peer: ProcId) -> bool {
        self.0.reaches(peer)
    }
    fn features(&self, peer: ProcId) -> Features {
        self.0.features(peer)
    }
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        self.turn(|m| m.send(to, message, head, body))
    }
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        self.turn(|m| m.poll(inbox))
    }
    fn stream(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.turn(|m| m.stream(to, message, head, body))
    }
    fn settle(&mut self) -> bool {
        self.turn(|m| m.settle())
    }
    fn rendezvous_offload(&mut self) -> Option<&mut dyn RendezvousOffload> {
        Some(self)
    }
}

impl RendezvousOffload for Turns {
    fn before_rts(&mut self, to: ProcId, len: usize) {
        self.turn(|m| m.before_rts(to, len));
    }
    fn before_cts(&mut self, from: ProcId, what: &Expected<'_>) {
        self.turn(|m| m.before_cts(from, what));
    }
    fn forget_peer(&mut self, peer: ProcId) {
        self.turn(|m| m.forget_peer(peer));
    }
}

/// A modelled machine, whose hardware runs on a thread.
fn model(size: u32, name: &str) -> Transports {
    let (file, text) = machine::find(name).unwrap();
    let machine = machine::read(&file, &text).unwrap();
    let segment = ModelSegment::create(size, machine.mapped_bytes(), &machine.encode()).unwrap();
    let hardware = segment.clone();
    std::thread::spawn(move || machine.run(hardware, Default::default(), |_| {}));
    let open = |rank| {
        let fd = segment.fd().try_clone_to_owned().unwrap();
        let mut transport = Turns(Model::open(fd, rank, size, true).unwrap());
        transport.turn(|_| ());
        Box::new(transport) as Box<dyn Transport>
    };
    (0..size).map(open).collect()
}

/// Runs `check` with each transport in a job of `size` processes.
pub fn each(size: u32, check: impl Fn(&str, Transports)) {
    check("shm", shm(size));
    check("tcp", tcp(size, false));
    check("tcp, encrypted", tcp(size, true));
    for name in MACHINES {
        check(name, model(size, name));
    }
    // Few systems have TIPC. The virtual machines of tests/tipc have it and set this variable.
    if std::env::var_os("FERRY_TEST_TIPC").is_some() {
        check("tipc", tipc(size, false));
        check("tipc, encrypted", tipc(size, true));
    }
}

/// Keeps messages and the bodies of streams.
#[derive(Default)]
pub struct Keep {
    pub messages: Vec<(ProcId, u8, Vec<u8>)>,
    pub stream: Vec<u8>,
    /// If set, streams are read straight into `stream`, from this offset on.
    pub place: Option<usize>,
}

impl Inbox for Keep {
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.messages.push((from, message, bytes.to_vec()));
        false
    }
    fn stream_buffer(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        let at = self.place?;
        let end = (at + left).min(self.stream.len());
        Some(&mut self.stream[at..end])
    }
    fn stream_written(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: usize) {
        if let Some(at) = &mut self.place {
            *at += bytes;
        }
    }
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], bytes: &[u8]) {
        match &mut self.place {
            Some(at) => {
                self.stream[*at..*at + bytes.len()].copy_from_slice(bytes);
                *at += bytes.len();
            }
            None => self.stream.extend_from_slice(bytes),
        }
    }
}

/// Bytes that differ with `salt`.
pub fn bytes_of(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt * 7) as u8).collect()
}

/// Polls all until `done`.
pub fn until(
    name: &str,
    transports: &mut Transports,
    keeps: &mut [Keep],
    mut done: impl FnMut(&mut Transports, &mut [Keep]) -> bool,
) {
    let end = Instant::now() + TIME_LIMIT;
    while !done(transports, keeps) {
        for (transport, keep) in transports.iter_mut().zip(keeps.iter_mut()) {
            transport.poll(keep).unwrap();
        }
        assert!(Instant::now() < end, "{name}: it takes too long");
    }
}

/// An inbox for each process.
pub fn keeps(n: usize) -> Vec<Keep> {
    (0..n).map(|_| Keep::default()).collect()
}

/// Sends a message, as often as it takes.
pub fn send_until_taken(
    transport: &mut dyn Transport,
    keep: &mut Keep,
    to: ProcId,
    message: u8,
    head: &[u8],
    body: &[u8],
) {
    let end = Instant::now() + TIME_LIMIT;
    while transport
        .send(to, message, head, Body::Bytes(body))
        .unwrap()
        == SendStatus::Full
    {
        transport.poll(keep).unwrap();
        assert!(Instant::now() < end, "no room");
        std::thread::yield_now();
    }
}
