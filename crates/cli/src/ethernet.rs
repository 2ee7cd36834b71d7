//! `ferry ethernet`: network namespaces whose Ethernet crosses the channel of a modelled machine.
//!
//! ```text
//!   supervisor          worker
//!   waits, and          main thread    signals, the command, and interrupts for frames
//!   clears up after     model          cards and network of the machine
//!   a killed worker     node 1 … N     a port each: TAP device of its namespace, card
//! ```
//!
//! Each node is a rank of the modelled machine.

mod namespace;
mod nodes;
mod supervisor;
mod tap;

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use ferry_fabric::ethernet::{Address, FRAME_HEAD_BYTES, FRAME_MAX_BYTES};
use ferry_fabric::machine::{self, Machine};
use ferry_launch::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use namespace::Namespace;
use nodes::{Nodes, Report};
use tap::Setup;

/// Signals that end it, and the one that tells of the command's end.
const SIGNALS: [libc::c_int; 5] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
];
/// How long the command has to end after a signal, before it is killed.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest MTU that IPv4 allows a host to have (RFC 791).
const MTU_MIN: u32 = 576;
/// Exit status of a command that cannot be started, as a shell's.
const STATUS_NOT_STARTED: u8 = 127;

/// What the command line asks for.
#[derive(clap::Args)]
pub struct Options {
    /// The modelled machine: one that comes with Ferry, or a file
    #[arg(long)]
    machine: String,
    /// Number of nodes (the last byte of an address counts them), each with a namespace and an
    /// interface eth0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=254))]
    nodes: u32,
    /// Deliver each frame when virtual time says, against real time. Otherwise as soon as the model
    /// has worked it out
    #[arg(long)]
    paced: bool,
    /// Longest IP packet in bytes; by default as long as fits one message of the card
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// The namespaces are NAME1, NAME2, ... (ip netns exec NAME1 COMMAND)
    #[arg(long, default_value = "ferry", value_parser = name)]
    name: String,
    /// The nodes' addresses are NETWORK.1, NETWORK.2, ...
    #[arg(long, default_value = "10.26.0", value_parser = network)]
    network: [u8; 3],
    /// Print at the end what nodes, cards and links did
    #[arg(long)]
    machine_report: bool,
    /// Run this program of MPI or MX on the machine, a rank a node; frames cross beside its
    /// messages.
    /// Program and arguments are one word, for a shell
    #[arg(long, value_name = "PROGRAM")]
    mpi: Option<String>,
    /// Run this in the namespace of node 1, and end with it. Otherwise Ctrl-C ends it
    #[arg(last = true)]
    command: Vec<String>,
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.len() <= 32 && text.chars().all(allowed) {
        true => Ok(text.into()),
        false => Err("a name has 1 to 32 letters, digits, '-' and '_'".into()),
    }
}

fn network(text: &str) -> Result<[u8; 3], String> {
    let bytes: Result<Vec<u8>, _> = text.split('.').map(str::parse).collect();
    bytes
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "a network is three numbers up to 255, like 10.26.0".into())
}

impl Options {
    /// The name of a node's namespace. Nodes count from 0 here.
    fn namespace(&self, node: u32) -> String {
        format!("{}{}", self.name, node + 1)
    }

    fn ip(&self, node: u32) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, (node + 1) as u8)
    }
}

/// Runs it until it ends. Returns its exit status. To be called from the only thread of the
/// process.
///
/// # Errors
/// One line: what was tried, why it does not work, and what helps.
pub fn run(options: &Options) -> Result<u8, String> {
    let (file, text) = machine::find(&options.machine)?;
    let machine = machine::read(&file, &text).map_err(|e| e.to_string())?;
    let name = &machine.platform.about.name;
    let Some(channel) = machine.frame_channel(0) else {
        let others = machine::built_in().filter(|known| {
            machine::read(known.name, known.text).is_ok_and(|m| m.frame_channel(0).is_some())
        });
        let others: Vec<&str> = others.map(|known| known.name).collect();
        return Err(format!(
            "the card of machine {name} has no channel that carries Ethernet frames; these have: \
             {}",
            others.join(", ")
        ));
    };
    let most = machine.platform.ranks_max();
    if u64::from(options.nodes) > most {
        return Err(format!(
            "machine {name} has {most} nodes, and --nodes asks for {}",
            options.nodes
        ));
    }
    let mtu = options
        .mtu
        .unwrap_or((channel.frame_bytes().min(FRAME_MAX_BYTES) - FRAME_HEAD_BYTES) as u32);
    let mtu_max = (FRAME_MAX_BYTES - FRAME_HEAD_BYTES) as u32;
    if !(MTU_MIN..=mtu_max).contains(&mtu) {
        return Err(format!(
            "--mtu {mtu}: it can be {MTU_MIN} to {mtu_max} bytes"
        ));
    }
    namespace::check_capabilities()?;
    for node in 0..options.nodes {
        let name = options.namespace(node);
        if Namespace::exists(&name) {
            return Err(format!(
                "there is a network namespace {name} already; --name chooses other names, and \
                 `ip netns delete {name}` removes it"
            ));
        }
    }
    supervisor::supervise(
        || work(options, &machine, mtu),
        || {
            let names = (0..options.nodes).map(|node| options.namespace(node));
            let left: Vec<Namespace> = names.filter_map(|name| Namespace::adopt(&name)).collect();
            namespace::end_processes(&left);
        },
    )
}

/// What the worker does.
fn work(options: &Options, machine: &Machine, mtu: u32) -> Result<u8, String> {
    let refused = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| format!("{what}: {e}")
    };
    let signals = Signals::block_these(&SIGNALS).map_err(refused("signals"))?;
    let (mut namespaces, mut taps) = (Vec::new(), Vec::new());
    for node in 0..options.nodes {
        let setup = Setup {
            hardware: Address::of_port(node),
            ip: options.ip(node),
            mask: Ipv4Addr::new(255, 255, 255, 0),
            mtu,
        };
        let name = options.namespace(node);
        // A thread of its own: it stays in the namespace.
        let made = std::thread::scope(|s| s.spawn(|| make_node(&name, &setup)).join());
        let (namespace, tap) =
            made.map_err(|_| format!("{name} cannot be made; that is a mistake in Ferry"))??;
        namespaces.push(namespace);
        taps.push(tap);
    }
    let result = carry(options, machine, mtu, &signals, &namespaces, taps);
    namespace::end_processes(&namespaces);
    result
}

fn make_node(name: &str, setup: &Setup) -> Result<(Namespace, File), String> {
    let namespace = Namespace::create(name)?;
    tap::bring_up("lo").map_err(|e| format!("bringing up lo in {name} was refused: {e}"))?;
    Ok((namespace, tap::create(setup)?))
}

/// What an epoll event is about: a node, or one of these.
const EVENT_SIGNAL: u64 = 1 << 32;
const EVENT_NODES: u64 = EVENT_SIGNAL + 1;

/// Carries frames until the end.
fn carry(
    options: &Options,
    machine: &Machine,
    mtu: u32,
    signals: &Signals,
    namespaces: &[Namespace],
    taps: Vec<File>,
) -> Result<u8, String> {
    let refused = |e: io::Error| format!("waiting for frames: {e}");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| refused(e.into()))?;
    let add = |fd: &dyn AsFd, data: u64, more: epoll::EventFlags| {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&epoll, fd.as_fd(), data, epoll::EventFlags::IN | more)
            .map_err(|e| refused(e.into()))
    };
    add(signals.fd(), EVENT_SIGNAL, epoll::EventFlags::empty())?;
    let mut children = Vec::new();
    let nodes = match &options.mpi {
        Some(program) => {
            let started = start_mpi(options, program, taps, signals);
            children.push(started.map_err(|e| format!("mpiexec cannot be started: {e}"))?);
            None
        }
        None => {
            for (node, tap) in (0..).zip(&taps) {
                // Once for each frame that comes: the node takes all that there are.
                add(tap, node, epoll::EventFlags::ET)?;
            }
            let nodes = Nodes::start(machine, taps, options.paced)?;
            add(nodes.ended(), EVENT_NODES, epoll::EventFlags::empty())?;
            Some(nodes)
        }
    };
    match options.command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            let namespace = namespaces[0].file().as_raw_fd();
            match start(command, Some(namespace), Vec::new(), libc::SIGKILL, signals) {
                Ok(child) => children.push(child),
                Err(e) => {
                    eprintln!("ferry: {program} cannot be started: {e}");
                    end_children(&mut children);
                    return Ok(STATUS_NOT_STARTED);
                }
            }
        }
        None => introduce(options, machine, mtu).map_err(|e| format!("writing: {e}"))?,
    }
    let status = serve(&epoll, signals, nodes.as_ref(), &mut children);
    end_children(&mut children);
    let status = status?;
    if let Some(nodes) = nodes {
        let report = nodes.end()?;
        if options.machine_report {
            let text = used(options, &report) + &report.machine;
            io::stderr().write_all(text.as_bytes()).map_err(refused)?;
        }
    }
    Ok(status)
}

/// Waits until one of the children ends, a signal comes, or the nodes cannot go on. Returns the
/// exit status.
fn serve(
    epoll: &OwnedFd,
    signals: &Signals,
    nodes: Option<&Nodes>,
    children: &mut [Child],
) -> Result<u8, String> {
    let mut events = Vec::with_capacity(64);
    let mut kill_at: Option<Instant> = None;
    loop {
        events.clear();
        let limit = kill_at.map(time_left);
        match epoll::wait(
            epoll,
            rustix::buffer::spare_capacity(&mut events),
            limit.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("waiting for frames: {e}")),
        }
        if kill_at.is_some_and(|at| Instant::now() >= at) {
            return Ok(128 + libc::SIGKILL as u8);
        }
        for event in &events {
            match (event.data.u64(), nodes) {
                (EVENT_NODES, Some(nodes)) => return Err(nodes.failure()),
                (node, Some(nodes)) if node < EVENT_SIGNAL => nodes.interrupt(node as u32),
                _ => {}
            }
        }
        while let Some(signal) = signals.next() {
            if signal == libc::SIGCHLD {
                let mut ends = children.iter_mut().filter_map(|c| c.try_wait().ok()?);
                if let Some(status) = ends.next() {
                    return Ok(code(status));
                }
            } else if children.is_empty() {
                return Ok(0);
            } else {
                children.iter().for_each(|child| send(child, signal));
                kill_at.get_or_insert(Instant::now() + COMMAND_TIMEOUT);
            }
        }
    }
}

fn time_left(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// Sends a signal to a child that has not been waited for.
fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: a plain system call; the number is the child's until it is waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Ends the children that are left. Those that do not end when asked are killed.
fn end_children(children: &mut [Child]) {
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    for child in children {
        if !matches!(child.try_wait(), Ok(None)) {
            continue;
        }
        send(child, libc::SIGTERM);
        let ended = Pid::from_raw(child.id() as i32)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(ended) = ended {
            let mut fds = [PollFd::new(&ended, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&time_left(deadline)));
        }
        // It may have ended; it is waited for in any case.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The exit status of a command, as a shell's.
fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|s| 128 + s);
    status.code().or(signal).unwrap_or(1) as u8
}

/// Starts mpiexec with the interfaces of the nodes, a rank a node.
fn start_mpi(
    options: &Options,
    program: &str,
    taps: Vec<File>,
    signals: &Signals,
) -> io::Result<Child> {
    let beside = std::env::current_exe()?.with_file_name("mpiexec");
    let mut command = Command::new(beside);
    let fds: Vec<RawFd> = taps.iter().map(|tap| tap.as_raw_fd()).collect();
    let numbers: Vec<String> = fds.iter().map(RawFd::to_string).collect();
    command.args(["--machine", &options.machine]);
    command.args(["--machine-interfaces", &numbers.join(",")]);
    for (asked, option) in [
        (options.paced, "--machine-paced"),
        (options.machine_report, "--machine-report"),
    ] {
        command.args(asked.then_some(option));
    }
    command.args(["-n", &options.nodes.to_string()]);
    command.args(["sh", "-c", &format!("exec {program}")]);
    // Once it has started, the interfaces are its own.
    start(command, None, fds, libc::SIGTERM, signals)
}

/// Starts a command in a namespace, with these descriptors. It gets a signal if this process ends.
fn start(
    mut command: Command,
    namespace: Option<RawFd>,
    fds: Vec<RawFd>,
    at_end: libc::c_int,
    signals: &Signals,
) -> io::Result<Child> {
    let mask = signals.original_mask;
    let refused = io::Error::last_os_error;
    // SAFETY: system calls only, on values that were moved in.
    unsafe {
        command.pre_exec(move || {
            if namespace.is_some_and(|fd| libc::setns(fd, libc::CLONE_NEWNET) != 0) {
                return Err(refused());
            }
            if fds.iter().any(|fd| libc::fcntl(*fd, libc::F_SETFD, 0) != 0) {
                return Err(refused());
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, at_end);
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    command.spawn()
}

/// Tells which namespaces there are.
fn introduce(options: &Options, machine: &Machine, mtu: u32) -> io::Result<()> {
    let pace = if options.paced { "paced" } else { "untimed" };
    let mut text = format!(
        "{} nodes of {}, {pace}, MTU {mtu}\n",
        options.nodes, machine.platform.about.name
    );
    for node in 0..options.nodes {
        text += &format!(
            "  {}  {}  {}\n",
            options.namespace(node),
            options.ip(node),
            Address::of_port(node)
        );
    }
    text += &format!(
        "in a node: ip netns exec {} COMMAND; Ctrl-C ends all\n",
        options.namespace(0)
    );
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What the ports carried, as a table.
fn used(options: &Options, report: &Report) -> String {
    let mut text = format!(
        "{:>8}  {:>10}  {:>12}  {:>10}  {:>8}\n",
        "node", "sent", "bytes", "received", "lost"
    );
    for (node, carried) in (0..).zip(&report.ports) {
        text += &format!(
            "{:>8}  {:>10}  {:>12}  {:>10}  {:>8}\n",
            options.namespace(node),
            carried.sent,
            carried.sent_bytes,
            carried.received,
            carried.lost
        );
    }
    text + "\n"
}
