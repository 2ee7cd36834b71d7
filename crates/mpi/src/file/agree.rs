//! What the ranks of a file agree on: whether all have succeeded, and common values.

use super::error::{class, number};
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::{Comm, Error, Result};

/// Blocks until all ranks have called it, with their results. If one has failed, all fail: the
/// others with the class of the first such rank and its text.
pub(super) fn on_success<T>(comm: &Comm, mine: Result<T>) -> Result<T> {
    then(comm, mine, |_| Ok(()))
}

/// As [`on_success`]. When all ranks have come and none has failed, rank 0 calls `action`, whose
/// failure is that of all ranks. The others return after that.
pub(super) fn then<T>(
    comm: &Comm,
    mine: Result<T>,
    action: impl FnOnce(&Comm) -> Result<()>,
) -> Result<T> {
    let agreement = Agreement::of_all(comm)?;
    let mut failure = Vec::new();
    if let Err(e) = &mine {
        put_failure(&mut failure, comm.rank(), e);
    }
    let mut gathered = agreement.gather(0, failure)?;
    let mut own = None;
    if agreement.rank() == 0
        && gathered.is_empty()
        && let Err(e) = action(comm)
    {
        put_failure(&mut gathered, 0, &e);
        own = Some(e);
    }
    let told = agreement.broadcast(0, gathered)?;
    let mine = mine?;
    if let Some(e) = own {
        return Err(e);
    }
    if told.is_empty() {
        return Ok(mine);
    }
    Err(failure_of(&mut Reader(&told))?)
}

/// Do all ranks pass the same value? Blocks until all have called it.
pub(super) fn same(comm: &Comm, value: u64) -> Result<bool> {
    let agreement = Agreement::of_all(comm)?;
    let gathered = agreement.gather(0, value.to_le_bytes().to_vec())?;
    let all = gathered.chunks_exact(8).all(|v| v == value.to_le_bytes());
    let told = agreement.broadcast(0, vec![u8::from(all)])?;
    Ok(told == [1])
}

/// Appends an error of `rank`.
pub(super) fn put_failure(out: &mut Vec<u8>, rank: u32, e: &Error) {
    put_u64(out, u64::from(rank));
    put_u64(out, u64::from(number(e)));
    put_framed(out, e.text().as_bytes());
}

/// Reads an error that [`put_failure`] appended on another rank.
pub(super) fn failure_of(reader: &mut Reader<'_>) -> Result<Error> {
    let rank = reader.u64()?;
    let kind = class(reader.u64()? as u32);
    let text = String::from_utf8_lossy(reader.framed()?).into_owned();
    Ok(Error::new(kind, format!("on rank {rank}: {text}")))
}
