//! Authentication of the connections of a job: the handshake that opens each of them, the
//! encrypted records that follow if the user wants them, and the bounds on what strangers may
//! cost a listening process.
//!
//! ```text
//!  transport (socket)                     ferry-auth
//!  ──────────────────                     ──────────
//!  connect ──────────► HandshakeConfig::initiate ─► Handshake ─┐      snow: Noise NNpsk0
//!  accept  ──────────► HandshakeConfig::respond ──► Handshake ─┤
//!     │                                                        │ feed(bytes) ─► Step
//!     └─ unfinished ──► HandshakeBacklog                       ├─ More, Send(Message)
//!                       bounded number and time                ├─ Rejected ─► RejectionCounts
//!                                                              └─ Done(Session)
//!  data, FERRY_ENCRYPT=1 ◄──── records: Sealer, Opener ◄──────────────┘
//! ```
//!
//! Nothing here touches a socket. A transport reads and writes. It feeds the handshake with bytes
//! and is told what to send. All processes of a job share a [`JobKey`]; a [`HandshakeConfig`] is
//! what one process makes of it:
//!
//! ```
//! use ferry_auth::{HandshakeConfig, Identity, JobKey, Step};
//! let key = JobKey::random()?;
//! let identity = |process| Identity { job: 7, process, purpose: 1, encrypt: true };
//! let zero = HandshakeConfig::new(&key, identity(0));
//! let one = HandshakeConfig::new(&key, identity(1));
//!
//! // Process 0 connects to process 1 …
//! let (mut initiator, hello) = zero.initiate(1)?;
//! // … which reads the hello from a fresh connection and answers it.
//! let mut responder = one.respond();
//! let Step::Send(response) = responder.feed(&one, &mut &hello[..])? else { unreachable!() };
//! // The initiator is done. Its own data may follow `finished` at once.
//! let Step::Done(mine, finished) = initiator.feed(&zero, &mut &response[..])? else {
//!     unreachable!()
//! };
//! let Step::Done(theirs, _) = responder.feed(&one, &mut &finished[..])? else { unreachable!() };
//! assert_eq!((mine.peer(), theirs.peer()), (1, 0));
//!
//! // With FERRY_ENCRYPT=1, everything after that travels in records.
//! let (mut sealer, mut opener) = (mine.records().0, theirs.records().1);
//! let mut record = *b"....hello................";
//! sealer.seal(&mut record)?;
//! assert_eq!(opener.open(&mut record)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! docs/security.md says who is trusted, and what is not guarded.
#![forbid(unsafe_code)]

mod backlog;
mod handshake;
mod key;
mod message;
mod record;
mod rejected;
mod replay;
mod resolver;

pub use backlog::HandshakeBacklog;
pub use handshake::{Handshake, HandshakeConfig, Identity, Session, Step};
pub use key::{InvalidKey, JobKey, NoRandomness};
pub use message::{FINISHED_BYTES, HELLO_BYTES, Message, RESPONSE_BYTES, VERSION};
pub use record::{
    HEADER_BYTES, Opener, PAYLOAD_MAX_BYTES, RecordError, Sealer, TAG_BYTES, body_bytes,
};
pub use rejected::{Rejected, RejectionCounts};
