//! PMI-1 and PMI-2 over a socket. MPICH's Hydra speaks both, and so does srun --mpi=pmi2 with
//! PMI-2.

use std::env;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::kvs::{Kvs, launcher_error};
use super::pmi_message::{
    MESSAGE_MAX_BYTES, Message, PARENT_KEY, encode_body, parse_body, parse_length, parse_line,
    spawn_request,
};
use super::process_mapping;
use crate::error::JobError;
use crate::spawn_order::SpawnOrder;

/// Longest value of PMI-1. Slurm reads lines of 1024 bytes, names included.
const PMI1_VALUE_MAX_BYTES: usize = 800;

/// A connection to a PMI server.
struct Pmi {
    socket: OwnedFd,
    /// Received bytes that have not been parsed.
    received: Vec<u8>,
    is_pmi2: bool,
    rank: u32,
    size: u32,
    appnum: u32,
    /// Name of the store (PMI-1), or id of the job (PMI-2).
    kvs_name: String,
    value_max: usize,
}

/// Connects to the server that the environment names.
pub(super) fn connect() -> Result<Box<dyn Kvs>, JobError> {
    let text = |name: &str| env::var(name).ok().filter(|v| !v.is_empty());
    let number = |name: &str| text(name).and_then(|v| v.trim().parse::<u32>().ok());
    // srun --mpi=pmi2 sets PMI_JOBID. Hydra does not, and PMI-1 is enough for it.
    let is_pmi2 = match text("FERRY_PMI").as_deref() {
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
            Some(fd) => socket_from_fd(&fd)?,
            None => connect_to_port(&text("PMI_PORT").unwrap_or_default())?,
        },
        received: Vec::new(),
        is_pmi2,
        rank: number("PMI_RANK").unwrap_or(0),
        size: number("PMI_SIZE").unwrap_or(1),
        appnum: 0,
        kvs_name: String::new(),
        value_max: 1024,
    };
    if text("PMI_FD").is_none() {
        pmi.identify(number("PMI_ID").or(number("PMI_RANK")).unwrap_or(0))?;
    }
    let version = if is_pmi2 {
        "cmd=init pmi_version=2 pmi_subversion=0\n"
    } else {
        "cmd=init pmi_version=1 pmi_subversion=1\n"
    };
    let answer = pmi.pmi1_request(version)?;
    if answer.command() != "response_to_init" || answer.number("rc").unwrap_or(0) != 0 {
        return Err(launcher_error(format!(
            "the launcher does not speak PMI-{}: it answers {answer:?}",
            if is_pmi2 { 2 } else { 1 }
        )));
    }
    if is_pmi2 {
        pmi.init_pmi2(&text("PMI_JOBID").unwrap_or_default())?;
    } else {
        pmi.init_pmi1()?;
    }
    Ok(Box::new(pmi))
}

/// The socket that PMI_FD names.
fn socket_from_fd(text: &str) -> Result<OwnedFd, JobError> {
    let disconnected = |why: &str| {
        launcher_error(format!(
            "a launcher has started this program (PMI_FD={text}), but cannot be spoken to: {why}. \
             Does a wrapper close its descriptors, or was this program started by another one that \
             is in MPI itself? Start it with the launcher directly, or unset PMI_FD, PMI_RANK and \
             PMI_SIZE to run it alone"
        ))
    };
    let Some(fd) = text.trim().parse::<RawFd>().ok().filter(|&fd| fd > 2) else {
        return Err(disconnected("that is no descriptor's number"));
    };
    // Not ours until it is known to be a socket: the variable may have outlived the descriptor.
    // SAFETY: only a number so far; fcntl and getsockopt on a closed one say EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match rustix::net::sockopt::socket_type(borrowed) {
        Ok(_) => {}
        Err(Errno::BADF) => return Err(disconnected("the descriptor is closed")),
        Err(_) => return Err(disconnected("the descriptor is something else now")),
    }
    let _ = fcntl_setfd(borrowed, FdFlags::CLOEXEC);
    // SAFETY: open, a socket, and passed by the launcher to this process for nobody else to use.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects to PMI_PORT, `host:port`.
fn connect_to_port(port: &str) -> Result<OwnedFd, JobError> {
    let stream = TcpStream::connect(port).map_err(|e| {
        launcher_error(format!(
            "a launcher has started this program (PMI_PORT={port}), but cannot be spoken to: {e}"
        ))
    })?;
    let _ = stream.set_nodelay(true);
    Ok(stream.into())
}

impl Pmi {
    /// Identifies this process on a new connection (PMI_PORT).
    fn identify(&mut self, id: u32) -> Result<(), JobError> {
        let answer = self.pmi1_request(&format!("cmd=initack pmiid={id}\n"))?;
        if answer.command() != "initack" {
            return Err(launcher_error(format!(
                "the launcher does not know this process: it answers {answer:?}"
            )));
        }
        for _ in 0..3 {
            let set = self.read_line()?;
            let number = |key| set.number(key).and_then(|n| u32::try_from(n).ok());
            self.size = number("size").unwrap_or(self.size);
            self.rank = number("rank").unwrap_or(self.rank);
        }
        Ok(())
    }

    fn init_pmi1(&mut self) -> Result<(), JobError> {
        let limits = self.pmi1_request("cmd=get_maxes\n")?;
        let value_max = limits.number("vallen_max").unwrap_or(1024);
        self.value_max = usize::try_from(value_max)
            .unwrap_or(1024)
            .clamp(128, PMI1_VALUE_MAX_BYTES + 1)
            - 1;
        let app = self.pmi1_request("cmd=get_appnum\n")?;
        self.appnum = app
            .number("appnum")
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(0);
        let name = self.pmi1_request("cmd=get_my_kvsname\n")?;
        self.kvs_name = name
            .value("kvsname")
            .ok_or_else(|| launcher_error("the launcher names no store"))?
            .into();
        Ok(())
    }

    fn init_pmi2(&mut self, job: &str) -> Result<(), JobError> {
        let rank = self.rank.to_string();
        let mut pairs = vec![
            ("cmd", "fullinit"),
            ("pmirank", &rank),
            ("threaded", "FALSE"),
        ];
        // Servers refuse an empty value.
        if !job.is_empty() {
            pairs.insert(1, ("pmijobid", job));
        }
        let answer = self.pmi2_request(&pairs)?;
        let number = |key| answer.number(key).and_then(|n| u32::try_from(n).ok());
        self.rank = number("rank").unwrap_or(self.rank);
        self.size = number("size").unwrap_or(self.size);
        self.appnum = number("appnum").unwrap_or(0);
        self.value_max = 1000;
        self.kvs_name = job.into();
        if job.is_empty() {
            let answer = self.pmi2_request(&[("cmd", "job-getid")])?;
            self.kvs_name = answer.value("jobid").unwrap_or("0").into();
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), JobError> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(disconnected(e)),
            }
        }
        Ok(())
    }

    /// Reads more bytes from the server. Blocks.
    fn read(&mut self) -> Result<(), JobError> {
        let mut piece = [0u8; 4096];
        loop {
            match rustix::io::read(&self.socket, piece.as_mut_slice()) {
                Ok(0) => return Err(disconnected(Errno::CONNRESET)),
                Ok(n) => {
                    self.received.extend_from_slice(&piece[..n]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(disconnected(e)),
            }
        }
    }

    fn read_line(&mut self) -> Result<Message, JobError> {
        loop {
            if let Some(end) = self.received.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return parse_line(&line[..end])
                    .ok_or_else(|| launcher_error("the launcher says something that is not PMI"));
            }
            if self.received.len() > MESSAGE_MAX_BYTES {
                return Err(launcher_error(
                    "the launcher says something that is not PMI",
                ));
            }
            self.read()?;
        }
    }

    /// Sends a PMI-1 request and returns the answer.
    fn pmi1_request(&mut self, question: &str) -> Result<Message, JobError> {
        self.write(question.as_bytes())?;
        self.read_line()
    }

    /// Sends a PMI-2 request and returns the answer.
    fn pmi2_request(&mut self, pairs: &[(&str, &str)]) -> Result<Message, JobError> {
        self.write(&encode_body(pairs))?;
        let garbled = || launcher_error("the launcher says something that is not PMI-2");
        while self.received.len() < 6 {
            self.read()?;
        }
        let head: Vec<u8> = self.received.drain(..6).collect();
        let len = head
            .first_chunk::<6>()
            .and_then(|head| parse_length(*head))
            .ok_or_else(garbled)?;
        while self.received.len() < len {
            self.read()?;
        }
        let encode_body: Vec<u8> = self.received.drain(..len).collect();
        let answer = parse_body(&encode_body).ok_or_else(garbled)?;
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

fn disconnected(cause: Errno) -> JobError {
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
        if self.is_pmi2 {
            let pairs = [("cmd", "kvs-put"), ("key", key), ("value", value)];
            return self.pmi2_request(&pairs).map(drop);
        }
        let line = format!(
            "cmd=put kvsname={} key={key} value={value}\n",
            self.kvs_name
        );
        let answer = self.pmi1_request(&line)?;
        match (answer.command(), answer.number("rc")) {
            ("put_result", None | Some(0)) => Ok(()),
            _ => Err(launcher_error(format!(
                "the launcher does not take {key}: it answers {answer:?}"
            ))),
        }
    }

    fn fence(&mut self) -> Result<(), JobError> {
        if self.is_pmi2 {
            return self.pmi2_request(&[("cmd", "kvs-fence")]).map(drop);
        }
        let answer = self.pmi1_request("cmd=barrier_in\n")?;
        match answer.command() {
            "barrier_out" => Ok(()),
            _ => Err(launcher_error(format!(
                "the launcher answers a barrier with {answer:?}"
            ))),
        }
    }

    fn get(&mut self, _owner: u32, key: &str) -> Result<Option<String>, JobError> {
        if self.is_pmi2 {
            let job = self.kvs_name.clone();
            let pairs = [
                ("cmd", "kvs-get"),
                ("jobid", &job),
                ("srcid", "-1"),
                ("key", key),
            ];
            return self.pmi2_request(&pairs).map(|answer| Pmi::found(&answer));
        }
        let line = format!("cmd=get kvsname={} key={key}\n", self.kvs_name);
        let answer = self.pmi1_request(&line)?;
        match (answer.command(), answer.number("rc")) {
            ("get_result", None | Some(0)) => Ok(answer.value("value").map(String::from)),
            // This is how it says that there is no such key.
            ("get_result", Some(_)) => Ok(None),
            _ => Err(launcher_error(format!(
                "the launcher answers get with {answer:?}"
            ))),
        }
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError> {
        let text = if self.is_pmi2 {
            let pairs = [("cmd", "info-getjobattr"), ("key", "PMI_process_mapping")];
            self.pmi2_request(&pairs)
                .map(|answer| Pmi::found(&answer))?
        } else {
            self.get(0, "PMI_process_mapping")?
        };
        Ok(text.and_then(|text| process_mapping::parse(&text, self.size)))
    }

    fn spawn(&mut self, order: &SpawnOrder) -> Result<bool, JobError> {
        // Of PMI-2's servers Slurm's srun refuses, and Hydra offers PMI-1.
        let Some(request) = spawn_request(order).filter(|_| !self.is_pmi2) else {
            return Ok(false);
        };
        let answer = self.pmi1_request(&request)?;
        match (answer.command(), answer.number("rc")) {
            ("spawn_result", None | Some(0)) => Ok(true),
            _ => Err(launcher_error(format!(
                "the launcher does not start them: it answers {answer:?}"
            ))),
        }
    }

    fn parent(&mut self) -> Result<Option<String>, JobError> {
        if self.is_pmi2 || env::var_os("PMI_SPAWNED").is_none_or(|v| v != "1") {
            return Ok(None);
        }
        self.get(0, PARENT_KEY)
    }

    fn universe(&mut self) -> Option<u32> {
        if self.is_pmi2 {
            return None;
        }
        let answer = self.pmi1_request("cmd=get_universe_size\n").ok()?;
        answer.number("size").and_then(|n| u32::try_from(n).ok())
    }

    fn abort(&mut self, code: i32, _text: &str) {
        let message = if self.is_pmi2 {
            encode_body(&[("cmd", "abort"), ("isworld", "TRUE"), ("msg", "MPI_Abort")])
        } else {
            format!("cmd=abort exitcode={code}\n").into_bytes()
        };
        if self.write(&message).is_ok() {
            // The server ends this process. If it answers instead, the process ends itself.
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
        let _ = if self.is_pmi2 {
            self.pmi2_request(&[("cmd", "finalize")])
        } else {
            self.pmi1_request("cmd=finalize\n")
        };
    }
}
