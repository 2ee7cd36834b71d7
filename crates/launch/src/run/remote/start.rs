//! Starting agents.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_setfl};

use super::super::{Backend, EVENT_AGENT, Job};
use super::{AgentLink, RemoteRanks};
use crate::forward::Channel;

impl Job<'_> {
    pub(super) fn remote(&mut self) -> Option<&mut RemoteRanks> {
        match &mut self.backend {
            Backend::Remote(remote) => Some(remote),
            Backend::Local(_) => None,
        }
    }

    /// Starts all agents at once.
    pub(in crate::run) fn start_agents(&mut self) {
        let size = self.ranks.len();
        self.alive = size;
        for rank in 0..size {
            self.streams.output.add_remote(rank);
        }
        let Some(remote) = self.remote() else { return };
        let (commands, hosts) = (remote.commands.clone(), remote.spec.hosts.clone());
        for (number, (command, host)) in commands.iter().zip(hosts).enumerate() {
            if let Err(e) = self.start_agent(number, command, &host) {
                // Agents that have started are ended. Ranks of the others never start.
                let text = format!("the agent of host {host} cannot be started: {e}");
                let unstarted: Vec<usize> = (0..size)
                    .filter(|&r| match &self.backend {
                        Backend::Remote(a) => a.spec.host_of[r] as usize >= a.agents.len(),
                        Backend::Local(_) => false,
                    })
                    .collect();
                self.give_up_ranks(unstarted.into_iter());
                self.end(&text, 1);
                return;
            }
        }
    }

    pub(super) fn start_agent(
        &mut self,
        number: usize,
        words: &[OsString],
        host: &str,
    ) -> Result<(), String> {
        let Some((program, arguments)) = words.split_first() else {
            return Err("there is no command".into());
        };
        if self.options.verbose {
            let shown: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
            self.streams
                .output
                .print_message(&format!("host {host}: {}", shown.join(" ")));
        }
        let mut child = spawn(program, arguments, self.signals.original_mask)
            .map_err(|e| format!("{}: {e}", program.to_string_lossy()))?;
        let pid = child.id() as i32;
        let to = nonblocking(child.stdin.take().map(OwnedFd::from))?;
        let from = nonblocking(child.stdout.take().map(OwnedFd::from))?;
        let words = nonblocking(child.stderr.take().map(OwnedFd::from))?;
        let token = epoll::EventData::new_u64(EVENT_AGENT | number as u64);
        epoll::add(&self.poll, &from, token, epoll::EventFlags::IN).map_err(|e| e.to_string())?;
        let stream = self
            .streams
            .output
            .add(self.ranks.len() + number, Channel::Err, words);
        self.poll_stream(stream);
        if let Some(remote) = self.remote() {
            remote.agents.push(AgentLink::new(host, pid, to, from));
        }
        Ok(())
    }
}

/// Starts a launcher with pipes for its three streams. It begins with this signal mask, and in a
/// process group of its own: mpiexec forwards the terminal's signals, which must not reach it
/// directly.
fn spawn(program: &OsStr, arguments: &[OsString], mask: libc::sigset_t) -> io::Result<Child> {
    let unblock = move || {
        // SAFETY: a plain system call on a copy of the mask.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
        Ok(())
    };
    let mut command = Command::new(program);
    // SAFETY: between fork and exec it makes one system call.
    unsafe { command.pre_exec(unblock) };
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// One of a launcher's pipes, so that reading and writing it never block.
fn nonblocking(pipe: Option<OwnedFd>) -> Result<OwnedFd, String> {
    let pipe = pipe.ok_or("there is no pipe")?;
    fcntl_setfl(&pipe, OFlags::NONBLOCK).map_err(|e| e.to_string())?;
    Ok(pipe)
}
