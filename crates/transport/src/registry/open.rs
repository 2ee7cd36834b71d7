//! Which transports a process opens, in which order.

use super::{ROUTE_UNKNOWN, Transports};
use crate::connected::{ConnTransport, Medium};
use crate::model::{self, Model};
use crate::self_loop::SelfLoop;
use crate::shm::{SharedMemory, Shm};
use crate::tcp::{self, Tcp};
use crate::tipc::{self, Tipc};
use crate::wakeup::{self, Wakeup};
use crate::{Transport, TransportError};
use ferry_job::{Directory, RankInfo, Segment, settings};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;

/// The order of transports without FERRY_TRANSPORTS. TIPC is used only where it joins this node to
/// others.
pub(super) const DEFAULT_ORDER: [&str; 4] = ["self", "shm", "tipc", "tcp"];

/// The wakeup word of a process that no peer can wake: its own threads do.
static OWN_WAKEUP_WORD: AtomicU32 = AtomicU32::new(0);
/// The wakeup until [`Transports::make_wakeup`].
static OWN_WAKEUP: Wakeup = Wakeup::on_word(&OWN_WAKEUP_WORD, true);

/// Opens the transports in FERRY_TRANSPORTS that this process needs. One is not opened if those
/// before it reach all peers. Under a foreign launcher, blocks until all ranks call this, unless
/// all are on this node. `concurrent`: threads of the program will be in MPI at the same time.
///
/// Errors: a setting makes no sense, or a transport cannot be set up.
pub fn open(
    rank_info: &RankInfo,
    mut segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    concurrent: bool,
) -> Result<Transports, TransportError> {
    let list = std::env::var("FERRY_TRANSPORTS").ok();
    let names = requested_names(list.as_deref())?;
    let mut transports = Transports::none(rank_info);
    let machine = segment.as_mut().and_then(|s| s.machine.take());
    if let (Some(machine), Some(segment)) = (machine, &mut segment) {
        transports.open_machine(machine, segment.interfaces.pop(), concurrent)?;
    } else {
        transports.open_in_order(&names, rank_info, segment, directory)?;
    }
    transports.make_wakeup()?;
    Ok(transports)
}

/// The names in FERRY_TRANSPORTS, in order. None: Ferry chooses.
pub(super) fn requested_names(list: Option<&str>) -> Result<Vec<&'static str>, TransportError> {
    let mut order = Vec::new();
    for word in list
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        match DEFAULT_ORDER.iter().find(|k| **k == word) {
            Some(name) if !order.contains(name) => order.push(*name),
            Some(_) => {}
            None => {
                return Err(TransportError::Setting {
                    name: "FERRY_TRANSPORTS",
                    value: word.into(),
                    expected: "a list of self, shm, tcp and tipc, separated by commas",
                });
            }
        }
    }
    Ok(order)
}

impl Transports {
    /// This process and its job, before any transport is open.
    fn none(rank_info: &RankInfo) -> Transports {
        Transports {
            me: rank_info.rank,
            itself: SelfLoop::new(rank_info.rank),
            shm: None,
            shared: Vec::new(),
            socket_name: None,
            size: rank_info.size,
            others: Vec::new(),
            order: vec!["self"],
            routes: vec![ROUTE_UNKNOWN; rank_info.size as usize],
            wakeup: &OWN_WAKEUP,
            shared_memory: None,
            is_virtual: false,
        }
    }

    /// Opens the transport of a modelled machine, in the memory `machine`. `interface`: the
    /// modelled card's, if the job has one for each process.
    fn open_machine(
        &mut self,
        machine: OwnedFd,
        interface: Option<OwnedFd>,
        concurrent: bool,
    ) -> Result<(), TransportError> {
        let mut transport = Model::open(machine, self.me, self.size, concurrent)?;
        if let Some(interface) = interface {
            transport.set_interface(interface);
        }
        self.others.push(Box::new(transport));
        self.order.push(model::NAME);
        self.is_virtual = true;
        Ok(())
    }

    /// Opens the transports of these names that lead to some peer. No names: those of
    /// [`DEFAULT_ORDER`].
    fn open_in_order(
        &mut self,
        requested: &[&'static str],
        rank_info: &RankInfo,
        mut segment: Option<Segment>,
        directory: Option<Box<dyn Directory>>,
    ) -> Result<(), TransportError> {
        let chosen = !requested.is_empty();
        let names = if chosen { requested } else { &DEFAULT_ORDER };
        self.shared_memory = segment.as_ref().and_then(SharedMemory::new);
        // Peers are left that no transport reaches yet.
        let mut peers_left = rank_info.size > 1;
        // All media of connections are one transport. Which medium reaches a peer is found when the
        // peer is connected to.
        let mut media: Vec<Box<dyn Medium>> = Vec::new();
        let mut timeout = tipc::TIMEOUT;
        for &name in names {
            match name {
                "shm" if peers_left && media.is_empty() && rank_info.local_ranks.len() > 1 => {
                    let Some(segment) = segment.take() else {
                        continue;
                    };
                    self.open_shm(segment, rank_info)?;
                    peers_left = rank_info.local_ranks.len() < rank_info.size as usize;
                }
                tcp::NAME if peers_left && directory.is_some() => {
                    let settings = tcp::Settings::from_environment()?;
                    timeout = settings.timeout;
                    match Tcp::listen(rank_info, &settings) {
                        Ok(tcp) => media.push(Box::new(tcp)),
                        // Nodes that only TIPC joins have no other address.
                        Err(TransportError::NoAddress(_)) if !chosen && !media.is_empty() => {
                            continue;
                        }
                        Err(e) => return Err(e),
                    }
                }
                tipc::NAME if peers_left && directory.is_some() => {
                    let settings = tipc::Settings::from_environment();
                    match Tipc::listen(rank_info, &settings) {
                        Ok(tipc) if chosen || tipc.is_joined() => media.push(Box::new(tipc)),
                        Err(e) if chosen => return Err(e),
                        _ => continue,
                    }
                }
                _ => continue,
            }
            self.order.push(name);
        }
        if let (false, Some(directory)) = (media.is_empty(), directory) {
            let encrypt = settings::ENCRYPT.is("1");
            let transport = ConnTransport::open(rank_info, directory, media, timeout, encrypt)?;
            self.others.push(Box::new(transport));
        }
        Ok(())
    }

    fn open_shm(&mut self, segment: Segment, rank_info: &RankInfo) -> Result<(), TransportError> {
        self.shm = Some(Shm::open(
            segment,
            rank_info.local_ranks.clone(),
            rank_info.local_rank as usize,
            rank_info.job,
            rank_info.cores,
        )?);
        Ok(())
    }

    /// Makes what the process's threads sleep on.
    fn make_wakeup(&mut self) -> Result<(), TransportError> {
        let mut word = self.shm.as_ref().and_then(|s| s.wakeup_word());
        if self.is_virtual {
            word = self.others.first().and_then(|w| w.wakeup_word());
        }
        let word = word.unwrap_or(&OWN_WAKEUP_WORD);
        let mut fds = self.others.iter().filter_map(|w| w.event_fd()).peekable();
        let wakeup = if fds.peek().is_some() {
            let name = self
                .shm
                .is_some()
                .then(wakeup::new_socket_name)
                .transpose()?;
            let wakeup = Wakeup::with_descriptors(word, name, fds)?;
            self.socket_name = name;
            if let (Some(shm), Some(name)) = (&mut self.shm, name) {
                shm.use_wakeup_socket(name);
            }
            wakeup
        } else {
            Wakeup::on_word(word, !self.is_virtual)
        };
        self.wakeup = Box::leak(Box::new(wakeup));
        Ok(())
    }
}
