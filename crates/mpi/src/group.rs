//! Groups: ordered sets of processes (MPI 5.0 §7.3).
//!
//! A group with a constant stride, such as MPI_COMM_WORLD or every second rank, is stored as three
//! numbers. So the memory of a communicator does not grow with the job.

use crate::{Identity, ProcId, Result, Session, err};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Results of comparing two groups or communicators (MPI 5.0 §7.3.1, §7.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// The same object, or groups with the same members in the same order.
    Identical,
    /// Communicators with identical groups but another context.
    Congruent,
    /// The same members in another order.
    Similar,
    /// Other members.
    Unequal,
}

/// An ordered set of processes. Immutable.
#[derive(Debug)]
pub struct Group {
    /// The handle.
    pub identity: Identity,
    table: Table,
    size: u32,
    me: ProcId,
    my_rank: Option<u32>,
    /// The session that it comes from. `None` for the world model.
    session: Option<Arc<Session>>,
    /// The list of members, made at the first need.
    member_list: OnceLock<Arc<[ProcId]>>,
    /// From process to rank, made at the first need. Only for groups stored as a list.
    index: OnceLock<HashMap<ProcId, u32>>,
}

/// From rank to process.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// Rank r is process `first + r * step`.
    Strided { first: i64, step: i64 },
    /// A list of processes.
    List(Arc<[ProcId]>),
}

impl Table {
    fn of(members: Arc<[ProcId]>) -> Table {
        let at = |i: usize| i64::from(members[i]);
        let (first, step) = match members.len() {
            0 => (0, 1),
            1 => (at(0), 1),
            _ => (at(0), at(1) - at(0)),
        };
        if (0..members.len()).all(|i| at(i) == first + i as i64 * step) {
            Table::Strided { first, step }
        } else {
            Table::List(members)
        }
    }

    /// The process of `rank`.
    #[inline]
    pub(crate) fn process(&self, rank: u32) -> ProcId {
        match self {
            Table::Strided { first, step } => (first + i64::from(rank) * step) as ProcId,
            Table::List(members) => members[rank as usize],
        }
    }
}

/// The origins of two objects that must not be used in one call.
#[derive(Clone, Copy, Debug)]
pub struct OriginMismatch(&'static str, &'static str);

impl std::fmt::Display for OriginMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OriginMismatch(one, other) = self;
        write!(
            f,
            "comes from {one}, the other from {other}: what comes from different sessions must not \
             meet in a call"
        )
    }
}

impl Group {
    /// A group of `members`, which are distinct and in rank order. `me` is this process.
    pub fn new(members: impl Into<Arc<[ProcId]>>, me: ProcId) -> Arc<Group> {
        let members = members.into();
        let size = members.len() as u32;
        Group::from_table(Table::of(members), size, me)
    }

    /// The group of processes 0 to `size` - 1.
    pub fn first(size: u32, me: ProcId) -> Arc<Group> {
        Group::from_table(Table::Strided { first: 0, step: 1 }, size, me)
    }

    /// The group without members (MPI_GROUP_EMPTY).
    pub fn empty(me: ProcId) -> Arc<Group> {
        Group::first(0, me)
    }

    fn from_table(table: Table, size: u32, me: ProcId) -> Arc<Group> {
        let mut group = Group {
            identity: Identity::none(),
            table,
            size,
            me,
            my_rank: None,
            session: None,
            member_list: OnceLock::new(),
            index: OnceLock::new(),
        };
        group.my_rank = match &group.table {
            Table::Strided { .. } => group.rank_of(me),
            Table::List(members) => members.iter().position(|&p| p == me).map(|r| r as u32),
        };
        Arc::new(group)
    }

    /// A copy with a handle of its own.
    pub fn duplicate(&self) -> Arc<Group> {
        Arc::new(self.copy_with_session(self.session.clone()))
    }

    fn copy_with_session(&self, session: Option<Arc<Session>>) -> Group {
        Group {
            identity: Identity::none(),
            table: self.table.clone(),
            size: self.size,
            me: self.me,
            my_rank: self.my_rank,
            session,
            member_list: OnceLock::new(),
            index: OnceLock::new(),
        }
    }

    /// The session that it comes from, if any.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Checks that this group and `other` may be used in one call. Objects from different sessions,
    /// or from a session and the world model, must not be mixed (MPI 5.0 §11.3.1). An empty group
    /// has no origin.
    pub fn check_same_origin(&self, other: &Group) -> std::result::Result<(), OriginMismatch> {
        let some = self.size > 0 && other.size > 0;
        match (&self.session, &other.session) {
            (Some(a), Some(b)) if !Arc::ptr_eq(a, b) => {
                Err(OriginMismatch("a session", "another session"))
            }
            (Some(_), None) if some => Err(OriginMismatch("a session", "the world model")),
            (None, Some(_)) if some => Err(OriginMismatch("the world model", "a session")),
            _ => Ok(()),
        }
    }

    /// [`Group::check_same_origin`] with an MPI error.
    ///
    /// Errors: Group.
    pub fn check_origin(&self, other: &Group) -> Result<()> {
        self.check_same_origin(other)
            .map_err(|mismatch| err!(Group, "one group {mismatch}"))
    }

    /// This group with `session` as its origin, unless it has a session already.
    pub(crate) fn with_session(self: Arc<Group>, session: Option<&Arc<Session>>) -> Arc<Group> {
        match session {
            Some(session) if self.session.is_none() => {
                Arc::new(self.copy_with_session(Some(session.clone())))
            }
            _ => self,
        }
    }

    /// A new group with this group's origin.
    fn derive(&self, members: Vec<ProcId>) -> Arc<Group> {
        Group::new(members, self.me).with_session(self.session.as_ref())
    }

    /// Processes in the group.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This process's rank, if it is a member.
    #[inline]
    pub fn rank(&self) -> Option<u32> {
        self.my_rank
    }

    /// The process of `rank`, which must be less than the size.
    #[inline]
    pub fn process(&self, rank: u32) -> ProcId {
        debug_assert!(rank < self.size);
        self.table.process(rank)
    }

    /// All members in rank order.
    pub fn members(&self) -> &Arc<[ProcId]> {
        match &self.table {
            Table::List(members) => members,
            Table::Strided { .. } => self.member_list.get_or_init(|| self.iter().collect()),
        }
    }

    /// All members in rank order, without making a list.
    pub fn iter(&self) -> impl Iterator<Item = ProcId> + '_ {
        (0..self.size).map(|r| self.table.process(r))
    }

    /// The table from rank to process.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The rank of `process`, if it is a member.
    pub fn rank_of(&self, process: ProcId) -> Option<u32> {
        match &self.table {
            Table::Strided { first, step } => {
                let offset = i64::from(process) - first;
                let rank = offset / step;
                (offset % step == 0 && (0..i64::from(self.size)).contains(&rank))
                    .then_some(rank as u32)
            }
            Table::List(members) => {
                if let Some(r) = self.my_rank.filter(|_| process == self.me) {
                    return Some(r);
                }
                let index = || {
                    members
                        .iter()
                        .enumerate()
                        .map(|(r, &p)| (p, r as u32))
                        .collect()
                };
                self.index.get_or_init(index).get(&process).copied()
            }
        }
    }

    /// Is `process` a member?
    pub fn contains(&self, process: ProcId) -> bool {
        self.rank_of(process).is_some()
    }

    /// The result of MPI_Group_compare with `other`.
    pub fn compare(&self, other: &Group) -> Comparison {
        if self.size != other.size {
            Comparison::Unequal
        } else if self.iter().eq(other.iter()) {
            Comparison::Identical
        } else if self.iter().all(|p| other.contains(p)) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// The rank in `other` of `rank` of this group. `None` if the process is not in `other`.
    pub fn translate(&self, rank: u32, other: &Group) -> Option<u32> {
        other.rank_of(self.process(rank))
    }

    /// The members of this group, then those of `other` that are not in it.
    pub fn union(&self, other: &Group) -> Arc<Group> {
        self.derive(
            self.iter()
                .chain(other.iter().filter(|&p| !self.contains(p)))
                .collect::<Vec<_>>(),
        )
        .with_session(other.session.as_ref())
    }

    /// The members of this group that are also in `other`, in this group's order.
    pub fn intersection(&self, other: &Group) -> Arc<Group> {
        self.derive(
            self.iter()
                .filter(|&p| other.contains(p))
                .collect::<Vec<_>>(),
        )
    }

    /// The members of this group that are not in `other`, in this group's order.
    pub fn difference(&self, other: &Group) -> Arc<Group> {
        self.derive(
            self.iter()
                .filter(|&p| !other.contains(p))
                .collect::<Vec<_>>(),
        )
    }

    /// The processes of `ranks`, in that order.
    ///
    /// Errors: Rank if a rank is not in the group or is named twice.
    pub fn include(&self, ranks: &[i32]) -> Result<Arc<Group>> {
        self.mark(ranks)?;
        Ok(self.derive(
            ranks
                .iter()
                .map(|&r| self.process(r as u32))
                .collect::<Vec<_>>(),
        ))
    }

    /// All processes but those of `ranks`.
    ///
    /// Errors: as for [`Group::include`].
    pub fn exclude(&self, ranks: &[i32]) -> Result<Arc<Group>> {
        let marked = self.mark(ranks)?;
        let left = (0..self.size).filter(|&r| !marked[r as usize]);
        Ok(self.derive(left.map(|r| self.process(r)).collect::<Vec<_>>()))
    }

    /// The processes of the ranks in `ranges` (first, last, stride), in that order.
    ///
    /// Errors: Arg for a stride of 0. Rank if a rank is not in the group or is named twice.
    pub fn include_ranges(&self, ranges: &[[i32; 3]]) -> Result<Arc<Group>> {
        self.include(&self.ranks_of(ranges)?)
    }

    /// All processes but those of the ranks in `ranges`.
    ///
    /// Errors: as for [`Group::include_ranges`].
    pub fn exclude_ranges(&self, ranges: &[[i32; 3]]) -> Result<Arc<Group>> {
        self.exclude(&self.ranks_of(ranges)?)
    }

    /// Marks the ranks in `ranks`. Checks them.
    fn mark(&self, ranks: &[i32]) -> Result<Vec<bool>> {
        let mut marked = vec![false; self.size as usize];
        for (i, &r) in ranks.iter().enumerate() {
            match usize::try_from(r).ok().and_then(|r| marked.get_mut(r)) {
                None => {
                    return Err(err!(
                        Rank,
                        "ranks[{i}] is {r}, but the group has {} processes",
                        self.size
                    ));
                }
                Some(true) => {
                    return Err(err!(
                        Rank,
                        "rank {r} is named twice (the second time by ranks[{i}])"
                    ));
                }
                Some(mark) => *mark = true,
            }
        }
        Ok(marked)
    }

    fn ranks_of(&self, ranges: &[[i32; 3]]) -> Result<Vec<i32>> {
        let mut ranks = Vec::new();
        for (i, &[first, last, stride]) in ranges.iter().enumerate() {
            if stride == 0 {
                return Err(err!(Arg, "the stride of ranges[{i}] is 0"));
            }
            // The stride may skip `last`. Unless the range is empty, `last` must still be a rank.
            let empty = (i64::from(last) - i64::from(first)) * i64::from(stride.signum()) < 0;
            let ends = [("first", first), ("last", if empty { first } else { last })];
            for (what, r) in ends {
                if !(0..i64::from(self.size)).contains(&i64::from(r)) {
                    return Err(err!(
                        Rank,
                        "the {what} rank of ranges[{i}] is {r}, but the group has {} processes",
                        self.size
                    ));
                }
            }
            let mut r = i64::from(first);
            while if stride > 0 {
                r <= i64::from(last)
            } else {
                r >= i64::from(last)
            } {
                ranks.push(r as i32);
                r += i64::from(stride);
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Distinct processes in any order.
    fn processes() -> impl Strategy<Value = Vec<ProcId>> {
        let shuffled = proptest::collection::hash_set(0u32..40, 0..20)
            .prop_map(|s| s.into_iter().collect::<Vec<_>>());
        let even =
            (0u32..10, 1u32..4, 0u32..12, any::<bool>()).prop_map(|(first, step, len, turn)| {
                let mut all: Vec<ProcId> = (0..len).map(|i| first + i * step).collect();
                if turn {
                    all.reverse();
                }
                all
            });
        prop_oneof![shuffled, even]
    }

    fn list(g: &Group) -> Vec<ProcId> {
        g.members().to_vec()
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_lists(a in processes(), b in processes(), me in 0u32..40) {
            let (ga, gb) = (Group::new(a.clone(), me), Group::new(b.clone(), me));
            prop_assert_eq!(list(&ga), a.clone());
            prop_assert_eq!(ga.rank(), a.iter().position(|&p| p == me).map(|r| r as u32));
            for p in 0..45 {
                prop_assert_eq!(ga.rank_of(p), a.iter().position(|&q| q == p).map(|r| r as u32));
            }
            let union: Vec<_> = a.iter().chain(b.iter().filter(|p| !a.contains(p))).copied()
                .collect();
            let both: Vec<_> = a.iter().filter(|p| b.contains(p)).copied().collect();
            let only: Vec<_> = a.iter().filter(|p| !b.contains(p)).copied().collect();
            prop_assert_eq!(list(&ga.union(&gb)), union);
            prop_assert_eq!(list(&ga.intersection(&gb)), both);
            prop_assert_eq!(list(&ga.difference(&gb)), only);
            for r in 0..ga.size() {
                prop_assert_eq!(ga.translate(r, &gb), b.iter().position(|&q| q == a[r as usize])
                    .map(|r| r as u32));
            }
            let (mut sa, mut sb) = (a.clone(), b.clone());
            sa.sort();
            sb.sort();
            let like = match (a == b, sa == sb) {
                (true, _) => Comparison::Identical,
                (_, true) => Comparison::Similar,
                _ => Comparison::Unequal,
            };
            prop_assert_eq!(ga.compare(&gb), like);
        }

        #[test]
        fn choosing_ranks(a in processes(), picks in proptest::collection::vec(-2i32..20, 0..8)) {
            let g = Group::new(a.clone(), 3);
            let valid = picks.iter().enumerate().all(|(i, &r)| r >= 0 && (r as usize) < a
                .len() && !picks[..i].contains(&r));
            match (g.include(&picks), g.exclude(&picks)) {
                (Ok(with), Ok(without)) => {
                    prop_assert!(valid);
                    prop_assert_eq!(list(&with), picks.iter().map(|&r| a[r as usize])
                        .collect::<Vec<_>>());
                    let rest: Vec<_> = (0..a.len()).filter(|r| !picks.contains(&(*r as i32)))
                        .map(|r| a[r]).collect();
                    prop_assert_eq!(list(&without), rest);
                }
                (Err(e), Err(f)) => {
                    prop_assert!(!valid);
                    prop_assert_eq!((e.kind(), f.kind()), (crate::Kind::Rank, crate::Kind::Rank));
                }
                _ => prop_assert!(false, "include and exclude disagree on what is valid"),
            }
        }
    }

    #[test]
    fn ranges() {
        let g = Group::first(10, 4);
        assert_eq!(
            list(&g.include_ranges(&[[0, 4, 2], [9, 5, -3]]).unwrap()),
            [0, 2, 4, 9, 6]
        );
        assert_eq!(
            list(&g.exclude_ranges(&[[0, 9, 3]]).unwrap()),
            [1, 2, 4, 5, 7, 8]
        );
        assert_eq!(g.include_ranges(&[[5, 2, 1]]).unwrap().size(), 0);
        assert_eq!(
            g.include_ranges(&[[0, 4, 0]]).unwrap_err().kind(),
            crate::Kind::Arg
        );
        assert_eq!(
            g.include_ranges(&[[0, 10, 1]]).unwrap_err().kind(),
            crate::Kind::Rank
        );
        assert_eq!(
            g.include_ranges(&[[0, 4, 1], [4, 5, 1]])
                .unwrap_err()
                .kind(),
            crate::Kind::Rank
        );
    }

    #[test]
    fn a_large_even_group_is_not_listed() {
        let world = Group::first(1 << 20, 77);
        assert!(matches!(world.duplicate().table, Table::Strided { .. }));
        let odd = world.include_ranges(&[[1, (1 << 20) - 1, 2]]).unwrap();
        assert!(matches!(odd.table, Table::Strided { first: 1, step: 2 }));
        assert_eq!((odd.rank(), odd.rank_of(78)), (Some(38), None));
    }
}
