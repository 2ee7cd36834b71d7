//! PMI-1 and PMI-2, the protocols themselves: MPICH's Hydra speaks both, srun --mpi=pmi2 too.

use std::env;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::wire::{MESSAGE_MAX, Message, body, parse_body, parse_length, parse_line};
use super::{Kvs, launcher_error, mapping};
use crate::client::JobError;

/// Longest value in a line of PMI-1, bytes: Slurm reads lines of 1024 bytes, names included.
const LINE_VALUE_MAX: usize = 800;

/// A connection to a PMI server.
struct Pmi {
    socket: OwnedFd,
    /// Bytes of the next line.
    ahead: Vec<u8>,
    second: bool,
    rank: u32,
    size: u32,
    appnum: u32,
    /// Name of the store (PMI-1), or the job (PMI-2).
    store: String,
    value_max: usize,
}

/// Finds and greets the server that the environment names.
pub(super) fn connect() -> Result<Box<dyn Kvs>, JobError> {
    let text = |name: &str| env::var(name).ok().filter(|v| !v.is_empty());
    let number = |name: &str| text(name).and_then(|v| v.trim().parse::<u32>().ok());
    // srun --mpi=pmi2 names the job; Hydra does not, and PMI-1 does for it.
    let second = match text("FERRY_PMI").as_deref() {
        Some("1") => false,
        Some("2") => true,
        Some(other) => {
            return Err(launcher_error(format!(
                "FERRY_PMI is {other:?}; say 1 or 2"
            )));
        }
        None => text("PMI_JOBID").is_some() && text("SLURM_JOB_ID").is_some(),
    };
    let mut pmi = Pmi {
        socket: match text("PMI_FD") {
            Some(fd) => inherited(&fd)?,
            None => dial(&text("PMI_PORT").unwrap_or_default())?,
        },
        ahead: Vec::new(),
        second,
        rank: number("PMI_RANK").unwrap_or(0),
        size: number("PMI_SIZE").unwrap_or(1),
        appnum: 0,
        store: String::new(),
        value_max: 1024,
    };
    if text("PMI_FD").is_none() {
        pmi.identify(number("PMI_ID").or(number("PMI_RANK")).unwrap_or(0))?;
    }
    let version = if second {
        "cmd=init pmi_version=2 pmi_subversion=0\n"
    } else {
        "cmd=init pmi_version=1 pmi_subversion=1\n"
    };
    let answer = pmi.line(version)?;
    if answer.command() != "response_to_init" || answer.number("rc").unwrap_or(0) != 0 {
        return Err(launcher_error(format!(
            "the launcher does not speak PMI-{}: it answers {answer:?}",
            if second { 2 } else { 1 }
        )));
    }
    if second {
        pmi.begin_second(&text("PMI_JOBID").unwrap_or_default())?;
    } else {
        pmi.begin_first()?;
    }
    Ok(Box::new(pmi))
}

/// The descriptor that PMI_FD names.
fn inherited(text: &str) -> Result<OwnedFd, JobError> {
    let gone = |why: &str| {
        launcher_error(format!(
            "a launcher has started this program (PMI_FD={text}), but cannot be spoken to: {why}. \
             Does a wrapper close its descriptors, or was this program started by another one that \
             is in MPI itself? Start it with the launcher directly, or unset PMI_FD, PMI_RANK and \
             PMI_SIZE to run it alone"
        ))
    };
    let Some(fd) = text.trim().parse::<RawFd>().ok().filter(|&fd| fd > 2) else {
        return Err(gone("that is no descriptor's number"));
    };
    // Not ours until it is known to be a socket: the variable may have outlived the descriptor.
    // SAFETY: only a number so far; fcntl and getsockopt on a closed one say EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::net::sockopt::socket_type(borrowed) {
        Ok(_) => {}
        Err(Errno::BADF) => return Err(gone("the descriptor is closed")),
        Err(_) => return Err(gone("the descriptor is something else now")),
    }
    let _ = fcntl_setfd(borrowed, FdFlags::CLOEXEC);
    // SAFETY: open, a socket, and passed by the launcher to this process for nobody else to use.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A connection to PMI_PORT, `host:port`.
fn dial(port: &str) -> Result<OwnedFd, JobError> {
    let stream = TcpStream::connect(port).map_err(|e| {
        launcher_error(format!(
            "a launcher has started this program (PMI_PORT={port}), but cannot be spoken to: {e}"
        ))
    })?;
    let _ = stream.set_nodelay(true);
    Ok(stream.into())
}

impl Pmi {
    /// Says over a connection of its own who this is (PMI_PORT).
    fn identify(&mut self, id: u32) -> Result<(), JobError> {
        let answer = self.line(&format!("cmd=initack pmiid={id}\n"))?;
        if answer.command() != "initack" {
            return Err(launcher_error(format!(
                "the launcher does not know this process: it answers {answer:?}"
            )));
        }
        for _ in 0..3 {
            let set = self.next_line()?;
            let number = |key| set.number(key).and_then(|n| u32::try_from(n).ok());
            self.size = number("size").unwrap_or(self.size);
            self.rank = number("rank").unwrap_or(self.rank);
        }
        Ok(())
    }

    fn begin_first(&mut self) -> Result<(), JobError> {
        let maxes = self.line("cmd=get_maxes\n")?;
        let value_max = maxes.number("vallen_max").unwrap_or(1024);
        self.value_max = usize::try_from(value_max)
            .unwrap_or(1024)
            .clamp(128, LINE_VALUE_MAX + 1)
            - 1;
        let app = self.line("cmd=get_appnum\n")?;
        self.appnum = app
            .number("appnum")
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0);
        let name = self.line("cmd=get_my_kvsname\n")?;
        self.store = name
            .value("kvsname")
            .ok_or_else(|| launcher_error("the launcher names no store"))?
            .into();
        Ok(())
    }

    fn begin_second(&mut self, job: &str) -> Result<(), JobError> {
        let rank = self.rank.to_string();
        let mut pairs = vec![
            ("cmd", "fullinit"),
            ("pmirank", &rank),
            ("threaded", "FALSE"),
        ];
        // No server takes an empty value.
        if !job.is_empty() {
            pairs.insert(1, ("pmijobid", job));
        }
        let answer = self.ask(&pairs)?;
        let number = |key| answer.number(key).and_then(|n| u32::try_from(n).ok());
        self.rank = number("rank").unwrap_or(self.rank);
        self.size = number("size").unwrap_or(self.size);
        self.appnum = number("appnum").unwrap_or(0);
        self.value_max = 1000;
        self.store = job.into();
        if job.is_empty() {
            let answer = self.ask(&[("cmd", "job-getid")])?;
            self.store = answer.value("jobid").unwrap_or("0").into();
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), JobError> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(gone(e)),
            }
        }
        Ok(())
    }

    /// More bytes from the server. Blocks.
    fn read(&mut self) -> Result<(), JobError> {
        let mut piece = [0u8; 4096];
        loop {
            match rustix::io::read(&self.socket, piece.as_mut_slice()) {
                Ok(0) => return Err(gone(Errno::CONNRESET)),
                Ok(n) => {
                    self.ahead.extend_from_slice(&piece[..n]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(gone(e)),
            }
        }
    }

    fn next_line(&mut self) -> Result<Message, JobError> {
        loop {
            if let Some(end) = self.ahead.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.ahead.drain(..=end).collect();
                return parse_line(&line[..end])
                    .ok_or_else(|| launcher_error("the launcher says something that is not PMI"));
            }
            if self.ahead.len() > MESSAGE_MAX {
                return Err(launcher_error(
                    "the launcher says something that is not PMI",
                ));
            }
            self.read()?;
        }
    }

    /// A question of PMI-1 and its answer.
    fn line(&mut self, question: &str) -> Result<Message, JobError> {
        self.write(question.as_bytes())?;
        self.next_line()
    }

    /// A question of PMI-2 and its answer.
    fn ask(&mut self, pairs: &[(&str, &str)]) -> Result<Message, JobError> {
        self.write(&body(pairs))?;
        let garbled = || launcher_error("the launcher says something that is not PMI-2");
        while self.ahead.len() < 6 {
            self.read()?;
        }
        let head: Vec<u8> = self.ahead.drain(..6).collect();
        let len = head
            .first_chunk::<6>()
            .and_then(|head| parse_length(*head))
            .ok_or_else(garbled)?;
        while self.ahead.len() < len {
            self.read()?;
        }
        let body: Vec<u8> = self.ahead.drain(..len).collect();
        let answer = parse_body(&body).ok_or_else(garbled)?;
        let command = pairs.first().map_or("?", |p| p.1);
        if answer.command() != format!("{command}-response") {
            return Err(launcher_error(format!(
                "the launcher answers {command} with {}",
                answer.command()
            )));
        }
        match answer.number("rc") {
            None | Some(0) => Ok(answer),
            Some(code) => Err(launcher_error(format!(
                "the launcher refuses {command} with code {code} {}",
                answer.value("errmsg").unwrap_or_default()
            ))),
        }
    }

    fn found(answer: &Message) -> Option<String> {
        let yes = |key| {
            answer
                .value(key)
                .is_some_and(|v| v.eq_ignore_ascii_case("true"))
        };
        (yes("found") || yes("flag")).then(|| answer.value("value").unwrap_or_default().to_string())
    }
}

fn gone(cause: Errno) -> JobError {
    JobError::Refused {
        attempted: "speaking to the launcher (PMI)".into(),
        cause: cause.into(),
        advice: "it has ended the job, or has itself been killed",
    }
}

impl Kvs for Pmi {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn appnum(&self) -> u32 {
        self.appnum
    }
    fn value_max(&self) -> usize {
        self.value_max
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        if self.second {
            let pairs = [("cmd", "kvs-put"), ("key", key), ("value", value)];
            return self.ask(&pairs).map(drop);
        }
        let line = format!("cmd=put kvsname={} key={key} value={value}\n", self.store);
        let answer = self.line(&line)?;
        match (answer.command(), answer.number("rc")) {
            ("put_result", None | Some(0)) => Ok(()),
            _ => Err(launcher_error(format!(
                "the launcher does not take {key}: it answers {answer:?}"
            ))),
        }
    }

    fn fence(&mut self) -> Result<(), JobError> {
        if self.second {
            return self.ask(&[("cmd", "kvs-fence")]).map(drop);
        }
        let answer = self.line("cmd=barrier_in\n")?;
        match answer.command() {
            "barrier_out" => Ok(()),
            _ => Err(launcher_error(format!(
                "the launcher answers a barrier with {answer:?}"
            ))),
        }
    }

    fn get(&mut self, _owner: u32, key: &str) -> Result<Option<String>, JobError> {
        if self.second {
            let job = self.store.clone();
            let pairs = [
                ("cmd", "kvs-get"),
                ("jobid", &job),
                ("srcid", "-1"),
                ("key", key),
            ];
            return self.ask(&pairs).map(|answer| Pmi::found(&answer));
        }
        let line = format!("cmd=get kvsname={} key={key}\n", self.store);
        let answer = self.line(&line)?;
        match (answer.command(), answer.number("rc")) {
            ("get_result", None | Some(0)) => Ok(answer.value("value").map(String::from)),
            // That is how it says that the key is not there.
            ("get_result", Some(_)) => Ok(None),
            _ => Err(launcher_error(format!(
                "the launcher answers get with {answer:?}"
            ))),
        }
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError> {
        let text = if self.second {
            let pairs = [("cmd", "info-getjobattr"), ("key", "PMI_process_mapping")];
            self.ask(&pairs).map(|answer| Pmi::found(&answer))?
        } else {
            self.get(0, "PMI_process_mapping")?
        };
        Ok(text.and_then(|text| mapping::parse(&text, self.size)))
    }

    fn abort(&mut self, code: i32, _text: &str) {
        let message = if self.second {
            body(&[("cmd", "abort"), ("isworld", "TRUE"), ("msg", "MPI_Abort")])
        } else {
            format!("cmd=abort exitcode={code}\n").into_bytes()
        };
        if self.write(&message).is_ok() {
            // The server answers by ending this process, or, should it answer otherwise, the
            // process ends itself.
            let mut byte = [0u8; 1];
            let _ = rustix::net::sockopt::set_socket_timeout(
                &self.socket,
                rustix::net::sockopt::Timeout::Recv,
                Some(std::time::Duration::from_secs(2)),
            );
            let _ = rustix::io::read(&self.socket, byte.as_mut_slice());
        }
    }

    fn finalize(&mut self) {
        let _ = if self.second {
            self.ask(&[("cmd", "finalize")])
        } else {
            self.line("cmd=finalize\n")
        };
    }
}
