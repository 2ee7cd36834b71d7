//! Reductions and scans (MPI 5.0 §6.9 to §6.11).

use super::*;

/// A reduction of `count` elements.
fn reduction(count: i64, datatype: DatatypeRef, op: OpRef) -> Result<Reduction> {
    op.check(datatype)?;
    Ok(Reduction {
        count: elements(count, datatype),
        element: datatype.size(),
        commutes: op.is_commutative(),
    })
}

/// Carries out a reduction.
fn reducing(
    comm: CommRef,
    collective: Collective<'_>,
    send: View<'static>,
    recv: View<'static>,
    datatype: DatatypeRef,
    op: OpRef,
    form: Form,
) -> Result<()> {
    let operation = CollectiveOperation::Collective(collective);
    let reduction = Some((op, datatype));
    carry_out(&Call::new(comm, operation, send, recv, reduction), form)
}

#[allow(clippy::too_many_arguments)]
pub(super) fn reduce_as(
    sendbuf: SendBuf,
    recvbuf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    op: OpRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let here = is_root(root, comm);
    if comm.is_inter() && root == Root::ProcNull {
        let of = Reduction {
            count: 0,
            element: 1,
            commutes: true,
        };
        let collective = Collective::Reduce {
            root: coll::Root::Elsewhere,
            of,
            in_place: false,
        };
        return carry_out(&plain(comm, collective, View::Nothing, View::Nothing), form);
    }
    let of = reduction(count, datatype, op)?;
    let sends = !comm.is_inter() || !here;
    let send = if sends {
        send_view(sendbuf, count, datatype)
    } else {
        View::Nothing
    };
    let recv = if here {
        view(recvbuf, count, datatype)
    } else {
        View::Nothing
    };
    if here && sends {
        check_no_alias(sendbuf, recvbuf, count)?;
    }
    let collective = Collective::Reduce {
        root: root_of(root),
        of,
        in_place: sendbuf.is_none(),
    };
    reducing(comm, collective, send, recv, datatype, op, form)
}

/// Reductions that check and view both buffers by the same count of elements.
macro_rules! reductions {
    ($($name:ident $collective:ident;)*) => {$(
        pub(super) fn $name(sendbuf: SendBuf, recvbuf: *mut u8, count: i64, datatype: DatatypeRef,
            op: OpRef, comm: CommRef, form: Form) -> Result<()> {
            let of = reduction(count, datatype, op)?;
            check_no_alias(sendbuf, recvbuf, count)?;
            let send = send_view(sendbuf, count, datatype);
            let recv = view(recvbuf, count, datatype);
            let collective = Collective::$collective { of, in_place: sendbuf.is_none() };
            reducing(comm, collective, send, recv, datatype, op, form)
        }
    )*};
}
reductions! {
    allreduce_as Allreduce;
    reduce_scatter_block_as ReduceScatterBlock;
    scan_as Scan;
    exscan_as Exscan;
}

pub(super) fn reduce_scatter_as(
    sendbuf: SendBuf,
    recvbuf: *mut u8,
    recvcounts: Ints,
    datatype: DatatypeRef,
    op: OpRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let mut counts = recvcounts.counts(comm.size() as usize, "recvcounts")?;
    if datatype.size() <= 0 {
        counts.fill(0);
    }
    let total = counts.iter().sum();
    let of = reduction(total, datatype, op)?;
    let own = counts[comm.rank() as usize];
    check_no_alias(sendbuf, recvbuf, own)?;
    let send = match sendbuf {
        Some(address) => checked(address, total, datatype, "sendbuf")?,
        None => View::Nothing,
    };
    let writes = if sendbuf.is_none() { total } else { own };
    let recv = checked(recvbuf, writes, datatype, "recvbuf")?;
    let collective = Collective::ReduceScatter {
        counts: &counts,
        of,
        in_place: sendbuf.is_none(),
    };
    reducing(comm, collective, send, recv, datatype, op, form)
}
