//! Who may speak to a job: the handshake that opens every connection between its processes, the
//! encrypted records that follow if the user wants them, and the rules by which a listening process
//! keeps strangers from costing it anything.
//!
//! Nothing here touches a socket. A transport (or a launcher) reads and writes; this crate is fed
//! with the bytes and says what to send. All processes of a job share a [`Key`]; a [`Guard`] is
//! what one process makes of it:
//!
//! ```
//! use ferry_auth::{Guard, Key, Local, Step};
//! let key = Key::random()?;
//! let local = |process| Local { job: 7, process, purpose: 1, encrypt: true };
//! let (one, two) = (Guard::new(&key, local(0)), Guard::new(&key, local(1)));
//!
//! // Process 0 connects to process 1 …
//! let (mut caller, hello) = one.connect(1)?;
//! // … which reads `hello` from a fresh connection …
//! let mut called = two.accept();
//! let Step::Send(answer) = called.feed(&two, &mut &hello[..])? else { unreachable!() };
//! // … and its answer goes back. The caller is done, and its own data may follow `finish` at once.
//! let Step::Done(session, finish) = caller.feed(&one, &mut &answer[..])? else { unreachable!() };
//! let Step::Done(theirs, _) = called.feed(&two, &mut &finish[..])? else { unreachable!() };
//! assert_eq!((session.peer(), theirs.peer()), (1, 0));
//!
//! // With FERRY_ENCRYPT=1, everything after that travels in records.
//! let (mut sealer, mut opener) = (session.records().0, theirs.records().1);
//! let mut record = *b"....hello................";
//! sealer.seal(&mut record)?;
//! assert_eq!(opener.open(&mut record)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! docs/security.md says against whom this guards and against whom not.
#![forbid(unsafe_code)]

mod handshake;
mod key;
mod porch;
mod record;

pub use handshake::{
    ANSWER, FINISH, Guard, HELLO, Handshake, Local, Message, Rejected, Session, Step, VERSION,
};
pub use key::{Key, NoRandomness, NotAKey};
pub use porch::{Drops, Porch};
pub use record::{HEADER, Opener, PAYLOAD_MAX, RecordError, Sealer, TAG, body};
