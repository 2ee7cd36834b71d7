//! Processes of other jobs: their connections, made beside the job's own transports.

use super::{Transports, UNKNOWN};
use crate::connected::{ConnTransport, Medium};
use crate::tcp::{self, Tcp};
use crate::{ProcId, TransportError, wakeup};
use ferry_job::RankInfo;

impl Transports {
    /// The transport of connections, if it is open.
    pub fn connections(&mut self) -> Option<&mut ConnTransport> {
        self.others.iter_mut().find_map(|t| t.connections())
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
        let mut opened = false;
        if self.connections().is_none() {
            let timeout = tcp::Settings::from_environment()?.timeout;
            let new = ConnTransport::for_other_jobs(rank_info, timeout)?;
            self.others.push(Box::new(new));
            opened = true;
        }
        let wakeup = self.wakeup;
        let has_shm = self.shm.is_some();
        let Some(connections) = self.connections() else {
            return Ok(false);
        };
        if !connections.has_medium(tcp::NAME) {
            let tcp: Box<dyn Medium> =
                Box::new(Tcp::listen(rank_info, &tcp::Settings::from_environment()?)?);
            connections.add_medium(tcp)?;
        }
        if outside {
            connections.listen_outside()?;
        }
        if !opened {
            return Ok(false);
        }
        if !self.order.contains(&tcp::NAME) {
            self.order.push(tcp::NAME);
        }
        let name = has_shm.then(wakeup::new_socket_name).transpose()?;
        wakeup.add_descriptors(name, self.others.iter().filter_map(|t| t.event_fd()))?;
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
