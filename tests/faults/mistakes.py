"""Mistakes in calls of MPI: misuse.c makes them, one by one or each under its own name."""

import re

FATAL = {
    "bad_rank": ("MPI_Send", "dest", "5"),
    "negative_rank": ("MPI_Send", "dest", "-77"),
    "bad_tag": ("MPI_Send", "tag", "-9"),
    "bad_count": ("MPI_Send", "count", "-4"),
    "null_type": ("MPI_Send", "datatype", "MPI_DATATYPE_NULL"),
    "not_committed": ("MPI_Send", "datatype", "commit"),
    "null_comm": ("MPI_Send", "comm", "MPI_COMM_NULL"),
    "null_buffer": ("MPI_Send", "buf"),
    "bad_root": ("MPI_Bcast", "root", "3"),
    "root_of_intercommunicators": ("MPI_Bcast", "root is -4 (MPI_ROOT, which is for"),
    "any_source_dest": ("MPI_Sendrecv_replace", "dest is -1 (MPI_ANY_SOURCE, which is for"),
    "null_pready": ("MPI_Pready", "request is MPI_REQUEST_NULL"),
    "truncated_matched": ("MPI_Mrecv", "40", "16"),
    "handler_of_windows": ("made for windows, and cannot be set on communicators",),
    "null_op": ("MPI_Allreduce", "op", "MPI_OP_NULL"),
    "op_for_type": ("MPI_Allreduce", "MPI_BXOR", "MPI_FLOAT"),
    "null_request": ("MPI_Start", "request"),
    "truncated": ("MPI_Recv", "40", "16"),
    "truncated_large": ("MPI_Recv", "400000", "1000"),
    "null_displs": ("MPI_Allgatherv", "displs is null"),
    "null_rdispls": ("MPI_Alltoallw", "rdispls is null"),
    "null_in_startall": ("MPI_Startall", "array_of_requests[1]", "MPI_REQUEST_NULL"),
    "active_in_startall": ("MPI_Startall", "array_of_requests[1]", "active already"),
    "predefined_keyval": ("MPI_Comm_set_attr", "keyval 501 is predefined"),
    "own_block": ("MPI_Waitall", "array_of_requests[1]", "MPI_Ialltoall", "16 bytes", "8 by"),
    "freed_comm": ("MPI_Barrier", "comm"),
    "put_without_epoch": ("MPI_Put on a window of 1 rank", "outside an access epoch"),
    "put_behind_window": ("displacement 8 (in units of 8 bytes)", "its window of 64 bytes"),
    "locked_twice": ("MPI_Win_lock of rank 0, which this process has locked already",),
    "freed_while_locked": ("MPI_Win_free with 1 rank locked, before MPI_Win_unlock",),
    "negative_coordinate": ("coords[0] is -1, but dimension 0 has 1 place and is not periodic",),
    "no_neighbours": ("MPI_Neighbor_allgather", "no topology, and so no neighbours"),
    "subarray_too_long": ("array_of_starts[0] is 2, but must be from 0 to 1",),
    "packed_too_long": ("outsize is 2 and position 0, but 4 bytes are needed",),
    "no_key": ('key is "colour", which is not in info',),
    "no_process_set": ('pset_name is "mpi://NOBODY", which is no process set',),
    "ready_twice": ("MPI_Pready", "partition 1 has been marked ready already"),
    "overlapping_groups": ("process 1 of the job is in both the local and the remote group",),
    "no_port": ('"nowhere" is no name that MPI_Open_port of Ferry has given',),
    "bad_color": ("MPI_Comm_split", "color", "-6"),
}


def mistakes(cases):
    for ranks in (1, 2, 3):
        cases.case(
            f"misuse returns its classes on {ranks}",
            cases.mpiexec("-n", ranks, cases.misuse),
            status=0,
            quiet=True,
        )
    for name, words in FATAL.items():
        result = cases.mpiexec("-n", 2, cases.misuse, name)
        cases.case(
            f"misuse {name} is fatal",
            result,
            status="bad",
            words=[r"rank 1\b", *map(re.escape, words)],
            without=["still alive"],
            within=3,
        )
    cases.case(
        "misuse under MPI_ERRORS_ABORT ends the job",
        cases.mpiexec("-n", 3, cases.misuse, "bad_rank", "abort"),
        status="bad",
        words=[r"rank 2\b", "MPI_Send", "dest"],
        without=["still alive"],
        within=3,
    )
