//! What the ranks of a file agree on: whether all have succeeded, and common values.

use super::error::{class, number};
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::{Comm, Error, Result, err};

/// Blocks until all ranks have called it, with their results. If one has failed, all fail: the
/// others with the class of the first such rank and its text.
pub(super) fn on_success<T>(comm: &Comm, mine: Result<T>) -> Result<T> {
    on_success_then(comm, mine, || Ok(()))
}

/// As [`on_success`]. When all ranks have come and none has failed, rank 0 calls `action`, whose
/// failure is that of all ranks. The others return after that.
pub(super) fn on_success_then<T>(
    comm: &Comm,
    mine: Result<T>,
    action: impl FnOnce() -> Result<()>,
) -> Result<T> {
    on_same_values_then(comm, mine, [], String::new, action)
}

/// As [`on_success_then`], if all ranks pass the same values. Otherwise all fail (NotSame), each
/// with its own text of the difference. One agreement for all of that: where ranks share cores,
/// messages are what such a call costs.
pub(super) fn on_same_values_then<T, const N: usize>(
    comm: &Comm,
    mine: Result<T>,
    values: [u64; N],
    difference: impl FnOnce() -> String,
    action: impl FnOnce() -> Result<()>,
) -> Result<T> {
    let agreement = Agreement::of_all(comm)?;
    let mut message = Vec::new();
    put_u64(&mut message, u64::from(mine.is_err()));
    match &mine {
        Ok(_) => values
            .iter()
            .for_each(|value| put_u64(&mut message, *value)),
        Err(e) => put_failure(&mut message, comm.rank(), e),
    }
    let gathered = agreement.gather(0, message)?;
    let (mut verdict, mut own) = (Vec::new(), None);
    if agreement.rank() == 0 {
        verdict = verdict_of(&gathered, &values)?;
        if verdict.is_empty()
            && let Err(e) = action()
        {
            put_failure(&mut verdict, 0, &e);
            own = Some(e);
        }
    }
    let verdict = agreement.broadcast(0, verdict)?;
    let mine = mine?;
    if let Some(e) = own {
        return Err(e);
    }
    match &verdict[..] {
        [] => Ok(mine),
        DIFFERENT => Err(err!(NotSame, "{}", difference())),
        failure => Err(failure_of(&mut Reader(failure))?),
    }
}

/// What rank 0 tells the others if they pass different values. Shorter than any failure.
const DIFFERENT: &[u8] = b"different";

/// What rank 0 tells the others: nothing, [`DIFFERENT`], or the first failure.
fn verdict_of<const N: usize>(gathered: &[u8], values: &[u64; N]) -> Result<Vec<u8>> {
    let (mut reader, mut same) = (Reader(gathered), true);
    while !reader.is_empty() {
        if reader.u64()? == 1 {
            let from = reader.0;
            failure_of(&mut reader)?;
            return Ok(from[..from.len() - reader.0.len()].to_vec());
        }
        for value in values {
            same &= reader.u64()? == *value;
        }
    }
    Ok(match same {
        true => Vec::new(),
        false => DIFFERENT.to_vec(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn messages(results: &[Result<u64>]) -> Vec<u8> {
        let mut all = Vec::new();
        for (rank, result) in results.iter().enumerate() {
            put_u64(&mut all, u64::from(result.is_err()));
            match result {
                Ok(value) => put_u64(&mut all, *value),
                Err(e) => put_failure(&mut all, rank as u32, e),
            }
        }
        all
    }

    #[test]
    fn the_first_failure_counts_and_then_the_values() {
        let bad = |text| Err(Error::new(Kind::Arg, text));
        let verdict = |results: &[Result<u64>]| verdict_of(&messages(results), &[7]).unwrap();
        assert!(verdict(&[Ok(7), Ok(7), Ok(7)]).is_empty());
        assert_eq!(verdict(&[Ok(7), Ok(8), Ok(7)]), DIFFERENT);
        let failure = verdict(&[Ok(7), Ok(8), bad("one"), Ok(7), bad("two")]);
        let e = failure_of(&mut Reader(&failure)).unwrap();
        assert_eq!((e.kind(), e.text()), (Kind::Arg, "on rank 2: one"));
        assert!(verdict_of(&[1], &[7]).is_err());
    }
}
