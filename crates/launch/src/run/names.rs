//! Published names (MPI 5.0 §11.10.4). A job and the jobs that it spawns share one store, in the
//! launcher of the first; or all use a name server (--names).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use ferry_job::{
    NameQuestion, NameRequest, NameStore, encode_answer, new_key, read_message, write_message,
};
use rustix::event::epoll;

use super::peers::HELLO;
use super::{EVENT_NAMES, Job};
use crate::names;

/// What [`names::NAMES`] begins with where the names are another launcher's on this host.
const LAUNCHER: &str = "launcher:";
/// How long another launcher may take. A choice: it answers at once.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where published names are.
#[derive(Default)]
pub(super) struct Names {
    /// This job's own.
    store: NameStore,
    /// A server, or another launcher. `None`: this launcher has them.
    upstream: Option<String>,
    /// Where launchers that this one has started ask, and its name.
    listener: Option<(UnixListener, String)>,
}

impl Names {
    pub(super) fn new(server: Option<&str>) -> Names {
        let inherited = || std::env::var(names::NAMES).ok();
        Names {
            upstream: server.map(str::to_string).or_else(inherited),
            ..Names::default()
        }
    }

    /// The answer to an encoded question.
    pub(super) fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        match &self.upstream {
            None => {
                let request = NameRequest::decode(question);
                let request = request.map_err(|e| io::Error::other(e.to_string()))?;
                Ok(encode_answer(&self.store.ask(&request)))
            }
            Some(upstream) => match upstream.strip_prefix(LAUNCHER) {
                Some(name) => ask_launcher(name, question),
                None => names::ask(upstream, question),
            },
        }
    }

    /// The value of [`names::NAMES`] for a launcher that this one starts.
    pub(super) fn variable(&mut self, poll: &OwnedFd) -> io::Result<String> {
        if let Some(upstream) = &self.upstream {
            return Ok(upstream.clone());
        }
        self.listener_name(poll)
            .map(|name| format!("{LAUNCHER}{name}"))
    }

    /// The name of the listener, which is made if there is none.
    fn listener_name(&mut self, poll: &OwnedFd) -> io::Result<String> {
        if self.listener.is_none() {
            let key = new_key()?;
            let name: String = key[..16].iter().map(|b| format!("{b:02x}")).collect();
            let listener = UnixListener::bind_addr(&address(&name)?)?;
            listener.set_nonblocking(true)?;
            let token = epoll::EventData::new_u64(EVENT_NAMES);
            epoll::add(poll, &listener, token, epoll::EventFlags::IN)?;
            self.listener = Some((listener, name));
        }
        Ok(self
            .listener
            .as_ref()
            .map_or(String::new(), |(_, name)| name.clone()))
    }
}

/// The address of a launcher's listener: in the abstract namespace, by a name that nobody guesses.
pub(super) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("ferry-names-{name}"))
}

fn ask_launcher(name: &str, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write_message(&mut stream, question)?;
    read_message(&mut stream)
}

/// Is the other end a process of this user?
pub(super) fn is_own(stream: &UnixStream) -> bool {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` has the length that is given.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut len,
        )
    };
    // SAFETY: a plain system call.
    got == 0 && who.uid == unsafe { libc::getuid() }
}

impl Job<'_> {
    /// The answer to an encoded question: about a name, or about launchers of other jobs.
    pub(super) fn answer(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        let request = NameRequest::decode(question).ok();
        let answer = match request {
            Some(NameRequest::Contact) => {
                let name = self.names.listener_name(&self.poll)?;
                Some(self.peers.listen(&name))
            }
            Some(NameRequest::JobConnected { contact }) => {
                self.peers.learn_contact(&contact);
                Some(String::new())
            }
            _ => return self.names.ask(question),
        };
        Ok(encode_answer(&answer))
    }

    /// Answers a rank's question about a name.
    pub(super) fn answer_name(&mut self, socket: OwnedFd) {
        if let Ok((asker, question)) = NameQuestion::read(socket) {
            // Without an answer the rank finds that its socket has ended.
            match self.answer(&question) {
                Ok(answer) => asker.answer(&answer),
                Err(e) => self.complain_of_names(&e),
            }
        }
    }

    pub(super) fn complain_of_names(&mut self, e: &io::Error) {
        self.streams
            .output
            .print_message(&format!("published names cannot be asked for: {e}"));
    }

    /// Answers launchers that ask.
    pub(super) fn answer_launchers(&mut self) {
        loop {
            let Some((listener, _)) = &self.names.listener else {
                return;
            };
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            if !is_own(&stream) || stream.set_read_timeout(Some(TIMEOUT)).is_err() {
                continue;
            }
            let Ok(question) = read_message(&mut stream) else {
                continue;
            };
            if question.starts_with(HELLO) {
                self.peers.accept(stream, &question);
            } else if let Ok(answer) = self.answer(&question) {
                let _ = write_message(&mut stream, &answer);
            }
        }
    }
}

/// Answers a question of a process without launcher, which has started this one for it. Returns the
/// exit status.
pub fn answer_one(socket: OwnedFd) -> u8 {
    let answered = NameQuestion::read(socket).and_then(|(asker, question)| {
        let answer = Names::new(None).ask(&question)?;
        asker.answer(&answer);
        Ok(())
    });
    match answered {
        Ok(()) => 0,
        Err(e) => {
            crate::complain(&format!("published names cannot be asked for: {e}"));
            1
        }
    }
}
