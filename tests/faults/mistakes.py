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
