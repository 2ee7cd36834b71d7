//! Processes of other jobs: their connections, made beside the job's own transports.

use super::{Transports, UNKNOWN};
use crate::connected::ConnTransport;
use crate::tcp::{self, Tcp};
use crate::{ForeignProcesses, ProcId, TransportError, wakeup};
use ferry_job::RankInfo;

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
        let name = self
            .shm
            .is_some()
            .then(wakeup::new_socket_name)
            .transpose()?;
        let descriptors = self.others.iter().filter_map(|t| t.event_fd());
        self.wakeup.add_descriptors(name, descriptors)?;
        if let (Some(shm), Some(name)) = (&mut self.shm, name) {
            shm.use_wakeup_socket(name);
        }
        Ok(true)
    }

    /// Forgets the way to a process of another job.
    pub fn forget_route(&mut self, process: ProcId) {
        if let Some(route) = self.routes.get_mut(process as usize) {
            *route = UNKNOWN;
        }
    }
}
