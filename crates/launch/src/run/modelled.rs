//! The process that models a machine. It is started before the ranks and reports through a pipe.
//!
//! It writes lines: `stuck PICOSECONDS` when no rank can go on, `broken TEXT` when a rank has given
//! its card an invalid command. At the end it writes `report` and the report, up to the end of the
//! pipe.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ferry_fabric::machine::{self, Machine};
use ferry_fabric::platform::Compute;
use ferry_fabric::{ModelSegment, Time};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use super::local::LocalRanks;
use super::{EVENT_FRAME, EVENT_MODEL, Job, STATUS_HANG};
use crate::options::{self, Binding, OnHang};
use crate::start::binding;
use crate::start::{RankStarter, StartError};

/// A job that runs for longer shows its virtual time on a terminal. Shorter ones would only
/// flicker.
const PROGRESS_LINE_DELAY: Duration = Duration::from_secs(1);
/// How long mpiexec waits for the model to end after the job, before it is killed. Writing a long
/// timeline takes seconds.
const REAP_TIMEOUT: Duration = Duration::from_secs(20);

/// mpiexec's handle on the model's process.
pub(super) struct MachineModel {
    memory: ModelSegment,
    name: String,
    pid: i32,
    pipe: File,
    received: Vec<u8>,
    started_at: Instant,
    /// Standard error is a terminal: show virtual time there.
    on_terminal: bool,
    progress_shown: bool,
    report: Option<String>,
    print_report: bool,
    /// The job is over, and the model is being ended.
    stopping: bool,
}

/// Reads the machine and makes the memory that the ranks will share with it.
///
/// # Errors
/// There is no such machine, its file is wrong, or it is too small for the job.
pub(super) fn prepare(
    options: &options::MachineOptions,
    bind: Binding,
    starter: &mut RankStarter,
) -> Result<(), StartError> {
    let wrong = |text: String| StartError { text, status: 2 };
    let (file, text) = machine::find(&options.name).map_err(wrong)?;
    let mut machine = machine::read(&file, &text).map_err(|e| wrong(e.to_string()))?;
    match options.compute {
        Some(0.0) => machine.platform.cpu.compute = Compute::Zero,
        Some(factor) => {
            machine.platform.cpu.compute = Compute::Measured;
            machine.platform.cpu.factor = Some(factor);
        }
        None => {}
    }
    let (ranks, most) = (starter.ranks(), machine.platform.ranks_max());
    if ranks as u64 > most {
        return Err(wrong(format!(
            "machine {} has room for {most} ranks ({} nodes of {}), and the job has {ranks}",
            machine.platform.about.name,
            machine.platform.nodes.count.value.0,
            machine.platform.processes()
        )));
    }
    if let Some(path) = &options.trace {
        // Checked now, before anything runs.
        File::create(path)
            .map_err(|e| wrong(format!("--machine-trace {}: {e}", path.display())))?;
    }
    let memory = ModelSegment::create(ranks as u32, machine.mapped_bytes(), &machine.encode())
        .map_err(|e| StartError::new(e.to_string()))?;
    let fd = memory.fd().try_clone_to_owned();
    let fd = fd.map_err(|e| StartError::new(format!("a descriptor for the machine: {e}")))?;
    starter.node.segment.machine = Some(fd);
    if options.paced {
        memory.enable_pacing();
    }
    starter.node.segment.interfaces = interfaces(&options.interfaces, ranks, &machine)?;
    // On the machine each rank has a processor. What the library chooses must not depend on the
    // cores of this host.
    starter.node.set_cores(ranks as u32);
    if machine.platform.cpu.compute == Compute::Zero && bind == Binding::Share {
        memory.set_cpus(&starter.bind_all_to_one_cpu());
    }
    Ok(())
}

/// Takes the TAP devices that `ferry ethernet` passes, one a rank.
///
/// # Errors
/// They are not one a rank, or the card has no channel for their frames.
fn interfaces(
    numbers: &[i32],
    ranks: usize,
    machine: &Machine,
) -> Result<Vec<OwnedFd>, StartError> {
    let wrong = |text: String| Err(StartError { text, status: 2 });
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    if numbers.len() != ranks {
        return wrong(format!(
            "--machine-interfaces names {} descriptors, and the job has {ranks} ranks",
            numbers.len()
        ));
    }
    if machine.frame_channel(0).is_none() {
        return wrong(format!(
            "the card of machine {} has no channel that carries Ethernet frames",
            machine.platform.about.name
        ));
    }
    let mut found = Vec::new();
    for &number in numbers {
        // SAFETY: only a number so far; fcntl on a closed one says EBADF.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        if let Err(e) = fcntl_setfd(borrowed, FdFlags::CLOEXEC) {
            return wrong(format!("--machine-interfaces {number}: {e}"));
        }
        // SAFETY: open, and passed to this process for nobody else to use.
        found.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(found)
}

impl LocalRanks {
    /// Starts the process that models the machine, if the job has one. To be called while this
    /// process has one thread.
    pub(super) fn start_model(
        &mut self,
        options: &options::MachineOptions,
        epoll: &OwnedFd,
    ) -> io::Result<Option<MachineModel>> {
        let Some(fd) = &self.starter.node.segment.machine else {
            return Ok(None);
        };
        let memory = ModelSegment::open(fd.try_clone()?).map_err(io::Error::other)?;
        let Some(machine) = Machine::decode(&memory.machine()) else {
            return Err(io::Error::other("the machine's description is lost"));
        };
        if options.trace.is_some() {
            memory.enable_trace();
        }
        // If all ranks are bound to one CPU, the model is bound to it, too.
        let cpus = match self.starter.cpus_of(0) {
            &[cpu] if (0..self.starter.ranks()).all(|r| self.starter.cpus_of(r) == [cpu]) => {
                vec![cpu]
            }
            _ => Vec::new(),
        };
        let (pipe, end) = pipe_with(PipeFlags::CLOEXEC)?;
        let parent = std::process::id();
        // SAFETY: this process has one thread, so the child may go on as any program.
        let pid = match unsafe { libc::fork() } {
            0 => {
                drop(pipe);
                bind(&cpus);
                model(options, &machine, memory, end.into(), parent)
            }
            -1 => return Err(io::Error::last_os_error()),
            pid => pid,
        };
        fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        let token = epoll::EventData::new_u64(EVENT_MODEL);
        epoll::add(epoll, &pipe, token, epoll::EventFlags::IN)?;
        for (rank, interface) in (0..).zip(&self.starter.node.segment.interfaces) {
            // Once for each frame that comes: the rank takes all that there are.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let token = epoll::EventData::new_u64(EVENT_FRAME | rank);
            epoll::add(epoll, interface, token, flags)?;
        }
        Ok(Some(MachineModel {
            memory,
            name: machine.platform.about.name,
            pid,
            pipe: pipe.into(),
            received: Vec::new(),
            started_at: Instant::now(),
            on_terminal: io::stderr().is_terminal(),
            progress_shown: false,
            report: None,
            print_report: options.report,
            stopping: false,
        }))
    }
}

/// Binds this process to these CPUs, if there are any. A refusal is ignored: the model works
/// unbound.
fn bind(cpus: &[usize]) {
    let mask = binding::mask(cpus);
    if !mask.is_empty() {
        // SAFETY: the mask is as long as the call is told.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                0,
                size_of_val(&mask[..]),
                mask.as_ptr(),
            );
        }
    }
}

/// Main function of the process that models the machine.
fn model(
    options: &options::MachineOptions,
    machine: &Machine,
    memory: ModelSegment,
    mut out: File,
    parent: u32,
) -> ! {
    // SAFETY: plain system calls.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
    let mut stuck = out.try_clone();
    let run = machine::RunOptions {
        trace: options.trace.as_deref(),
        check: options.check,
    };
    let outcome = machine.run(memory, run, |now| {
        if let Ok(out) = &mut stuck {
            // If mpiexec is gone, nobody reads this.
            let _ = writeln!(out, "stuck {}", now.as_ps());
        }
    });
    let report = match outcome {
        Ok(outcome) => {
            let broken = outcome.failure.map(|b| format!("broken {b}\n"));
            broken.unwrap_or_default() + "report\n" + &outcome.report.table()
        }
        Err(text) => format!("broken {text}\n"),
    };
    let _ = out.write_all(report.as_bytes());
    // SAFETY: ends this process alone, without running what the parent has set up for its own end.
    unsafe { libc::_exit(0) }
}

impl MachineModel {
    /// A frame waits at a rank's interface.
    pub(super) fn interrupt(&self, rank: usize) {
        self.memory.interrupt(rank as u32);
    }

    /// A rank's process has ended.
    pub(super) fn report_exit(&self, rank: usize) {
        self.memory.mark_exited(rank as u32);
    }

    /// Reads what the model has written. `false` if it has ended.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => return false,
                Ok(n) => self.received.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// The next line of what was read.
    fn line(&mut self) -> Option<String> {
        let end = self.received.iter().position(|&b| b == b'\n')?;
        let line: Vec<u8> = self.received.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Waits for the model's end, and keeps its report.
    fn end(&mut self) {
        self.stopping = true;
        self.memory.close();
        let end = Instant::now() + REAP_TIMEOUT;
        while self.read() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // SAFETY: our own child, not yet waited for.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
                break;
            }
            let limit = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&limit));
        }
        while let Some(line) = self.line() {
            if line == "report" {
                let report = String::from_utf8_lossy(&self.received).into_owned();
                self.report = Some(report);
                break;
            }
        }
        // SAFETY: our own child; it has ended, or will now.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

impl Job<'_> {
    /// Handles what the model has written, or its end.
    pub(super) fn read_model(&mut self) {
        let Some(modelled) = &mut self.modelled else {
            return;
        };
        let lives = modelled.read();
        let mut lines = Vec::new();
        while let Some(line) = modelled.line() {
            if line == "report" {
                // The report follows, which is not cut into lines.
                modelled.received.splice(0..0, *b"report\n");
                break;
            }
            lines.push(line);
        }
        let name = modelled.name.clone();
        if !lives {
            let _ = epoll::delete(&self.poll, &modelled.pipe);
        }
        let broken =
            !lives && lines.is_empty() && !modelled.stopping && modelled.received.is_empty();
        for line in lines {
            match line.split_once(' ') {
                Some(("stuck", ps)) => self.stuck(&name, ps.parse().unwrap_or(0)),
                Some(("broken", what)) => self.end(&format!("machine {name}: {what}"), 1),
                _ => {}
            }
        }
        if broken {
            let text = format!("the model of machine {name} has ended; that is a mistake in Ferry");
            self.end(&text, 1);
        }
    }

    /// No rank can go on, in virtual time.
    fn stuck(&mut self, name: &str, ps: u64) {
        if self.options.on_hang == OnHang::Ignore || self.shutdown.is_some() {
            return;
        }
        let text = format!(
            "this job hangs on machine {name} at {} of virtual time: every rank waits or has \
             finished, and nothing is under way\n{}",
            Time::ps(ps),
            self.wait_report()
        );
        if self.options.on_hang == OnHang::End {
            let text = text + "ending the job (--on-hang=report lets it go on)";
            self.end(&text, STATUS_HANG);
        } else {
            self.streams.output.print_message(&text);
        }
    }

    /// Shows how far virtual time is, on a terminal. The line stays until something else is
    /// written.
    pub(super) fn show_virtual_time(&mut self, now: Instant) {
        let Some(m) = &mut self.modelled else { return };
        let real = now.duration_since(m.started_at);
        if !m.on_terminal || real < PROGRESS_LINE_DELAY || m.stopping {
            return;
        }
        let (ps, commands) = m.memory.progress();
        let text = format!(
            "\r\x1b[2K{}: {:.6} s of virtual time, {:.1} s real, {commands} hardware commands",
            m.name,
            Time::ps(ps).seconds(),
            real.as_secs_f64(),
        );
        m.progress_shown = io::stderr().write_all(text.as_bytes()).is_ok();
    }

    /// Removes the line that shows virtual time.
    pub(super) fn hide_virtual_time(&mut self) {
        if let Some(m) = &mut self.modelled
            && std::mem::take(&mut m.progress_shown)
        {
            let _ = io::stderr().write_all(b"\r\x1b[2K");
        }
    }

    /// Ends the model with the job.
    pub(super) fn stop_model(&mut self) {
        if let Some(modelled) = &mut self.modelled {
            let _ = epoll::delete(&self.poll, &modelled.pipe);
            modelled.end();
        }
    }

    /// Prints the report, if it was asked for.
    pub(super) fn print_machine_report(&mut self) {
        let Some(modelled) = &mut self.modelled else {
            return;
        };
        if let (true, Some(report)) = (modelled.print_report, modelled.report.take()) {
            let _ = io::stderr().write_all(report.as_bytes());
        }
    }
}
