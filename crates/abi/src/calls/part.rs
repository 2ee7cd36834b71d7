//! Partitioned communication (MPI 5.0 chapter 4).

use super::pt2pt::buffer;
use crate::prelude::*;
use ferry_mpi::partitioned;

/// The number of partitions, at least one (MPI 5.0 §4.2.1).
fn at_least_one(partitions: usize) -> Result<usize> {
    if partitions == 0 {
        return Err(err!(
            Arg,
            "partitions is 0, but a partitioned operation has one or more"
        ));
    }
    Ok(partitions)
}

pub fn psend_init(
    buf: *const u8,
    partitions: usize,
    count: i64,
    datatype: &'static Arc<Datatype>,
    dest: Dest,
    tag: u32,
    comm: &'static Arc<Comm>,
    _info: Option<&'static Arc<Info>>,
    request: Out<Handle>,
) -> Result<()> {
    let partitions = at_least_one(partitions)?;
    let to = match dest {
        Dest::Rank(rank) => Some(rank),
        Dest::ProcNull => None,
    };
    // SAFETY: the program leaves each partition alone from its release to completion.
    let made = unsafe {
        partitioned::send_init(
            comm,
            buffer(buf.cast_mut(), count, datatype),
            partitions,
            to,
            tag,
        )
    };
    request.set(handle::insert(made));
    Ok(())
}

pub fn precv_init(
    buf: *mut u8,
    partitions: usize,
    count: i64,
    datatype: &'static Arc<Datatype>,
    source: Source,
    tag: Option<u32>,
    comm: &'static Arc<Comm>,
    _info: Option<&'static Arc<Info>>,
    request: Out<Handle>,
) -> Result<()> {
    let partitions = at_least_one(partitions)?;
    let from = match source {
        Source::Rank(rank) => Some(rank),
        Source::ProcNull => None,
        Source::Any => {
            return Err(err!(
                Rank,
                "source is MPI_ANY_SOURCE, but partitioned receives name their sender"
            ));
        }
    };
    let Some(tag) = tag.or(from.is_none().then_some(0)) else {
        return Err(err!(
            Tag,
            "tag is MPI_ANY_TAG, but partitioned receives name their tag"
        ));
    };
    // SAFETY: the program leaves the partitions alone from start to arrival.
    let made = unsafe {
        partitioned::receive_init(comm, buffer(buf, count, datatype), partitions, from, tag)
    };
    request.set(handle::insert(made));
    Ok(())
}

/// The request that a program names.
fn look_up<R: RequestForm>(request: R) -> Result<&'static Arc<Request>> {
    request.request().ok_or_else(|| match request == R::null() {
        true => err!(Request, "request is MPI_REQUEST_NULL"),
        false => err!(
            Request,
            "request is no valid request handle (freed, or never set)"
        ),
    })
}

/// Releases partitions of a started send.
#[inline]
fn release<R: RequestForm>(request: R, partitions: impl IntoIterator<Item = i32>) -> Result<()> {
    let operation = request.request().and_then(|r| r.partitioned());
    let released = operation.map(|p| partitions.into_iter().try_for_each(|at| p.ready(at)));
    match released {
        Some(Ok(())) => Ok(()),
        released => Err(refusal(request, released.and_then(Result::err))),
    }
}

/// The error of a call that releases partitions. `error`: a partition was refused.
#[cold]
fn refusal<R: RequestForm>(request: R, error: Option<ferry_mpi::Error>) -> ferry_mpi::Error {
    let not_started = || {
        err!(
            Request,
            "the request is not a partitioned send that has been started"
        )
    };
    match look_up(request) {
        Ok(req) => req.locate(error.unwrap_or_else(not_started)),
        Err(error) => error,
    }
}

pub fn pready<R: RequestForm>(partition: i32, request: R) -> Result<()> {
    release(request, [partition])
}

pub fn pready_range<R: RequestForm>(
    partition_low: i32,
    partition_high: i32,
    request: R,
) -> Result<()> {
    if partition_low > partition_high {
        return Err(err!(
            Arg,
            "partition_low is {partition_low}, above partition_high {partition_high}"
        ));
    }
    release(request, partition_low..=partition_high)
}

pub fn pready_list<R: RequestForm>(
    _length: usize,
    array_of_partitions: &[i32],
    request: R,
) -> Result<()> {
    release(request, array_of_partitions.iter().copied())
}

pub fn parrived<R: RequestForm>(request: R, partition: i32, flag: OutFlag) -> Result<()> {
    if request == R::null() {
        flag.set(true);
        return Ok(());
    }
    let req = look_up(request)?;
    let arrived = match req.partitioned().map(|p| p.arrived(partition)) {
        Some(arrived) => arrived,
        // All partitions of an inactive receive have arrived.
        None if !req.is_active(&mut ferry_mpi::device::device()) => Ok(true),
        None => Err(err!(Request, "the request is not a partitioned receive")),
    };
    flag.set(arrived.map_err(|error| req.locate(error))?);
    Ok(())
}
