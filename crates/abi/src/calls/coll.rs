//! Collective communication (MPI 5.0 chapter 6) and its neighbourhood forms (§8.6).
//!
//! Each collective is written once. `forms!` makes its blocking, non-blocking and persistent calls.

mod alltoall;
mod neighbours;
mod reductions;

use alltoall::*;
use neighbours::*;
use reductions::*;

use crate::args::null;
use crate::prelude::*;
use ferry_mpi::coll::{
    self, Block, Call, Collective, CollectiveOperation, NeighbourExchange, Piece, Reduction,
    Region, Uniform, Varying, View,
};

/// The form of a collective call.
enum Form {
    /// Blocking, such as MPI_Bcast.
    Blocking,
    /// Non-blocking, such as MPI_Ibcast.
    Nonblocking(Out<Handle>),
    /// Persistent, such as MPI_Bcast_init.
    Persistent(Out<Handle>),
}

/// Executes a call of this form.
fn carry_out(call: &Call<'_>, form: Form) -> Result<()> {
    match form {
        // SAFETY: the program passes buffers that are as it says.
        Form::Blocking => unsafe { call.run() },
        Form::Nonblocking(request) => {
            // SAFETY: and it leaves them alone until completion.
            request.set(handle::insert(unsafe { call.start() }));
            Ok(())
        }
        Form::Persistent(request) => {
            // SAFETY: and it leaves them alone between each start and completion.
            request.set(handle::insert(unsafe { call.init() }));
            Ok(())
        }
    }
}

/// The three forms of each collective: their names, their parameters, and the function that gets
/// these and the form.
macro_rules! forms {
    ($($blocking:ident $nonblocking:ident $persistent:ident($($arg:ident: $kind:ty),*)
        $body:ident;)*) => {$(
        #[allow(clippy::too_many_arguments)]
        pub fn $blocking($($arg: $kind),*) -> Result<()> {
            $body($($arg,)* Form::Blocking)
        }
        #[allow(clippy::too_many_arguments)]
        pub fn $nonblocking($($arg: $kind,)* request: Out<Handle>) -> Result<()> {
            $body($($arg,)* Form::Nonblocking(request))
        }
        #[allow(clippy::too_many_arguments)]
        pub fn $persistent($($arg: $kind,)* _info: Option<InfoRef>,
            request: Out<Handle>) -> Result<()> {
            $body($($arg,)* Form::Persistent(request))
        }
    )*};
}

/// A send buffer, or `None` for MPI_IN_PLACE.
type SendBuf = Option<*const u8>;

forms! {
    barrier ibarrier barrier_init(comm: CommRef) barrier_as;
    bcast ibcast bcast_init(buffer: *mut u8, count: i64, datatype: DatatypeRef, root: Root,
        comm: CommRef) bcast_as;
    gather igather gather_init(sendbuf: SendBuf, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: *mut u8, recvcount: i64, recvtype: DatatypeRef, root: Root, comm: CommRef)
        gather_as;
    gatherv igatherv gatherv_init(sendbuf: SendBuf, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: *mut u8, recvcounts: Ints, displs: Ints, recvtype: DatatypeRef, root: Root,
        comm: CommRef) gatherv_as;
    scatter iscatter scatter_init(sendbuf: *const u8, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: Option<*mut u8>, recvcount: i64, recvtype: DatatypeRef, root: Root, comm: CommRef)
        scatter_as;
    scatterv iscatterv scatterv_init(sendbuf: *const u8, sendcounts: Ints, displs: Ints,
        sendtype: DatatypeRef, recvbuf: Option<*mut u8>, recvcount: i64, recvtype: DatatypeRef,
        root: Root, comm: CommRef) scatterv_as;
    allgather iallgather allgather_init(sendbuf: SendBuf, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: *mut u8, recvcount: i64, recvtype: DatatypeRef, comm: CommRef) allgather_as;
    allgatherv iallgatherv allgatherv_init(sendbuf: SendBuf, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: *mut u8, recvcounts: Ints, displs: Ints, recvtype: DatatypeRef, comm: CommRef)
        allgatherv_as;
    alltoall ialltoall alltoall_init(sendbuf: SendBuf, sendcount: i64, sendtype: DatatypeRef,
        recvbuf: *mut u8, recvcount: i64, recvtype: DatatypeRef, comm: CommRef) alltoall_as;
    alltoallv ialltoallv alltoallv_init(sendbuf: SendBuf, sendcounts: Ints, sdispls: Ints,
        sendtype: DatatypeRef, recvbuf: *mut u8, recvcounts: Ints, rdispls: Ints,
        recvtype: DatatypeRef, comm: CommRef) alltoallv_as;
    alltoallw ialltoallw alltoallw_init(sendbuf: SendBuf, sendcounts: Ints, sdispls: Ints,
        sendtypes: Types, recvbuf: *mut u8, recvcounts: Ints, rdispls: Ints, recvtypes: Types,
        comm: CommRef) alltoallw_as;
    reduce ireduce reduce_init(sendbuf: SendBuf, recvbuf: *mut u8, count: i64,
        datatype: DatatypeRef, op: OpRef, root: Root, comm: CommRef) reduce_as;
    allreduce iallreduce allreduce_init(sendbuf: SendBuf, recvbuf: *mut u8, count: i64,
        datatype: DatatypeRef, op: OpRef, comm: CommRef) allreduce_as;
    reduce_scatter_block ireduce_scatter_block reduce_scatter_block_init(sendbuf: SendBuf,
        recvbuf: *mut u8, recvcount: i64, datatype: DatatypeRef, op: OpRef, comm: CommRef)
        reduce_scatter_block_as;
    reduce_scatter ireduce_scatter reduce_scatter_init(sendbuf: SendBuf, recvbuf: *mut u8,
        recvcounts: Ints, datatype: DatatypeRef, op: OpRef, comm: CommRef) reduce_scatter_as;
    scan iscan scan_init(sendbuf: SendBuf, recvbuf: *mut u8, count: i64, datatype: DatatypeRef,
        op: OpRef, comm: CommRef) scan_as;
    exscan iexscan exscan_init(sendbuf: SendBuf, recvbuf: *mut u8, count: i64,
        datatype: DatatypeRef, op: OpRef, comm: CommRef) exscan_as;
    neighbor_allgather ineighbor_allgather neighbor_allgather_init(sendbuf: *const u8,
        sendcount: i64, sendtype: DatatypeRef, recvbuf: *mut u8, recvcount: i64,
        recvtype: DatatypeRef, comm: CommRef) neighbor_allgather_as;
    neighbor_allgatherv ineighbor_allgatherv neighbor_allgatherv_init(sendbuf: *const u8,
        sendcount: i64, sendtype: DatatypeRef, recvbuf: *mut u8, recvcounts: Ints, displs: Ints,
        recvtype: DatatypeRef, comm: CommRef) neighbor_allgatherv_as;
    neighbor_alltoall ineighbor_alltoall neighbor_alltoall_init(sendbuf: *const u8, sendcount: i64,
        sendtype: DatatypeRef, recvbuf: *mut u8, recvcount: i64, recvtype: DatatypeRef,
        comm: CommRef) neighbor_alltoall_as;
    neighbor_alltoallv ineighbor_alltoallv neighbor_alltoallv_init(sendbuf: *const u8,
        sendcounts: Ints, sdispls: Ints, sendtype: DatatypeRef, recvbuf: *mut u8, recvcounts: Ints,
        rdispls: Ints, recvtype: DatatypeRef, comm: CommRef) neighbor_alltoallv_as;
    neighbor_alltoallw ineighbor_alltoallw neighbor_alltoallw_init(sendbuf: *const u8,
        sendcounts: Ints, sdispls: Ints, sendtypes: Types, recvbuf: *mut u8, recvcounts: Ints,
        rdispls: Ints, recvtypes: Types, comm: CommRef) neighbor_alltoallw_as;
}

/// The root in a schedule's terms.
fn root_of(root: Root) -> coll::Root {
    match root {
        Root::Rank(r) => coll::Root::Rank(r),
        Root::ThisProcess => coll::Root::This,
        Root::ProcNull => coll::Root::Elsewhere,
    }
}

/// Is this process the root?
fn is_root(root: Root, comm: &Comm) -> bool {
    match root {
        Root::Rank(r) => !comm.is_inter() && comm.rank() == r,
        Root::ThisProcess => true,
        Root::ProcNull => false,
    }
}

/// The elements of a block. 0 for types without bytes.
fn elements(count: i64, datatype: &Datatype) -> i64 {
    if datatype.size() > 0 { count } else { 0 }
}

/// Packed bytes of `count` elements.
fn bytes(count: i64, datatype: &Datatype) -> i64 {
    count.saturating_mul(datatype.size().max(0))
}

fn view(address: *const u8, count: i64, datatype: DatatypeRef) -> View<'static> {
    View::Uniform {
        address: address.cast_mut(),
        count,
        datatype,
    }
}

fn send_view(sendbuf: SendBuf, count: i64, datatype: DatatypeRef) -> View<'static> {
    sendbuf.map_or(View::Nothing, |address| view(address, count, datatype))
}

/// A buffer of a v-form whose largest block has `count` elements. The entry point cannot check it.
fn checked(
    address: *const u8,
    count: i64,
    datatype: DatatypeRef,
    name: &str,
) -> Result<View<'static>> {
    args::buffer(address, count, datatype, name)?;
    Ok(view(address, count, datatype))
}

/// Checks that the buffers of a call do not alias. For that a program must pass MPI_IN_PLACE (MPI
/// 5.0 §6.2.3).
fn check_no_alias(sendbuf: SendBuf, recvbuf: *const u8, count: i64) -> Result<()> {
    match sendbuf {
        Some(s) if count > 0 && !s.is_null() && s == recvbuf => Err(err!(
            Buffer,
            "sendbuf and recvbuf are the same address; pass MPI_IN_PLACE as sendbuf instead"
        )),
        _ => Ok(()),
    }
}

/// The blocks of a v-form.
struct VaryingBlocks {
    counts: Vec<i64>,
    displs: Vec<i64>,
    /// The largest count.
    max_count: i64,
}

impl VaryingBlocks {
    fn new(
        of: Ints,
        displs: Ints,
        n: usize,
        datatype: &Datatype,
        [counts_name, displs_name]: [&str; 2],
    ) -> Result<VaryingBlocks> {
        let mut counts = of.counts(n, counts_name)?;
        if datatype.size() <= 0 {
            counts.fill(0);
        }
        let max_count = counts.iter().copied().max().unwrap_or(0);
        // Displacements of empty blocks have no meaning.
        let displs = if max_count == 0 {
            vec![0; n]
        } else {
            displs.all(n, displs_name)?
        };
        Ok(VaryingBlocks {
            counts,
            displs,
            max_count,
        })
    }
    fn none() -> VaryingBlocks {
        VaryingBlocks {
            counts: Vec::new(),
            displs: Vec::new(),
            max_count: 0,
        }
    }
    /// Checks that this process's own block does not alias the other buffer.
    fn check_own_block(
        &self,
        other: SendBuf,
        address: *const u8,
        datatype: &Datatype,
        comm: &Comm,
    ) -> Result<()> {
        if comm.is_inter() {
            return Ok(());
        }
        let me = comm.rank() as usize;
        let own = address.wrapping_offset((self.displs[me] * datatype.extent()) as isize);
        check_no_alias(other, own, self.counts[me])
    }
    fn varying(&self) -> Varying<'_> {
        Varying {
            counts: &self.counts,
            displs: &self.displs,
        }
    }
}

/// The blocks of a w-form, with their packed bytes.
fn typed(
    address: *const u8,
    of: Ints,
    displs: Ints,
    types: Types,
    n: usize,
    [counts_name, displs_name]: [&str; 2],
) -> Result<(Vec<Block>, Vec<i64>)> {
    let counts = of.counts(n, counts_name)?;
    let mut blocks = Vec::with_capacity(n);
    let mut sizes = Vec::with_capacity(n);
    for (i, &count) in counts.iter().enumerate() {
        let datatype = types.at(i)?;
        let bytes = bytes(count, datatype);
        if displs.is_none() && bytes > 0 {
            return Err(null(displs_name));
        }
        let at = address.cast_mut().wrapping_offset(displs.at(i) as isize);
        sizes.push(bytes);
        blocks.push(Block {
            address: at,
            count,
            datatype: datatype.clone(),
        });
    }
    Ok((blocks, sizes))
}

fn plain<'a>(
    comm: CommRef,
    collective: Collective<'a>,
    send: View<'a>,
    recv: View<'a>,
) -> Call<'a> {
    let operation = CollectiveOperation::Collective(collective);
    Call::new(comm, operation, send, recv, None)
}

/// The number of peers, which is the length of arrays by peer.
fn peer_count(comm: &Comm) -> usize {
    comm.remote_group().size() as usize
}

fn barrier_as(comm: CommRef, form: Form) -> Result<()> {
    carry_out(
        &plain(comm, Collective::Barrier, View::Nothing, View::Nothing),
        form,
    )
}

fn bcast_as(
    address: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let data = view(address, count, datatype);
    let collective = Collective::Bcast {
        root: root_of(root),
        bytes: bytes(count, datatype),
    };
    carry_out(&plain(comm, collective, View::Nothing, data), form)
}

#[allow(clippy::too_many_arguments)]
fn gather_as(
    sendbuf: SendBuf,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let here = is_root(root, comm);
    let send = send_view(sendbuf, sendcount, sendtype);
    let recv = if here {
        view(recvbuf, recvcount, recvtype)
    } else {
        View::Nothing
    };
    if here && !comm.is_inter() {
        let own = recvbuf
            .wrapping_offset((i64::from(comm.rank()) * recvcount * recvtype.extent()) as isize);
        check_no_alias(sendbuf, own, recvcount)?;
    }
    let block = Uniform {
        send: elements(sendcount, sendtype),
        recv: elements(recvcount, recvtype),
        bytes: if here {
            bytes(recvcount, recvtype)
        } else {
            bytes(sendcount, sendtype)
        },
    };
    let collective = Collective::Gather {
        root: root_of(root),
        block,
        in_place: sendbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
fn gatherv_as(
    sendbuf: SendBuf,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let here = is_root(root, comm);
    let send = send_view(sendbuf, sendcount, sendtype);
    let (blocks, recv) = if here {
        let blocks = VaryingBlocks::new(
            recvcounts,
            displs,
            peer_count(comm),
            recvtype,
            ["recvcounts", "displs"],
        )?;
        let recv = checked(recvbuf, blocks.max_count, recvtype, "recvbuf")?;
        blocks.check_own_block(sendbuf, recvbuf, recvtype, comm)?;
        (blocks, recv)
    } else {
        (VaryingBlocks::none(), View::Nothing)
    };
    let collective = Collective::Gatherv {
        root: root_of(root),
        send: elements(sendcount, sendtype),
        recv: blocks.varying(),
        in_place: sendbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
fn scatter_as(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: Option<*mut u8>,
    recvcount: i64,
    recvtype: DatatypeRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let here = is_root(root, comm);
    let send = if here {
        view(sendbuf, sendcount, sendtype)
    } else {
        View::Nothing
    };
    let recv = match recvbuf {
        Some(address) => view(address, recvcount, recvtype),
        None => View::Nothing,
    };
    if here && !comm.is_inter() {
        let own = sendbuf
            .wrapping_offset((i64::from(comm.rank()) * sendcount * sendtype.extent()) as isize);
        check_no_alias(recvbuf.map(<*mut u8>::cast_const), own, sendcount)?;
    }
    let block = Uniform {
        send: elements(sendcount, sendtype),
        recv: elements(recvcount, recvtype),
        bytes: if here {
            bytes(sendcount, sendtype)
        } else {
            bytes(recvcount, recvtype)
        },
    };
    let collective = Collective::Scatter {
        root: root_of(root),
        block,
        in_place: recvbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}

#[allow(clippy::too_many_arguments)]
fn scatterv_as(
    sendbuf: *const u8,
    sendcounts: Ints,
    displs: Ints,
    sendtype: DatatypeRef,
    recvbuf: Option<*mut u8>,
    recvcount: i64,
    recvtype: DatatypeRef,
    root: Root,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let here = is_root(root, comm);
    let recv = match recvbuf {
        Some(address) => view(address, recvcount, recvtype),
        None => View::Nothing,
    };
    let (blocks, send) = if here {
        let blocks = VaryingBlocks::new(
            sendcounts,
            displs,
            peer_count(comm),
            sendtype,
            ["sendcounts", "displs"],
        )?;
        let send = checked(sendbuf, blocks.max_count, sendtype, "sendbuf")?;
        blocks.check_own_block(recvbuf.map(<*mut u8>::cast_const), sendbuf, sendtype, comm)?;
        (blocks, send)
    } else {
        (VaryingBlocks::none(), View::Nothing)
    };
    let collective = Collective::Scatterv {
        root: root_of(root),
        send: blocks.varying(),
        recv: elements(recvcount, recvtype),
        in_place: recvbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}

/// The arguments of an allgather or an all-to-all with uniform blocks.
fn uniform(
    sendbuf: SendBuf,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: DatatypeRef,
) -> (Uniform, View<'static>, View<'static>) {
    let send = send_view(sendbuf, sendcount, sendtype);
    let recv = view(recvbuf, recvcount, recvtype);
    let block = Uniform {
        send: elements(sendcount, sendtype),
        recv: elements(recvcount, recvtype),
        bytes: bytes(recvcount, recvtype),
    };
    (block, send, recv)
}

#[allow(clippy::too_many_arguments)]
fn allgather_as(
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
    if !comm.is_inter() {
        let own = recvbuf
            .wrapping_offset((i64::from(comm.rank()) * recvcount * recvtype.extent()) as isize);
        check_no_alias(sendbuf, own, recvcount)?;
    }
    carry_out(
        &plain(
            comm,
            Collective::Allgather {
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
fn allgatherv_as(
    sendbuf: SendBuf,
    sendcount: i64,
    sendtype: DatatypeRef,
    recvbuf: *mut u8,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeRef,
    comm: CommRef,
    form: Form,
) -> Result<()> {
    let send = send_view(sendbuf, sendcount, sendtype);
    let blocks = VaryingBlocks::new(
        recvcounts,
        displs,
        peer_count(comm),
        recvtype,
        ["recvcounts", "displs"],
    )?;
    let recv = checked(recvbuf, blocks.max_count, recvtype, "recvbuf")?;
    blocks.check_own_block(sendbuf, recvbuf, recvtype, comm)?;
    let collective = Collective::Allgatherv {
        send: elements(sendcount, sendtype),
        recv: blocks.varying(),
        size: recvtype.size(),
        in_place: sendbuf.is_none(),
    };
    carry_out(&plain(comm, collective, send, recv), form)
}
