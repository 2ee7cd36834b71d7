//! Processes of other jobs: their connections, made beside the job's own transports.

use super::{ROUTE_SHARED, ROUTE_SHM, ROUTE_UNKNOWN, Transports};
use crate::connected::ConnTransport;
use crate::shm::Shm;
use crate::tcp::{self, Tcp};
use crate::{ForeignProcesses, ProcId, Transport, TransportError, wakeup};
use ferry_job::{RankInfo, Segment};

/// A segment that this process shares with processes of other jobs.
#[derive(Debug)]
pub struct SharedSegment(usize);

impl Transports {
    /// Processes of other jobs, once they can be reached.
    pub fn foreign_processes(&mut self) -> Option<&mut dyn ForeignProcesses> {
        self.others.iter_mut().find_map(|t| t.foreign_processes())
    }

    /// Opens what processes of other jobs are reached by, if it is not open. `outside`: from other
    /// hosts, too. Returns whether the way in which the process's threads sleep has changed: those
    /// that sleep now are to be woken.
    ///
    /// Errors: on a modelled machine; a setting makes no sense; the system refuses.
    pub fn open_connections(
        &mut self,
        rank_info: &RankInfo,
        outside: bool,
    ) -> Result<bool, TransportError> {
        if self.is_virtual {
            return Err(TransportError::Machine(
                "its programs cannot meet processes of other jobs, whose time is another".into(),
            ));
        }
        if let Some(foreign) = self.foreign_processes() {
            if !foreign.serves_other_jobs() {
                return Err(TransportError::Setting {
                    name: "FERRY_TRANSPORTS",
                    value: self.order.join(","),
                    expected: "a list with tcp, by which processes of other jobs are reached",
                });
            }
            if outside {
                foreign.listen_outside()?;
            }
            return Ok(false);
        }
        let settings = tcp::Settings::from_environment()?;
        let tcp = Box::new(Tcp::listen(rank_info, &settings)?);
        let mut new = ConnTransport::for_other_jobs(rank_info, tcp, settings.timeout)?;
        if outside {
            new.listen_outside()?;
        }
        self.others.push(Box::new(new));
        if !self.order.contains(&tcp::NAME) {
            self.order.push(tcp::NAME);
        }
        let name = wakeup::new_socket_name()?;
        let descriptors = self.others.iter().filter_map(|t| t.event_fd());
        self.wakeup.add_descriptors(Some(name), descriptors)?;
        self.socket_name = Some(name);
        if let Some(shm) = &mut self.shm {
            shm.use_wakeup_socket(name);
        }
        Ok(true)
    }

    /// Does this process share memory with others, as far as its settings allow?
    pub fn may_share(&self) -> bool {
        // With FERRY_TRANSPORTS, shared memory is used only if the list has it.
        let list = std::env::var("FERRY_TRANSPORTS").unwrap_or_default();
        list.trim().is_empty() || list.split(',').any(|name| name.trim() == "shm")
    }

    /// Shares a segment with processes of other jobs. `processes`: the process numbers in this
    /// process of all that use it, in the order of the segment; `me`: its own place there.
    /// Nobody is reached by it before [`Transports::reach_by`].
    ///
    /// Errors: mapping is refused; the limit on open files is reached.
    pub fn share(
        &mut self,
        segment: Segment,
        processes: Vec<ProcId>,
        me: usize,
        rank_info: &RankInfo,
    ) -> Result<SharedSegment, TransportError> {
        let name = match self.socket_name {
            Some(name) => name,
            None => {
                let name = wakeup::new_socket_name()?;
                self.wakeup.add_socket(name)?;
                *self.socket_name.insert(name)
            }
        };
        let (job, cores) = (rank_info.job, rank_info.cores);
        let mut shm = Shm::open_shared(segment, processes, me, job, cores)?;
        shm.use_wakeup_socket(name);
        let free = self.shared.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.shared.len());
        if slot == self.shared.len() {
            self.shared.push(None);
        }
        self.shared[slot] = Some(shm);
        Ok(SharedSegment(slot))
    }

    /// From now on these processes, which were not sent to before, are reached by a segment that is
    /// shared with them.
    pub fn reach_by(&mut self, segment: &SharedSegment, processes: &[ProcId]) {
        // Beyond, processes are reached by connections.
        let Ok(slot) = u8::try_from(segment.0 + usize::from(ROUTE_SHARED)) else {
            return;
        };
        for &process in processes {
            if self.routes.len() <= process as usize {
                self.routes.resize(process as usize + 1, ROUTE_UNKNOWN);
            }
            self.routes[process as usize] = slot;
        }
    }

    /// The shared memory that leads to `peer`.
    pub(super) fn shm_to(&mut self, peer: ProcId) -> Option<&mut Shm> {
        match self.route(peer) {
            Ok(ROUTE_SHM) => self.shm.as_mut(),
            Ok(route @ ROUTE_SHARED..) => self
                .shared
                .get_mut(usize::from(route - ROUTE_SHARED))?
                .as_mut(),
            _ => None,
        }
    }

    /// Forgets the way to a process of another job.
    pub fn forget_route(&mut self, process: ProcId) {
        if let Some(route) = self.routes.get_mut(process as usize) {
            *route = ROUTE_UNKNOWN;
        }
        for slot in &mut self.shared {
            if let Some(shm) = slot
                && shm.reaches(process)
                && shm.remove(process, self.size)
            {
                *slot = None;
            }
        }
    }
}
