//! Published names (MPI 5.0 §11.10.4): what a rank asks of its launcher, or a name server.
//!
//! For each question the rank makes a socket pair and passes one end to the launcher. So the answer
//! is never mixed with other messages.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::rank_info::{Input, Malformed};

/// Longest encoded question or answer, bytes.
const MESSAGE_MAX_BYTES: u32 = 64 << 10;
/// How long a launcher waits for the question after it has got its socket, and a rank for the
/// answer. A choice: both arrive at once, unless a host is lost.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Names that a store holds at most. A choice: more than any program publishes, and little memory.
const NAMES_MAX: usize = 100_000;

/// A question about a published name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRequest {
    /// Publish a name with this port. Refused if the name is published.
    Publish {
        /// The name.
        service: String,
        /// The port.
        port: String,
    },
    /// Unpublish a name. Refused if it is not published with this port.
    Unpublish {
        /// The name.
        service: String,
        /// The port.
        port: String,
    },
    /// Which port is published under this name?
    Lookup {
        /// The name.
        service: String,
    },
    /// The launcher's contact: where launchers of other jobs find it. A name server refuses this.
    Contact,
    /// The ranks have connected with another job. A name server refuses this.
    JobConnected {
        /// The contact of the other job's launcher, its answer to [`NameRequest::Contact`].
        contact: String,
    },
}

/// An answer: the port of a looked-up name, the contact, or an empty text. `None`: refused.
pub type NameAnswer = Option<String>;

impl NameRequest {
    /// Encodes the question, for [`NameRequest::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let (kind, service, port) = match self {
            NameRequest::Publish { service, port } => (0u32, service.as_str(), port.as_str()),
            NameRequest::Unpublish { service, port } => (1, service.as_str(), port.as_str()),
            NameRequest::Lookup { service } => (2, service.as_str(), ""),
            NameRequest::Contact => (3, "", ""),
            NameRequest::JobConnected { contact } => (4, contact.as_str(), ""),
        };
        let mut out = kind.to_le_bytes().to_vec();
        for text in [service, port] {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out
    }

    /// Decodes what [`NameRequest::encode`] has encoded.
    ///
    /// # Errors
    /// The bytes are no question.
    pub fn decode(bytes: &[u8]) -> Result<NameRequest, Malformed> {
        let mut input = Input::new(bytes);
        let kind = input.u32("the kind of question")?;
        let mut text = || {
            let len = input.u32("a text")?;
            let text = input.bytes(len as usize, "a text")?;
            Ok::<_, Malformed>(String::from_utf8_lossy(text).into_owned())
        };
        let (service, port) = (text()?, text()?);
        match kind {
            0 => Ok(NameRequest::Publish { service, port }),
            1 => Ok(NameRequest::Unpublish { service, port }),
            2 => Ok(NameRequest::Lookup { service }),
            3 => Ok(NameRequest::Contact),
            4 => Ok(NameRequest::JobConnected { contact: service }),
            _ => Err(Malformed::Field(format!("there is no question {kind}"))),
        }
    }
}

/// Encodes an answer.
pub fn encode_answer(answer: &NameAnswer) -> Vec<u8> {
    match answer {
        None => vec![0],
        Some(port) => [&[1], port.as_bytes()].concat(),
    }
}

/// Decodes an answer. `None`: the bytes are none.
pub fn decode_answer(bytes: &[u8]) -> Option<NameAnswer> {
    match bytes.split_first()? {
        (0, []) => Some(None),
        (1, port) => Some(Some(String::from_utf8_lossy(port).into_owned())),
        _ => None,
    }
}

/// Writes a message, preceded by its length.
pub fn write_message(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&[&(bytes.len() as u32).to_le_bytes(), bytes].concat())
}

/// Reads a message. Blocks until it is here.
pub fn read_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MESSAGE_MAX_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The rank's end of the socket for one question.
#[derive(Debug)]
pub struct NameSocket(UnixStream);

impl NameSocket {
    /// Writes a question, and makes the end that the launcher gets.
    ///
    /// # Errors
    /// The limit on open files is reached.
    pub fn ask(request: &NameRequest) -> io::Result<(NameSocket, OwnedFd)> {
        let (mut ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(TIMEOUT))?;
        write_message(&mut ours, &request.encode())?;
        Ok((NameSocket(ours), theirs.into()))
    }

    /// Waits for the answer. Blocks for at most half a minute.
    ///
    /// # Errors
    /// The launcher has ended, or has not answered in time.
    pub fn answer(mut self) -> io::Result<NameAnswer> {
        let bytes = read_message(&mut self.0)?;
        decode_answer(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The launcher's end of the socket for one question.
#[derive(Debug)]
pub struct NameQuestion(UnixStream);

impl NameQuestion {
    /// Reads the question, which was written before the socket was passed on.
    ///
    /// # Errors
    /// The socket carries no question.
    pub fn read(socket: OwnedFd) -> io::Result<(NameQuestion, Vec<u8>)> {
        let mut socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(TIMEOUT))?;
        let bytes = read_message(&mut socket)?;
        Ok((NameQuestion(socket), bytes))
    }

    /// Sends the answer.
    pub fn answer(mut self, answer: &[u8]) {
        // A rank that is gone needs no answer.
        let _ = write_message(&mut self.0, answer);
    }
}

/// Published names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameStore(BTreeMap<String, String>);

impl NameStore {
    /// Publishes, unpublishes or looks up a name, as the question says.
    pub fn ask(&mut self, request: &NameRequest) -> NameAnswer {
        match request {
            NameRequest::Publish { service, port } => {
                if self.0.contains_key(service) || self.0.len() >= NAMES_MAX {
                    return None;
                }
                self.0.insert(service.clone(), port.clone());
                Some(String::new())
            }
            NameRequest::Unpublish { service, port } => {
                if self.0.get(service) != Some(port) {
                    return None;
                }
                self.0.remove(service);
                Some(String::new())
            }
            NameRequest::Lookup { service } => self.0.get(service).cloned(),
            NameRequest::Contact | NameRequest::JobConnected { .. } => None,
        }
    }

    /// All names with their ports, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, port)| (name.as_str(), port.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(service: &str, port: &str) -> NameRequest {
        NameRequest::Publish {
            service: service.into(),
            port: port.into(),
        }
    }

    #[test]
    fn a_name_has_one_port_at_a_time() {
        let mut names = NameStore::default();
        let lookup = NameRequest::Lookup {
            service: "a".into(),
        };
        let unpublish = |port: &str| NameRequest::Unpublish {
            service: "a".into(),
            port: port.into(),
        };
        assert_eq!(names.ask(&lookup), None);
        assert_eq!(names.ask(&publish("a", "1")), Some(String::new()));
        assert_eq!(names.ask(&publish("a", "2")), None);
        assert_eq!(names.ask(&lookup), Some("1".into()));
        assert_eq!(names.ask(&unpublish("2")), None);
        assert_eq!(names.ask(&unpublish("1")), Some(String::new()));
        assert_eq!(names.ask(&lookup), None);
    }

    #[test]
    fn questions_and_answers_come_through_the_socket() {
        for answer in [None, Some(String::new()), Some("port".to_string())] {
            let (asker, end) = NameSocket::ask(&publish("x", "y")).unwrap();
            let (question, bytes) = NameQuestion::read(end).unwrap();
            assert_eq!(NameRequest::decode(&bytes), Ok(publish("x", "y")));
            question.answer(&encode_answer(&answer));
            assert_eq!(asker.answer().unwrap(), answer);
        }
    }

    #[test]
    fn fuzz_questions_about_names() {
        let lookup = NameRequest::Lookup {
            service: "service".into(),
        };
        let connected = NameRequest::JobConnected {
            contact: "1:a".into(),
        };
        let seeds =
            [publish("a", "b"), lookup, NameRequest::Contact, connected].map(|q| q.encode());
        ferry_fuzz::fuzz("questions about names", &seeds, |bytes| {
            let _ = decode_answer(bytes);
            NameRequest::decode(bytes).is_ok()
        });
    }
}
