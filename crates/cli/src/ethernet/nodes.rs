//! The nodes of the modelled machine: threads that carry frames, and the model's.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferry_fabric::ethernet::{FrameChannel, Port, PortUse};
use ferry_fabric::machine::{Machine, RunOptions};
use ferry_fabric::{Client, ModelSegment, Outcome};
use rustix::event::{EventfdFlags, eventfd};

/// How long nodes and model have to end. They do so at once unless the host is very busy.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The running nodes.
pub struct Nodes {
    segment: ModelSegment,
    shared: Arc<Shared>,
    ends: Receiver<End>,
    count: u32,
}

/// What the threads share.
struct Shared {
    ending: AtomicBool,
    /// Readable when one of them cannot go on.
    ended: OwnedFd,
    /// Why the first of them cannot.
    failure: Mutex<Option<String>>,
}

/// The end of a thread.
enum End {
    Node(u32, PortUse),
    Model(Box<Result<Outcome, String>>),
}

/// What nodes and machine did.
pub struct Report {
    /// By node.
    pub ports: Vec<PortUse>,
    /// The machine's report.
    pub machine: String,
}

impl Shared {
    /// A thread cannot go on.
    fn fail(&self, text: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(text);
        }
        // A full counter is readable, too.
        let _ = rustix::io::write(&self.ended, &1u64.to_ne_bytes());
    }
}

impl Nodes {
    /// Starts the model, and a node for each of these interfaces.
    ///
    /// # Errors
    /// The system gives no memory, descriptor or thread.
    pub fn start(machine: &Machine, taps: Vec<File>, paced: bool) -> Result<Nodes, String> {
        let count = taps.len() as u32;
        let segment = ModelSegment::create(count, machine.mapped_bytes(), &machine.encode())
            .map_err(|e| e.to_string())?;
        if paced {
            segment.enable_pacing();
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            ending: AtomicBool::new(false),
            ended: eventfd(0, flags).map_err(|e| format!("an event's descriptor: {e}"))?,
            failure: Mutex::new(None),
        });
        let (sender, ends) = mpsc::channel();
        let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
            let made = thread::Builder::new().name(name).spawn(body);
            made.map(drop).map_err(|e| format!("a thread: {e}"))
        };
        let (of_model, of_machine) = (segment.clone(), machine.clone());
        let (shared_by_model, from_model) = (shared.clone(), sender.clone());
        spawn(
            "model".into(),
            Box::new(move || {
                let outcome = of_machine.run(of_model, RunOptions::default(), |_| {});
                let failure = match &outcome {
                    Ok(outcome) => outcome.failure.clone(),
                    Err(text) => Some(text.clone()),
                };
                if let Some(text) = failure {
                    shared_by_model.fail(text);
                }
                // If nobody waits for it any more, nobody reads this.
                let _ = from_model.send(End::Model(Box::new(outcome)));
            }),
        )?;
        for (node, tap) in (0..count).zip(taps) {
            let Some(channel) = machine.frame_channel(node) else {
                return Err("the machine has no channel for frames".into());
            };
            let (segment, shared) = (segment.clone(), shared.clone());
            let sender = sender.clone();
            spawn(
                format!("node {}", node + 1),
                Box::new(move || {
                    let carried = carry(segment, node, channel, tap, &shared);
                    let _ = sender.send(End::Node(node, carried));
                }),
            )?;
        }
        Ok(Nodes {
            segment,
            shared,
            ends,
            count,
        })
    }

    /// Readable when they cannot go on.
    pub fn ended(&self) -> &OwnedFd {
        &self.shared.ended
    }

    /// Why they cannot go on.
    pub fn failure(&self) -> String {
        let failure = self.shared.failure.lock();
        let text = failure.ok().and_then(|f| f.clone());
        text.unwrap_or_else(|| "the model has ended; that is a mistake in Ferry".into())
    }

    /// A frame waits at a node's interface.
    pub fn interrupt(&self, node: u32) {
        self.segment.interrupt(node);
    }

    /// Ends nodes and model. Frames under way are lost.
    ///
    /// # Errors
    /// One of them does not end.
    pub fn end(self) -> Result<Report, String> {
        self.shared.ending.store(true, Ordering::SeqCst);
        (0..self.count).for_each(|node| self.interrupt(node));
        let deadline = Instant::now() + END_TIMEOUT;
        let next = |what: &str| match self.ends.recv_timeout(deadline - Instant::now()) {
            Ok(end) => Ok(end),
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "{what} did not end within {} s",
                END_TIMEOUT.as_secs()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(self.failure()),
        };
        let mut ports = vec![PortUse::default(); self.count as usize];
        for _ in 0..self.count {
            match next("a node")? {
                End::Node(node, carried) => ports[node as usize] = carried,
                End::Model(_) => return Err(self.failure()),
            }
        }
        self.segment.close();
        match next("the model")? {
            End::Model(outcome) => Ok(Report {
                ports,
                machine: (*outcome)?.report.table(),
            }),
            End::Node(..) => Err("a node ended twice; that is a mistake in Ferry".into()),
        }
    }
}

/// What a node does until the end. Returns what its port carried.
fn carry(
    segment: ModelSegment,
    node: u32,
    mut channel: Box<dyn FrameChannel>,
    mut tap: File,
    shared: &Shared,
) -> PortUse {
    let count = segment.ranks();
    let mut client = Client::join(segment, node);
    let mut port = Port::new(node, count);
    while !shared.ending.load(Ordering::SeqCst) {
        if let Err(malformed) = port.run(&mut client, channel.as_mut(), &mut tap) {
            shared.fail(malformed.to_string());
            break;
        }
        client.wait(channel.poll_period());
    }
    client.leave();
    port.carried()
}
