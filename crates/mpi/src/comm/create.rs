//! New communicators from an intracommunicator (MPI 5.0 §7.4.2).
//!
//! Whoever is rank 0 of the new group numbers the context, so one broadcast is enough.

use super::agree::{Circle, Reader, put};
use super::{Comm, Hints};
use crate::attr::Attributes;
use crate::device::{self, ContextId};
use crate::process::process;
use crate::{Group, Result, err};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How MPI_Comm_split_type is to divide (MPI 5.0 §7.4.2).
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

/// The one piece of hardware that communicators are divided by: what shares a memory.
pub const SHARED_MEMORY: &str = "mpi_shared_memory";

impl Comm {
    /// A duplicate: the same groups, attributes as their callbacks say, topology and error handler;
    /// but a context of its own (MPI_Comm_dup), and the `hints` given (MPI_Comm_dup_with_info),
    /// none of the old ones. Collective; blocks until all members call.
    ///
    /// Errors: what an attribute's copy callback says; what [`Hints::check`] says.
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

    /// The duplicate, once the contexts are known: its own, and an intercommunicator's local
    /// communicator's.
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

    /// A communicator of some of the members (MPI_Comm_create). All members call it; `None` for
    /// those not in their `group`. On an intercommunicator `group` is part of the local group,
    /// and the new one is an intercommunicator, too.
    ///
    /// Errors: Group if it has members that this communicator has not.
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

    /// As [`Comm::create`], called by the members of `group` only (MPI_Comm_create_group).
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

    /// One communicator for each colour, its ranks in the order of `key`, then of the old rank
    /// (MPI_Comm_split). All members call it; `None` for those without a colour. On an
    /// intercommunicator: intercommunicators between those of the same colour, and `None` where
    /// one side has none.
    pub fn split(self: &Arc<Comm>, color: Option<u32>, key: i32) -> Result<Option<Arc<Comm>>> {
        if self.is_inter() {
            return self.split_inter(color, key);
        }
        let circle = Circle::of_all(self)?;
        let gathered = circle.gather(0, Choice { color, key }.bytes())?;
        let table = if circle.rank() == 0 {
            Choices::read(&gathered, || process().new_context())?.bytes()
        } else {
            gathered
        };
        let choices = Choices::parse(&circle.broadcast(0, table)?)?;
        let Some(color) = color else { return Ok(None) };
        let group = Group::new(choices.members(color, &self.group), process().me);
        Ok(Some(Arc::new(self.child(choices.context(color)?, group))))
    }

    /// [`Comm::split`] by what the machine looks like (MPI_Comm_split_type). `None` for `how`:
    /// MPI_UNDEFINED. Second of the answer: what kind of hardware the new communicator stands
    /// for, where the program asked to be told.
    pub fn split_type(
        self: &Arc<Comm>,
        how: Option<SplitType>,
        key: i32,
        hints: &Hints,
    ) -> Result<(Option<Arc<Comm>>, Option<&'static str>)> {
        let known = hints.get("mpi_hw_resource_type") == Some(SHARED_MEMORY);
        let color = match how {
            Some(SplitType::Shared | SplitType::HardwareUnguided) => Some(node()),
            Some(SplitType::HardwareGuided | SplitType::ResourceGuided) if known => Some(node()),
            _ => None,
        };
        let new = self.split(color, key)?;
        // A division that divides nothing is none (MPI 5.0 §7.4.2: strict subsets for hardware
        // unguided).
        let new =
            new.filter(|c| how != Some(SplitType::HardwareUnguided) || c.size() < self.size());
        let told = new
            .as_ref()
            .filter(|_| how == Some(SplitType::HardwareUnguided))
            .map(|_| SHARED_MEMORY);
        Ok((new, told))
    }

    /// Ends with the communicator (MPI_Comm_free): its attributes are deleted. What is under way
    /// goes on.
    ///
    /// Errors: what a delete callback says; the communicator then stays.
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

    /// As [`Comm::free`], after all members have come this far (MPI_Comm_disconnect).
    pub fn disconnect(&self) -> Result<()> {
        let tag = self.next_agreement();
        match &self.local {
            None => {
                let circle = Circle::new(self, self.context.control(), tag, &self.group)?;
                circle.gather(0, Vec::new())?;
                circle.broadcast(0, Vec::new())?;
            }
            Some(local) => {
                let circle = Circle::of_all(local)?;
                circle.gather(0, Vec::new())?;
                self.swap(&circle, tag, Vec::new())?;
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

    /// A new context, of which all members of `group` hear from its first. One broadcast.
    pub(crate) fn agree_context(
        &self,
        group: &Group,
        context: ContextId,
        tag: u32,
    ) -> Result<ContextId> {
        let circle = Circle::new(self, context, tag, group)?;
        let mut bytes = Vec::new();
        if circle.rank() == 0 {
            put(&mut bytes, process().new_context().0);
        }
        Reader(&circle.broadcast(0, bytes)?).context()
    }
}

/// A number for this node, the same on all its processes and on no other.
fn node() -> u32 {
    let process = process();
    process
        .rank_info
        .local_ranks
        .first()
        .copied()
        .unwrap_or(process.me)
}

/// What one member says to a split.
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

/// What all members of a group have said, and the contexts that its rank 0 made for it.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Choices {
    /// In rank order.
    all: Vec<Choice>,
    /// For each colour, in rising order.
    contexts: Vec<(u32, ContextId)>,
}

impl Choices {
    /// From what a gather brought; makes a context for each colour.
    pub fn read(gathered: &[u8], mut new_context: impl FnMut() -> ContextId) -> Result<Choices> {
        let mut reader = Reader(gathered);
        let mut all = Vec::with_capacity(gathered.len() / 8);
        while !reader.is_empty() {
            let color = Some(reader.small()?).filter(|&c| c != Choice::NO_COLOR);
            all.push(Choice {
                color,
                key: reader.small()? as i32,
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

    /// To be told to others.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + 8 * self.all.len() + 8 * self.contexts.len());
        put(&mut bytes, self.contexts.len() as u64);
        for (_, context) in &self.contexts {
            put(&mut bytes, context.0);
        }
        bytes.extend(self.all.iter().flat_map(|c| c.bytes()));
        bytes
    }

    /// What [`Choices::bytes`] told.
    pub fn parse(bytes: &[u8]) -> Result<Choices> {
        let mut reader = Reader(bytes);
        let count = reader.number()?;
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

    /// The context made for `color`.
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
