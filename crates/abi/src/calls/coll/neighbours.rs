//! Neighbourhood collectives (MPI 5.0 §8.6).

use super::*;

/// A call with blocks of one length.
///
/// Errors: MPI_ERR_TOPOLOGY if the communicator has none.
fn exchange<'a>(
    comm: CommRef,
    exchange: NeighbourExchange,
    send: View<'a>,
    recv: View<'a>,
) -> Result<Call<'a>> {
    coll::neighbours(comm)?;
    let operation = CollectiveOperation::Exchange(exchange);
    Ok(Call::new(comm, operation, send, recv, None))
}

fn neighbourly<'a>(
    comm: CommRef,
    schedule: Arc<coll::Schedule>,
    send: View<'a>,
    recv: View<'a>,
) -> Call<'a> {
    let operation = CollectiveOperation::Neighbourhood(schedule);
    Call::new(comm, operation, send, recv, None)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn neighbor_allgather_as(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let (block, send, recv) = uniform(
        Some(sendbuf),
        sendcount,
        sendtype,
        recvbuf,
        recvcount,
        recvtype,
    );
    let call = NeighbourExchange::Allgather(block);
    carry_out(&exchange(comm, call, send, recv)?, form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn neighbor_allgatherv_as(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let n = coll::neighbours(comm)?;
    let inn = VaryingBlocks::new(
        recvcounts,
        displs,
        n.sources.len(),
        recvtype,
        ["recvcounts", "displs"],
    )?;
    let send = view(sendbuf, sendcount, sendtype);
    let recv = checked(recvbuf, inn.max_count, recvtype, "recvbuf")?;
    let own = Piece::send(0, elements(sendcount, sendtype));
    let s = coll::exchange_with(
        comm,
        n,
        &|i| Piece::recv(inn.displs[i], inn.counts[i]),
        &|_| own,
    );
    carry_out(&neighbourly(comm, s, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn neighbor_alltoall_as(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let (block, send, recv) = uniform(
        Some(sendbuf),
        sendcount,
        sendtype,
        recvbuf,
        recvcount,
        recvtype,
    );
    let call = NeighbourExchange::Alltoall(block);
    carry_out(&exchange(comm, call, send, recv)?, form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn neighbor_alltoallv_as(
    sendbuf: *const u8,
    sendcounts: Ints,
    sdispls: Ints,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcounts: Ints,
    rdispls: Ints,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let n = coll::neighbours(comm)?;
    let out = VaryingBlocks::new(
        sendcounts,
        sdispls,
        n.destinations.len(),
        sendtype,
        ["sendcounts", "sdispls"],
    )?;
    let inn = VaryingBlocks::new(
        recvcounts,
        rdispls,
        n.sources.len(),
        recvtype,
        ["recvcounts", "rdispls"],
    )?;
    let send = checked(sendbuf, out.max_count, sendtype, "sendbuf")?;
    let recv = checked(recvbuf, inn.max_count, recvtype, "recvbuf")?;
    let receive = |i: usize| Piece::recv(inn.displs[i], inn.counts[i]);
    let s = coll::exchange_with(comm, n, &receive, &|i| {
        Piece::send(out.displs[i], out.counts[i])
    });
    carry_out(&neighbourly(comm, s, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn neighbor_alltoallw_as(
    sendbuf: *const u8,
    sendcounts: Ints,
    sdispls: Ints,
    sendtypes: Types,
    recvbuf: *mut u8,
    recvcounts: Ints,
    rdispls: Ints,
    recvtypes: Types,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let n = coll::neighbours(comm)?;
    let (out, out_bytes) = typed(
        sendbuf,
        sendcounts,
        sdispls,
        sendtypes,
        n.destinations.len(),
        ["sendcounts", "sdispls"],
    )?;
    let (inn, inn_bytes) = typed(
        recvbuf,
        recvcounts,
        rdispls,
        recvtypes,
        n.sources.len(),
        ["recvcounts", "rdispls"],
    )?;
    let receive = |i: usize| Piece::new(Region::RecvBlock, i as i64, inn_bytes[i]);
    let send = |i: usize| Piece::new(Region::SendBlock, i as i64, out_bytes[i]);
    let s = coll::exchange_with(comm, n, &receive, &send);
    carry_out(
        &neighbourly(comm, s, View::Blocks(&out), View::Blocks(&inn)),
        form,
    )
}
