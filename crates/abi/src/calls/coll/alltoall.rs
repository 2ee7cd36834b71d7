//! MPI_Alltoall, MPI_Alltoallv and MPI_Alltoallw (MPI 5.0 §6.8).

use super::*;

#[allow(clippy::too_many_arguments)]
pub(super) fn alltoall_as(
    sendbuf: SendBuf,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let (block, send, recv) = uniform(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
    check_no_alias(sendbuf, recvbuf, recvcount.min(sendcount))?;
    carry_out(
        &plain(
            comm,
            Collective::Alltoall {
                block,
                in_place: sendbuf.is_none(),
            },
            send,
            recv,
        ),
        form,
    )
}

#[allow(clippy::too_many_arguments)]
pub(super) fn alltoallv_as(
    sendbuf: SendBuf,
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
    let out = match sendbuf {
        Some(_) => VaryingBlocks::new(
            sendcounts,
            sdispls,
            peer_count(comm),
            sendtype,
            ["sendcounts", "sdispls"],
        )?,
        None => VaryingBlocks::none(),
    };
    let inn = VaryingBlocks::new(
        recvcounts,
        rdispls,
        peer_count(comm),
        recvtype,
        ["recvcounts", "rdispls"],
    )?;
    let send = match sendbuf {
        Some(address) => checked(address, out.max_count, sendtype, "sendbuf")?,
        None => View::Nothing,
    };
    let recv = checked(recvbuf, inn.max_count, recvtype, "recvbuf")?;
    check_no_alias(sendbuf, recvbuf, inn.max_count.min(out.max_count))?;
    let collective = Collective::Alltoallv {
        send: out.varying(),
        recv: inn.varying(),
        size: recvtype.size(),
        in_place: sendbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn alltoallw_as(
    sendbuf: SendBuf,
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
    let (out, out_bytes) = match sendbuf {
        Some(address) => typed(
            address,
            sendcounts,
            sdispls,
            sendtypes,
            peer_count(comm),
            ["sendcounts", "sdispls"],
        )?,
        None => (Vec::new(), Vec::new()),
    };
    let (inn, inn_bytes) = typed(
        recvbuf,
        recvcounts,
        rdispls,
        recvtypes,
        peer_count(comm),
        ["recvcounts", "rdispls"],
    )?;
    check_no_alias(
        sendbuf,
        recvbuf,
        inn_bytes
            .iter()
            .chain(&out_bytes)
            .copied()
            .max()
            .unwrap_or(0),
    )?;
    let collective = Collective::Alltoallw {
        send: &out_bytes,
        recv: &inn_bytes,
        in_place: sendbuf.is_none(),
    };
    carry_out(
        &plain(comm, collective, View::Blocks(&out), View::Blocks(&inn)),
        form,
    )
}
