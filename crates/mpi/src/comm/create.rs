//! New communicators from an intracommunicator (MPI 5.0 §7.4.2).
//!
//! Rank 0 of the new group allocates the context, so one broadcast is enough.

use super::agree::{Agreement, Reader, put_u64};
use super::{Comm, Hints};
use crate::attr::Attributes;
use crate::device::{self, ContextId};
use crate::process::process;
use crate::{Group, Result, err};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How MPI_Comm_split_type divides a communicator (MPI 5.0 §7.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitType {
    /// Processes that can share memory.
    Shared,
    /// By the kind of hardware that the hint mpi_hw_resource_type names.
    HardwareGuided,
    /// By the next smaller piece of hardware.
    HardwareUnguided,
    /// As `HardwareGuided`, or by the process set that the hint mpi_pset_name names.
    ResourceGuided,
}

/// The one kind of hardware resource that divides communicators: processes that share memory.
pub const SHARED_MEMORY: &str = "mpi_shared_memory";

impl Comm {
    /// A duplicate (MPI_Comm_dup). It has the same groups, topology and error handler, the
    /// attributes that copy callbacks return, and a context of its own. It has the given `hints`
    /// (MPI_Comm_dup_with_info) and none of the old ones. Collective; blocks until all members
    /// call.
    ///
    /// Errors: an attribute's copy callback's; those of [`Hints::check`].
    pub fn duplicate(self: &Arc<Comm>, hints: &Hints) -> Result<Arc<Comm>> {
        hints.check()?;
        let (context, local) = match self.is_inter() {
            false => {
                let tag = self.next_agreement();
                (
                    self.agree_context(&self.group, self.context.control(), tag)?,
                    ContextId::WORLD,
                )
            }
            true => self.agree_contexts()?,
        };
        let attributes = self.attributes.duplicate(self.identity.bits())?;
        Ok(self.duplicate_with(context, local, attributes, hints))
    }

    /// The duplicate with known contexts: its own, and that of an intercommunicator's local
    /// communicator.
    pub(super) fn duplicate_with(
        &self,
        context: ContextId,
        local: ContextId,
        attributes: Attributes,
        hints: &Hints,
    ) -> Arc<Comm> {
        let mut new = match &self.remote {
            None => self.child(context, self.group.clone()),
            Some(remote) => self.inter(context, local, self.group.clone(), remote.clone()),
        };
        new.attributes = attributes;
        if let Some(topology) = self.topology.get() {
            let _ = new.topology.set(topology.clone());
        }
        new.take_hints(hints);
        Arc::new(new)
    }

    /// A communicator of some of the members (MPI_Comm_create). All members call it. `None` for
    /// those not in their `group`. On an intercommunicator `group` is part of the local group, and
    /// the result is an intercommunicator.
    ///
    /// Errors: Group if it has members that this communicator lacks.
    pub fn create(self: &Arc<Comm>, group: &Arc<Group>) -> Result<Option<Arc<Comm>>> {
        self.check_part(group)?;
        if self.is_inter() {
            return self.create_inter(group);
        }
        let tag = self.next_agreement();
        if group.rank().is_none() {
            return Ok(None);
        }
        let context = self.agree_context(group, self.context.control(), tag)?;
        Ok(Some(Arc::new(self.child(context, group.clone()))))
    }

    /// As [`Comm::create`], but called by the members of `group` only (MPI_Comm_create_group).
    ///
    /// Errors: as for [`Comm::create`].
    pub fn create_group(
        self: &Arc<Comm>,
        group: &Arc<Group>,
        tag: u32,
    ) -> Result<Option<Arc<Comm>>> {
        self.check_part(group)?;
        if group.rank().is_none() {
            return Ok(None);
        }
        let context = self.agree_context(group, self.context.tagged(), tag)?;
        Ok(Some(Arc::new(self.child(context, group.clone()))))
    }

    /// One communicator for each colour, ordered by `key`, then by the old rank (MPI_Comm_split).
    /// All members call it. `None` for those without a colour. An intercommunicator is split into
    /// intercommunicators between members of the same colour. `None` where one side has none.
    ///
    /// Errors: Other if a member is lost.
    pub fn split(self: &Arc<Comm>, color: Option<u32>, key: i32) -> Result<Option<Arc<Comm>>> {
        if self.is_inter() {
            return self.split_inter(color, key);
        }
        let agreement = Agreement::of_all(self)?;
        let gathered = agreement.gather(0, Choice { color, key }.bytes())?;
        let table = if agreement.rank() == 0 {
            Choices::read(&gathered, || process().new_context())?.bytes()
        } else {
            gathered
        };
        let choices = Choices::parse(&agreement.broadcast(0, table)?)?;
        let Some(color) = color else { return Ok(None) };
        let group = Group::new(choices.members(color, &self.group), process().me);
        Ok(Some(Arc::new(self.child(choices.context(color)?, group))))
    }

    /// [`Comm::split`] by hardware (MPI_Comm_split_type). `None` for `how` is MPI_UNDEFINED. The
    /// second result is the hardware resource type of the new communicator, where
    /// MPI_Comm_split_type reports it.
    ///
    /// Errors: as for [`Comm::split`].
    pub fn split_type(
        self: &Arc<Comm>,
        how: Option<SplitType>,
        key: i32,
        hints: &Hints,
    ) -> Result<(Option<Arc<Comm>>, Option<&'static str>)> {
        let known = hints.get("mpi_hw_resource_type") == Some(SHARED_MEMORY);
        let color = match how {
            Some(SplitType::Shared | SplitType::HardwareUnguided) => Some(node(self)),
            Some(SplitType::HardwareGuided | SplitType::ResourceGuided) if known => {
                Some(node(self))
            }
            _ => None,
        };
        let new = self.split(color, key)?;
        // An unguided split must give a strict subset (MPI 5.0 §7.4.2). Otherwise the result is
        // MPI_COMM_NULL.
        let new =
            new.filter(|c| how != Some(SplitType::HardwareUnguided) || c.size() < self.size());
        let resource = new
            .as_ref()
            .filter(|_| how == Some(SplitType::HardwareUnguided))
            .map(|_| SHARED_MEMORY);
        Ok((new, resource))
    }

    /// Frees the communicator (MPI_Comm_free) and deletes its attributes. Active operations
    /// continue.
    ///
    /// Errors: a delete callback's; the communicator then stays.
    pub fn free(&self) -> Result<()> {
        self.attributes.delete_all(self.identity.bits())?;
        let mut d = device::device();
        self.freed.store(true, Ordering::Relaxed);
        crate::request::clear_pool(&mut d);
        drop(d);
        self.coll.request_cache.clear();
        Ok(())
    }

    /// Has the program freed it?
    #[inline]
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Relaxed)
    }

    /// As [`Comm::free`], once all members have called it (MPI_Comm_disconnect). Blocks until they
    /// have.
    ///
    /// Errors: as for [`Comm::free`]; Other if a member is lost.
    pub fn disconnect(&self) -> Result<()> {
        let tag = self.next_agreement();
        match &self.local {
            None => {
                let agreement = Agreement::new(self, self.context.control(), tag, &self.group)?;
                agreement.gather(0, Vec::new())?;
                agreement.broadcast(0, Vec::new())?;
            }
            Some(local) => {
                let agreement = Agreement::of_all(local)?;
                agreement.gather(0, Vec::new())?;
                self.exchange(&agreement, tag, Vec::new())?;
            }
        }
        self.free()
    }

    fn check_part(&self, group: &Group) -> Result<()> {
        self.group.check_origin(group)?;
        match group.iter().find(|&p| !self.group.contains(p)) {
            None => Ok(()),
            Some(p) => {
                let rank = group.rank_of(p).unwrap_or(0);
                Err(err!(
                    Group,
                    "rank {rank} of the group (process {p} of the job) is not in the \
                     communicator's group"
                ))
            }
        }
    }

    /// A new context for `group`, which its rank 0 allocates. One broadcast.
    pub(crate) fn agree_context(
        &self,
        group: &Group,
        context: ContextId,
        tag: u32,
    ) -> Result<ContextId> {
        let agreement = Agreement::new(self, context, tag, group)?;
        let mut bytes = Vec::new();
        if agreement.rank() == 0 {
            put_u64(&mut bytes, process().new_context().0);
        }
        Reader(&agreement.broadcast(0, bytes)?).context()
    }
}

/// A number for this node: the same in all its processes, and different on other nodes. Processes
/// of several jobs share no memory, so that each job has numbers of its own then.
fn node(comm: &Comm) -> u32 {
    let process = process();
    let first = process.node_ranks().first().copied();
    let first = first.unwrap_or(process.me);
    if !comm.spans_jobs() {
        return first;
    }
    let job = process.rank_info.job;
    let mixed = (job ^ job >> 32) as u32;
    mixed.wrapping_add(first.wrapping_mul(0x9e37_79b1)) >> 1
}

/// One member's arguments to a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    /// `None`: in no new communicator.
    pub color: Option<u32>,
    pub key: i32,
}

impl Choice {
    const NO_COLOR: u32 = u32::MAX;

    pub fn bytes(self) -> Vec<u8> {
        let color = self.color.unwrap_or(Choice::NO_COLOR);
        [color.to_le_bytes(), self.key.to_le_bytes()].concat()
    }
}

/// The arguments of all members of a group, and the contexts that its rank 0 allocated.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Choices {
    /// In rank order.
    all: Vec<Choice>,
    /// One for each colour, in rising order.
    contexts: Vec<(u32, ContextId)>,
}

impl Choices {
    /// Decodes gathered arguments and allocates a context for each colour.
    pub fn read(gathered: &[u8], mut new_context: impl FnMut() -> ContextId) -> Result<Choices> {
        let mut reader = Reader(gathered);
        let mut all = Vec::with_capacity(gathered.len() / 8);
        while !reader.is_empty() {
            let color = Some(reader.u32()?).filter(|&c| c != Choice::NO_COLOR);
            all.push(Choice {
                color,
                key: reader.u32()? as i32,
            });
        }
        let mut colors: Vec<u32> = all.iter().filter_map(|c| c.color).collect();
        colors.sort_unstable();
        colors.dedup();
        Ok(Choices {
            all,
            contexts: colors.into_iter().map(|c| (c, new_context())).collect(),
        })
    }

    /// Encodes them for other processes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + 8 * self.all.len() + 8 * self.contexts.len());
        put_u64(&mut bytes, self.contexts.len() as u64);
        for (_, context) in &self.contexts {
            put_u64(&mut bytes, context.0);
        }
        bytes.extend(self.all.iter().flat_map(|c| c.bytes()));
        bytes
    }

    /// Decodes what [`Choices::bytes`] encoded.
    pub fn parse(bytes: &[u8]) -> Result<Choices> {
        let mut reader = Reader(bytes);
        let count = reader.u64()?;
        let contexts = (0..count)
            .map(|_| reader.context())
            .collect::<Result<Vec<_>>>()?;
        let mut contexts = contexts.into_iter();
        Choices::read(reader.0, || contexts.next().unwrap_or(ContextId::WORLD))
    }

    /// The members with `color`, in their new order.
    pub fn members(&self, color: u32, group: &Group) -> Vec<crate::ProcId> {
        let mut ranks: Vec<(i32, u32)> = (0u32..)
            .zip(&self.all)
            .filter(|(_, c)| c.color == Some(color))
            .map(|(r, c)| (c.key, r))
            .collect();
        ranks.sort_unstable();
        ranks
            .into_iter()
            .filter(|&(_, r)| r < group.size())
            .map(|(_, r)| group.process(r))
            .collect()
    }

    /// The context for `color`.
    pub fn context(&self, color: u32) -> Result<ContextId> {
        let at = self.contexts.binary_search_by_key(&color, |&(c, _)| c);
        at.map(|at| self.contexts[at].1)
            .map_err(|_| err!(Intern, "no context was made for colour {color}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_the_wire_and_order_by_key_then_rank() {
        let said = [
            (Some(3), 5),
            (None, 0),
            (Some(0), -1),
            (Some(3), 5),
            (Some(3), -7),
        ];
        let gathered: Vec<u8> = said
            .iter()
            .flat_map(|&(color, key)| Choice { color, key }.bytes())
            .collect();
        let mut next = 10;
        let choices = Choices::read(&gathered, || {
            next += 4;
            ContextId(next)
        })
        .unwrap();
        let choices = {
            let parsed = Choices::parse(&choices.bytes()).unwrap();
            assert_eq!(parsed, choices);
            parsed
        };
        let group = Group::new([10, 11, 12, 13, 14], 10);
        assert_eq!(choices.members(3, &group), [14, 10, 13]);
        assert_eq!(choices.members(0, &group), [12]);
        assert_eq!(
            (choices.context(0).unwrap(), choices.context(3).unwrap()),
            (ContextId(14), ContextId(18))
        );
        assert!(choices.context(1).is_err());
        assert!(Choices::parse(&choices.bytes()[..50]).is_err());
    }
}
