//! Processes of other jobs: links, process numbers, and descriptors that wake a waiting thread.

use crate::base::key::ProcId;
use crate::progress::device::Device;
use crate::progress::lock;
use ferry_job::{RankInfo, Segment};
use ferry_transport::{
    ForeignProcess, ForeignProcesses, Link, SharedSegment, Sleeper, TransportError,
};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

impl Device {
    /// Opens what processes of other jobs are reached by, if it is not open. `outside`: from other
    /// hosts, too. Returns this process's business card.
    ///
    /// Errors: on a modelled machine; a setting makes no sense; the system refuses.
    pub fn open_connections(
        &mut self,
        rank_info: &RankInfo,
        outside: bool,
    ) -> Result<Vec<u8>, TransportError> {
        let transports = &mut self.worker.transports;
        if transports.open_connections(rank_info, outside)? {
            let wakeup = transports.wakeup();
            let (_, epoll_fd) = wakeup.sleep_addresses();
            self.status
                .epoll_fd
                .store(epoll_fd.unwrap_or(-1), Ordering::Relaxed);
            // Threads that sleep now must wait for descriptors from now on.
            wakeup.signal(Sleeper::Program, lock::is_watched());
            wakeup.signal(Sleeper::Progress, false);
        }
        Ok(self.connections().map_or(Vec::new(), |c| c.card()))
    }

    fn connections(&mut self) -> Option<&mut dyn ForeignProcesses> {
        self.worker.transports.foreign_processes()
    }

    /// Hides a key from whoever does not know this job's: see [`ForeignProcesses::hide_key`].
    pub fn hide_key(&mut self, number: u64, key: &mut [u8; 32]) {
        if let Some(connections) = self.connections() {
            connections.hide_key(number, key);
        }
    }

    /// Makes a link known: see [`ForeignProcesses::add_link`].
    pub fn add_link(&mut self, link: &Link) {
        if let Some(connections) = self.connections() {
            connections.add_link(link);
        }
    }

    /// Forgets a link: see [`ForeignProcesses::remove_link`].
    pub fn remove_link(&mut self, id: u64) {
        if let Some(connections) = self.connections() {
            connections.remove_link(id);
        }
    }

    /// Makes a process of another job known. Returns its process number here.
    pub fn add_foreign(&mut self, process: ForeignProcess) -> Option<ProcId> {
        Some(self.connections()?.add_foreign(process))
    }

    /// Begins to connect to a process of another job: see [`ForeignProcesses::connect_to`].
    pub fn connect_to(&mut self, process: ProcId) {
        if let Some(connections) = self.connections() {
            connections.connect_to(process);
        }
    }

    /// Returns whether there is a connection to a process of another job.
    pub fn is_connected(&mut self, process: ProcId) -> bool {
        self.connections().is_some_and(|c| c.is_connected(process))
    }

    /// Processes that have connected by this link.
    pub fn processes_of(&mut self, link: u64) -> Vec<ProcId> {
        self.connections()
            .map_or(Vec::new(), |c| c.processes_of(link))
    }

    /// Ends the connection to a process of another job, and forgets it: see
    /// [`ForeignProcesses::remove_foreign`].
    pub fn remove_foreign(&mut self, process: ProcId) {
        self.worker.offer_queued();
        self.status.parted.fetch_add(1, Ordering::Relaxed);
        if let Some(connections) = self.connections() {
            connections.remove_foreign(process);
        }
        self.worker.transports.forget_route(process);
        self.worker.forget_peer(process);
    }

    /// Operations with a process of another job fail, now and later: it has ended.
    pub fn fail_foreign(&mut self, process: ProcId, what: &str) {
        let fault = TransportError::Lost {
            peer: process,
            host: "of another job".into(),
            what: what.into(),
        };
        self.worker.fail_transport(&fault);
    }

    /// Tells the launcher of which other jobs this process knows processes. `awaits_unknown`: it
    /// waits for processes of a job that it does not know.
    pub fn show_known_jobs(&mut self, jobs: &[u64], awaits_unknown: bool) {
        let room = self.status.known_jobs.len();
        for (at, shown) in self.status.known_jobs.iter().enumerate() {
            shown.store(jobs.get(at).copied().unwrap_or(0), Ordering::Relaxed);
        }
        let unknown = awaits_unknown || jobs.len() > room;
        self.status
            .awaits_unknown
            .store(u32::from(unknown), Ordering::Relaxed);
    }

    /// Does this process share memory with others, as far as its settings allow?
    pub fn may_share(&self) -> bool {
        self.worker.transports.may_share()
    }

    /// Shares a segment with processes of other jobs. `processes`: the process numbers here of all
    /// that use it, in the order of the segment; `me`: its own place there. Nobody is reached by it
    /// before [`Device::reach_by`].
    ///
    /// Errors: mapping is refused; the limit on open files is reached.
    pub fn share(
        &mut self,
        segment: Segment,
        processes: Vec<ProcId>,
        me: usize,
        rank_info: &RankInfo,
    ) -> Result<SharedSegment, TransportError> {
        let transports = &mut self.worker.transports;
        transports.share(segment, processes, me, rank_info)
    }

    /// From now on these processes, which were not sent to before, are reached by a segment that is
    /// shared with them.
    pub fn reach_by(&mut self, segment: &SharedSegment, processes: &[ProcId]) {
        self.worker.transports.reach_by(segment, processes);
    }

    /// Returns whether nothing more comes from a process of another job.
    pub fn has_left(&mut self, process: ProcId) -> bool {
        self.is_lost(process) || self.connections().is_none_or(|c| c.has_left(process))
    }

    /// Wakes a waiting thread when `fd` becomes readable, until [`Device::unwatch`].
    ///
    /// Errors: the system refuses.
    pub fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<(), TransportError> {
        self.connections().map_or(Ok(()), |c| c.watch(fd))
    }

    /// Returns whether a watched descriptor has become readable since this was last false.
    pub fn watched_is_ready(&mut self) -> bool {
        self.connections().is_some_and(|c| c.watched_is_ready())
    }

    /// Ends [`Device::watch`].
    pub fn unwatch(&mut self, fd: BorrowedFd<'_>) {
        if let Some(connections) = self.connections() {
            connections.unwatch(fd);
        }
    }

    /// The sender of the message that [`Device::matched_probe`] has taken.
    pub fn sender_of(&mut self, message: crate::ReqId) -> Option<ProcId> {
        match self.worker.engine.requests.operation(message)? {
            crate::base::request::Operation::Message(taken) => Some(taken.from),
            _ => None,
        }
    }
}
