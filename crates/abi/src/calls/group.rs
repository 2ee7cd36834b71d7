//! Groups (MPI 5.0 §7.3).

use crate::prelude::*;
use ferry_mpi::group::Comparison;
use ferry_mpi::process::try_process;
use std::sync::OnceLock;

/// MPI_GROUP_EMPTY.
pub fn empty() -> GroupRef {
    static EMPTY: OnceLock<Arc<Group>> = OnceLock::new();
    EMPTY.get_or_init(|| Group::empty(try_process().map_or(0, |p| p.me)))
}

/// A rank as C sees it.
pub fn rank_or_undefined(rank: Option<u32>) -> i32 {
    rank.map_or(constants::MPI_UNDEFINED, |r| r as i32)
}

/// A comparison as C sees it.
pub fn number_of(comparison: Comparison) -> i32 {
    match comparison {
        Comparison::Identical => constants::MPI_IDENT,
        Comparison::Congruent => constants::MPI_CONGRUENT,
        Comparison::Similar => constants::MPI_SIMILAR,
        Comparison::Unequal => constants::MPI_UNEQUAL,
    }
}

/// Hands out a new group; one without members as MPI_GROUP_EMPTY.
fn give(newgroup: New<Group>, group: Arc<Group>) -> Result<()> {
    if group.size() == 0 {
        newgroup.set_handle(constants::MPI_GROUP_EMPTY);
    } else {
        newgroup.set(group);
    }
    Ok(())
}

pub fn group_size(group: GroupRef, size: Out<i32>) -> Result<()> {
    size.set(group.size() as i32);
    Ok(())
}

pub fn group_rank(group: GroupRef, rank: Out<i32>) -> Result<()> {
    rank.set(rank_or_undefined(group.rank()));
    Ok(())
}

pub fn group_translate_ranks(
    group1: GroupRef,
    _n: usize,
    ranks1: &[i32],
    group2: GroupRef,
    ranks2: OutInts,
) -> Result<()> {
    group1.check_origin(group2)?;
    for (i, &rank) in ranks1.iter().enumerate() {
        let translated = match rank {
            constants::MPI_PROC_NULL => constants::MPI_PROC_NULL,
            r if (0..group1.size() as i32).contains(&r) => {
                rank_or_undefined(group1.translate(r as u32, group2))
            }
            r => {
                return Err(err!(
                    Rank,
                    "ranks1[{i}] is {r}, but group1 has {} processes",
                    group1.size()
                ));
            }
        };
        ranks2.set(i, translated);
    }
    Ok(())
}

pub fn group_compare(group1: GroupRef, group2: GroupRef, result: Out<i32>) -> Result<()> {
    group1.check_origin(group2)?;
    result.set(number_of(group1.compare(group2)));
    Ok(())
}

pub fn group_union(group1: GroupRef, group2: GroupRef, newgroup: New<Group>) -> Result<()> {
    group1.check_origin(group2)?;
    give(newgroup, group1.union(group2))
}

pub fn group_intersection(group1: GroupRef, group2: GroupRef, newgroup: New<Group>) -> Result<()> {
    group1.check_origin(group2)?;
    give(newgroup, group1.intersection(group2))
}

pub fn group_difference(group1: GroupRef, group2: GroupRef, newgroup: New<Group>) -> Result<()> {
    group1.check_origin(group2)?;
    give(newgroup, group1.difference(group2))
}

pub fn group_incl(group: GroupRef, _n: usize, ranks: &[i32], newgroup: New<Group>) -> Result<()> {
    give(newgroup, group.include(ranks)?)
}

pub fn group_excl(group: GroupRef, _n: usize, ranks: &[i32], newgroup: New<Group>) -> Result<()> {
    give(newgroup, group.exclude(ranks)?)
}

pub fn group_range_incl(
    group: GroupRef,
    _n: usize,
    ranges: &[[i32; 3]],
    newgroup: New<Group>,
) -> Result<()> {
    give(newgroup, group.include_ranges(ranges)?)
}

pub fn group_range_excl(
    group: GroupRef,
    _n: usize,
    ranges: &[[i32; 3]],
    newgroup: New<Group>,
) -> Result<()> {
    give(newgroup, group.exclude_ranges(ranges)?)
}

pub fn group_free(group: InOutHandle<Group>) -> Result<()> {
    // MPI_GROUP_EMPTY is what operations return, so programs free it as any other.
    if group.is_predefined() {
        group.forget();
        return Ok(());
    }
    group.free().map(drop)
}
