//! The extension of a transport that reaches processes of other jobs.

use crate::{ProcId, TransportError};
use std::os::fd::BorrowedFd;

/// A key by which processes of two groups connect to each other.
#[derive(Clone)]
pub struct Link {
    /// Its number in this process.
    pub id: u64,
    /// Its random number, the same for all its processes.
    pub wire: u64,
    /// Its key: random, and known only to the processes of both groups.
    pub key: [u8; 32],
    /// This process's number in the link.
    pub number: u32,
    /// Connections are encrypted.
    pub encrypt: bool,
    /// It is a port of this process: whoever has the key gets a process number when it connects.
    pub is_port: bool,
}

/// A process of another job.
#[derive(Clone, Debug)]
pub struct ForeignProcess {
    /// The link by which it is connected to.
    pub link: u64,
    /// Its number in the link.
    pub number: u32,
    /// Its business card.
    pub card: Vec<u8>,
    /// It is on this host.
    pub same_host: bool,
    /// Its host, for messages.
    pub host: String,
}

/// Processes of other jobs. Never blocks.
pub trait ForeignProcesses {
    /// This process's business card.
    fn card(&self) -> Vec<u8>;
    /// Listens at the addresses by which other hosts reach this one, too.
    ///
    /// Errors: there is none, or the system refuses.
    fn listen_outside(&mut self) -> Result<(), TransportError>;
    /// Returns whether there is a medium by which processes of other jobs are reached.
    fn serves_other_jobs(&self) -> bool;
    /// Hides a key from whoever does not know this job's, or shows it again. `number` must not be
    /// used for a second key.
    fn hide_key(&self, number: u64, key: &mut [u8; 32]);
    /// Makes a link known. Processes that have its key can connect from now on, if it is a port or
    /// if they were [made known](ForeignProcesses::add_foreign).
    fn add_link(&mut self, link: &Link);
    /// Forgets a link. Open connections stay; nobody connects by it any more.
    fn remove_link(&mut self, id: u64);
    /// Makes a process of another job known. Returns its process number here.
    fn add_foreign(&mut self, process: ForeignProcess) -> ProcId;
    /// Ends the connection to a process of another job: what was sent still arrives, then each side
    /// sends a close notification. The process number must not be used any more; it may become
    /// another process's.
    fn remove_foreign(&mut self, process: ProcId);
    /// Begins to connect to a process of another job, if no connection is there or on its way. A
    /// failure is reported as that of any connection.
    fn connect_to(&mut self, process: ProcId);
    /// Returns whether there is a connection to a process.
    fn is_connected(&self, process: ProcId) -> bool;
    /// Processes that have connected by this link, or were made known with it.
    fn processes_of(&self, id: u64) -> Vec<ProcId>;
    /// Returns whether nothing more comes from a process of another job: it has ended its
    /// connection in order, or is lost.
    fn has_left(&self, process: ProcId) -> bool;
    /// Wakes the process when `fd` becomes readable, until [`ForeignProcesses::unwatch`]. The
    /// caller reads it.
    ///
    /// Errors: the system refuses.
    fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<(), TransportError>;
    /// Returns whether a watched descriptor was readable at the last look at the poll set.
    fn watched_is_ready(&self) -> bool;
    /// Ends [`ForeignProcesses::watch`].
    fn unwatch(&mut self, fd: BorrowedFd<'_>);
}
