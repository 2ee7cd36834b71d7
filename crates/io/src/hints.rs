//! The names of the hints that files take (MPI 5.0 §14.2.8, and those that ROMIO's users know).

/// Aggregators of a collective transfer.
pub const CB_NODES: &str = "cb_nodes";
/// Bytes that an aggregator reads or writes at a time.
pub const CB_BUFFER_SIZE: &str = "cb_buffer_size";
/// Two phases in collective reads.
pub const CB_READ: &str = "romio_cb_read";
/// Two phases in collective writes.
pub const CB_WRITE: &str = "romio_cb_write";
/// Data sieving in strided reads.
pub const DS_READ: &str = "romio_ds_read";
/// Data sieving in strided writes.
pub const DS_WRITE: &str = "romio_ds_write";
/// Bytes of a sieving read.
pub const READ_BUFFER: &str = "ind_rd_buffer_size";
/// Bytes of a sieving write.
pub const WRITE_BUFFER: &str = "ind_wr_buffer_size";
/// Two phases in collective reads and writes.
pub const COLLECTIVE_BUFFERING: &str = "collective_buffering";
/// Disks of a striped file system.
pub const STRIPING_FACTOR: &str = "striping_factor";
/// Bytes on each.
pub const STRIPING_UNIT: &str = "striping_unit";
/// Permissions of a file that is created.
pub const FILE_PERM: &str = "file_perm";

/// All hints, with what each says.
pub const ALL: &[(&str, &str)] = &[
    (
        CB_NODES,
        "aggregators of a collective transfer; 0: Ferry chooses",
    ),
    (
        CB_BUFFER_SIZE,
        "bytes that an aggregator reads or writes at a time",
    ),
    (
        CB_READ,
        "two phases in collective reads: automatic, enable, disable",
    ),
    (
        CB_WRITE,
        "two phases in collective writes: automatic, enable, disable",
    ),
    (COLLECTIVE_BUFFERING, "both of the above: true, false"),
    (
        DS_READ,
        "data sieving in strided reads: automatic, enable, disable",
    ),
    (
        DS_WRITE,
        "data sieving in strided writes: automatic, enable, disable",
    ),
    (READ_BUFFER, "bytes of a sieving read"),
    (WRITE_BUFFER, "bytes of a sieving write"),
    (
        STRIPING_FACTOR,
        "disks of a striped file system; only reported",
    ),
    (
        STRIPING_UNIT,
        "bytes on each: aggregators' ranges begin at its multiples",
    ),
    (FILE_PERM, "permissions of a file that is created, octal"),
];
