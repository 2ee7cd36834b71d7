/* Each system call on a file fails in turn, is short, or is interrupted (MPI 5.0 section 14.7): in
 * independent, collective, non-blocking and split access, by explicit offsets, by the shared
 * pointer and in order. Every rank that took part gets the class, and a text with path, place and
 * the system's words; nobody hangs; other bytes stand; and then the file works. */
// ranks: 1 2 4
// machines: no
// time: 180
// run: access
// run: whole
// run: ring-setup
// run: ring-submit
// run: ring-wait
#include "files.h"
#include "system_faults.h"

#include <sys/statfs.h>

enum { PIECE = 512, PIECES = 40, BYTES = PIECE * PIECES, TRIED_MAX = 3 };

static const char name[] = "file-" FAULTY;
static const struct fault none;

/* ---- one access ---- */

enum form {
    WRITE_AT, READ_AT, IWRITE_AT, IREAD_AT, WRITE_ALL, READ_ALL, IWRITE_ALL, IREAD_ALL,
    WRITE_SPLIT, READ_SPLIT, WRITE_SHARED, READ_SHARED, WRITE_ORDERED, READ_ORDERED,
    WRITE_ORDERED_SPLIT, READ_ORDERED_SPLIT, FORMS
};

static const char *const form_names[] = {
    "write_at", "read_at", "iwrite_at", "iread_at", "write_at_all", "read_at_all", "iwrite_at_all",
    "iread_at_all", "write_at_all_begin", "read_at_all_begin", "write_shared", "read_shared",
    "write_ordered", "read_ordered", "write_ordered_begin", "read_ordered_begin",
};

static int writes(enum form form) { return form % 2 == 0; }
static int by_pointer(enum form form) { return form >= WRITE_SHARED; }
static int is_joint(enum form form) { return form >= WRITE_ALL && form <= READ_SPLIT; }

static int access_file(enum form form, MPI_File fh, void *buf)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status *no = MPI_STATUS_IGNORE;
    int code = MPI_ERR_OTHER;
    switch (form) {
    case WRITE_AT: return MPI_File_write_at(fh, 0, buf, BYTES, MPI_BYTE, no);
    case READ_AT: return MPI_File_read_at(fh, 0, buf, BYTES, MPI_BYTE, no);
    case IWRITE_AT: code = MPI_File_iwrite_at(fh, 0, buf, BYTES, MPI_BYTE, &request); break;
    case IREAD_AT: code = MPI_File_iread_at(fh, 0, buf, BYTES, MPI_BYTE, &request); break;
    case WRITE_ALL: return MPI_File_write_at_all(fh, 0, buf, BYTES, MPI_BYTE, no);
    case READ_ALL: return MPI_File_read_at_all(fh, 0, buf, BYTES, MPI_BYTE, no);
    case IWRITE_ALL: code = MPI_File_iwrite_at_all(fh, 0, buf, BYTES, MPI_BYTE, &request); break;
    case IREAD_ALL: code = MPI_File_iread_at_all(fh, 0, buf, BYTES, MPI_BYTE, &request); break;
    case WRITE_SPLIT:
        code = MPI_File_write_at_all_begin(fh, 0, buf, BYTES, MPI_BYTE);
        return code ? code : MPI_File_write_at_all_end(fh, buf, no);
    case READ_SPLIT:
        code = MPI_File_read_at_all_begin(fh, 0, buf, BYTES, MPI_BYTE);
        return code ? code : MPI_File_read_at_all_end(fh, buf, no);
    case WRITE_SHARED: return MPI_File_write_shared(fh, buf, BYTES, MPI_BYTE, no);
    case READ_SHARED: return MPI_File_read_shared(fh, buf, BYTES, MPI_BYTE, no);
    case WRITE_ORDERED: return MPI_File_write_ordered(fh, buf, BYTES, MPI_BYTE, no);
    case READ_ORDERED: return MPI_File_read_ordered(fh, buf, BYTES, MPI_BYTE, no);
    case WRITE_ORDERED_SPLIT:
        code = MPI_File_write_ordered_begin(fh, buf, BYTES, MPI_BYTE);
        return code ? code : MPI_File_write_ordered_end(fh, buf, no);
    case READ_ORDERED_SPLIT:
        code = MPI_File_read_ordered_begin(fh, buf, BYTES, MPI_BYTE);
        return code ? code : MPI_File_read_ordered_end(fh, buf, no);
    default: break;
    }
    return code ? code : MPI_Wait(&request, no);
}

/* ---- ways of access ---- */

enum way { ONE_RUN, TWO_PHASES, SIEVING, RUN_BY_RUN, ATOMIC, WAYS };

static const char *const way_names[] = {"one run", "two phases", "sieving", "run by run", "atomic"};

/* Pieces of a view of all ranks, and one that belongs to nobody. */
static int stride(enum way way)
{
    return way == ONE_RUN || way == ATOMIC ? 1 : world_size + 1;
}

/* Where byte `i` of a rank lies. */
static long long place(enum way way, int rank, int i)
{
    if (stride(way) == 1)
        return (long long)BYTES * rank + i;
    return (long long)PIECE * ((long long)(i / PIECE) * stride(way) + rank) + i % PIECE;
}

static long long file_bytes(enum way way)
{
    return (long long)BYTES * (stride(way) == 1 ? world_size : stride(way)) + PIECE;
}

static MPI_File open_way(enum way way)
{
    static const char *const keys[] = {"romio_cb_write", "romio_cb_read", "romio_ds_write",
                                       "romio_ds_read",  "cb_nodes",      "cb_buffer_size"};
    const char *phases = way == TWO_PHASES ? "enable" : "disable";
    const char *sieves = way == SIEVING ? "enable" : "disable";
    const char *const values[] = {phases, phases, sieves, sieves, "2", "8192"};
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int i = 0; i < 6; i++)
        OK(MPI_Info_set(info, keys[i], values[i]));
    MPI_File fh = file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, info);
    OK(MPI_Info_free(&info));
    if (way == ATOMIC)
        OK(MPI_File_set_atomicity(fh, 1));
    return fh;
}

static void set_view(MPI_File fh, enum way way, enum form form)
{
    MPI_Datatype piece, tile;
    MPI_Offset begin = by_pointer(form) ? 0 : place(way, world_rank, 0);
    if (stride(way) == 1) {
        OK(MPI_File_set_view(fh, begin, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
        return;
    }
    OK(MPI_Type_contiguous(PIECE, MPI_BYTE, &piece));
    OK(MPI_Type_create_resized(piece, 0, PIECE * stride(way), &tile));
    OK(MPI_Type_commit(&tile));
    OK(MPI_File_set_view(fh, begin, MPI_BYTE, tile, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&piece));
    OK(MPI_Type_free(&tile));
}

static unsigned char byte_of(int rank, int i) { return (unsigned char)(rank * 57 + i / 7 + i + 1); }

/* ---- what is tried ---- */

struct reaction {
    int error;
    size_t bytes;
    int class; /* MPI_SUCCESS: the call is made again, or goes on */
};

static const struct reaction write_reactions[] = {
    {EIO, 0, MPI_ERR_IO},           {ENOSPC, 0, MPI_ERR_NO_SPACE}, {EDQUOT, 0, MPI_ERR_QUOTA},
    {EROFS, 0, MPI_ERR_READ_ONLY}, {EINTR, 0, MPI_SUCCESS},       {0, 100, MPI_SUCCESS},
    {0, 0, 0}};
static const struct reaction read_reactions[] = {{EIO, 0, MPI_ERR_IO},
                                                 {ESTALE, 0, MPI_ERR_IO},
                                                 {EINTR, 0, MPI_SUCCESS},
                                                 {0, 100, MPI_SUCCESS},
                                                 {0, 0, 0}};
/* How many bytes a rank reads collectively is then not known, and each reads by itself. */
static const struct reaction length_reactions[] = {
    {EIO, 0, MPI_SUCCESS}, {EINTR, 0, MPI_SUCCESS}, {0, 0, 0}};
static const struct reaction lock_reactions[] = {{EIO, 0, MPI_ERR_IO},
                                                 {ENOLCK, 0, MPI_ERR_UNSUPPORTED_OPERATION},
                                                 {EINTR, 0, MPI_SUCCESS},
                                                 {0, 0, 0}};

static const struct {
    enum fault_call call;
    const char *system;
    const struct reaction *reactions;
} tried[] = {{READ, "pread", read_reactions},
             {CACHED_READ, "pread", read_reactions},
             {WRITE, "pwrite", write_reactions},
             {FSTAT, "fstat", length_reactions},
             {LOCK, "lock", lock_reactions}};

/* An error has this class, and its text all that one needs. `call`: has a place, too. */
static void explained(int code, const struct reaction *r, const char *call, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "success";
    int length, class = -1;
    long long bytes = -1, offset = -1;
    OK(MPI_Error_class(code, &class));
    if (code)
        OK(MPI_Error_string(code, text, &length));
    CHECK(class == r->class, "%s, %s: class %d, should be %d: %s", what, strerror(r->error), class,
          r->class, text);
    if (class != r->class || class == MPI_SUCCESS)
        return;
    CHECK(strstr(text, name) && strstr(text, strerror(r->error)), "%s: [%s]", what, text);
    if (call) {
        const char *at = strstr(text, call);
        int found = at ? sscanf(at + strlen(call), " of %lld bytes at offset %lld", &bytes, &offset)
                       : 0;
        CHECK(found == 2 && bytes > 0 && offset >= 0, "%s: no place: [%s]", what, text);
    }
}

/* The file by the system: what was to be written is there, or may not be; all else stands. */
static void contents_are(enum way way, enum form form, int whole, const char *what)
{
    size_t length = (size_t)file_bytes(way);
    unsigned char *is = malloc(length + 1), *wanted = malloc(length);
    memset(wanted, '.', length);
    SAME(file_contents(name, is, length + 1, 0), length);
    long long wrong = -1, first = -1;
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < BYTES; i++)
            wanted[place(way, rank, i)] = byte_of(rank, i);
    for (size_t i = 0; i < length && wrong < 0; i++)
        if (is[i] != wanted[i]) {
            first = first < 0 ? (long long)i : first;
            if (whole || is[i] != '.')
                wrong = (long long)i;
        }
    /* By the shared pointer ranks come in any order. */
    if (form != WRITE_SHARED)
        CHECK(wrong < 0, "%s: byte %lld is %d, should be %d", what, wrong, is[wrong],
              wanted[wrong]);
    for (size_t i = length - PIECE; i < length; i++)
        CHECK(is[i] == '.', "%s: byte %zu of the end has changed", what, i);
    free(is);
    free(wanted);
}

/* Blocks until all ranks have come. On NFS, all hosts then see what each has written. */
static void see_all(MPI_File fh)
{
    struct statfs status;
    if (statfs(name, &status) == 0 && status.f_type == 0x6969)
        file_publish(fh);
    else
        OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* The file before an access: dots if it writes, otherwise all ranks' data. */
static void prepare(enum way way, enum form form, MPI_File fh)
{
    size_t length = (size_t)file_bytes(way);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0) {
        unsigned char *is = malloc(length);
        memset(is, '.', length);
        for (int rank = 0; rank < world_size && !writes(form); rank++)
            for (int i = 0; i < BYTES; i++)
                is[place(way, rank, i)] = byte_of(rank, i);
        int fd = open(name, O_WRONLY);
        CHECK(fd >= 0 && pwrite(fd, is, length, 0) == (ssize_t)length, "%s", strerror(errno));
        close(fd);
        free(is);
    }
    if (by_pointer(form))
        OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
    see_all(fh);
}

/* One access with a fault on rank `victim`, which may be nobody. Returns whether it met it. */
static int try(MPI_File fh, enum way way, enum form form, int victim, struct fault fault,
               const struct reaction *r, const char *system)
{
    static unsigned char buf[BYTES];
    char what[160];
    snprintf(what, sizeof what, "%s, %s, %s number %ld of rank %d", way_names[way],
             form_names[form], system, fault.first, victim);
    for (int i = 0; i < BYTES; i++)
        buf[i] = writes(form) ? byte_of(world_rank, i) : 0;
    prepare(way, form, fh);
    faults_arm(world_rank == victim ? fault : none, none);
    int code = access_file(form, fh, buf);
    int hit = faults_disarm() > 0;
    OK(MPI_Bcast(&hit, 1, MPI_INT, victim < 0 ? 0 : victim, MPI_COMM_WORLD));
    int fails = hit && r->class != MPI_SUCCESS;
    /* An aggregator's fault is that of all ranks. */
    int of_all = way == TWO_PHASES && is_joint(form) && world_size > 1;
    if (fails && (of_all || world_rank == victim))
        explained(code, r, system, what);
    else
        CHECK(code == MPI_SUCCESS, "%s on rank %d: code %d", what, world_rank, code);
    if (code == MPI_SUCCESS && !writes(form) && form != READ_SHARED)
        for (int i = 0; i < BYTES; i++)
            if (buf[i] != byte_of(world_rank, i)) {
                FAIL("%s: byte %d is %d, should be %d", what, i, buf[i], byte_of(world_rank, i));
                break;
            }
    see_all(fh);
    if (world_rank == 0)
        contents_are(way, form, writes(form) ? !fails : 1, what);
    return hit;
}

/* Each call that an access makes fails in each way. */
static void accesses(enum way way)
{
    int turn = 0, met = 0;
    MPI_File fh = open_way(way);
    for (enum form form = 0; form < FORMS; form++) {
        /* Views of the shared pointer are the same on all ranks. */
        if (by_pointer(form) && stride(way) != 1)
            continue;
        set_view(fh, way, form);
        try(fh, way, form, -1, none, write_reactions, "no call");
        long calls[FAULT_CALLS];
        memcpy(calls, faults.calls, sizeof calls);
        for (size_t t = 0; t < sizeof tried / sizeof tried[0]; t++) {
            int victim = turn++ % world_size;
            long count = calls[tried[t].call];
            OK(MPI_Bcast(&count, 1, MPI_LONG, victim, MPI_COMM_WORLD));
            for (long n = 0; n < count && n < TRIED_MAX; n++)
                for (const struct reaction *r = tried[t].reactions; r->error || r->bytes; r++) {
                    struct fault fault = {tried[t].call, n, 1, r->error, r->bytes};
                    met += try(fh, way, form, victim, fault, r, tried[t].system);
                }
        }
        try(fh, way, form, -1, none, write_reactions, "no call");
    }
    CHECK(met > 0, "%s: no fault was met", way_names[way]);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* ---- calls on the whole file ---- */

static const int whole_errors[][2] = {{EIO, MPI_ERR_IO},
                                      {ENOSPC, MPI_ERR_NO_SPACE},
                                      {EDQUOT, MPI_ERR_QUOTA},
                                      {EROFS, MPI_ERR_READ_ONLY},
                                      {EACCES, MPI_ERR_ACCESS},
                                      {EINTR, MPI_SUCCESS}};
enum { WHOLE_ERRORS = sizeof whole_errors / sizeof whole_errors[0] };

/* All ranks get what one rank met. */
static void of_all(int code, int victim, const struct reaction *r, const char *call)
{
    char what[80];
    int hits = (int)faults_disarm();
    snprintf(what, sizeof what, "%s on rank %d", call, victim);
    CHECK(world_rank != victim || hits > 0, "%s has not been met", what);
    explained(code, r, NULL, what);
}

static void opening(int victim, enum fault_call call, const struct reaction *r)
{
    int amode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    struct fault fault = {call, 0, 1, r->error, 0};
    MPI_File fh = MPI_FILE_NULL;
    faults_arm(world_rank == victim ? fault : none, none);
    int code = MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &fh);
    of_all(code, victim, r, call == OPEN ? "open" : "fstat");
    CHECK((fh == MPI_FILE_NULL) == (code != MPI_SUCCESS), "a file that is half open");
    if (fh != MPI_FILE_NULL)
        OK(MPI_File_close(&fh));
}

static void changing(MPI_File fh, enum fault_call call, const struct reaction *r)
{
    struct fault fault = {call, 0, 1, r->error, 0};
    int code = -1;
    faults_arm(world_rank == 0 ? fault : none, none);
    if (call == FTRUNCATE)
        code = MPI_File_set_size(fh, 1000);
    else if (call == FALLOCATE)
        code = MPI_File_preallocate(fh, 5000);
    else
        code = MPI_File_sync(fh);
    of_all(code, 0, r, call == FTRUNCATE ? "ftruncate" : call == FALLOCATE ? "fallocate" : "fsync");
    MPI_Offset size = -1;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_get_size(fh, &size));
    if (code && call != FSYNC)
        SAME(size, 2000);
    OK(MPI_File_set_size(fh, 2000));
}

static void whole_file(void)
{
    for (int e = 0; e < WHOLE_ERRORS; e++) {
        struct reaction r = {whole_errors[e][0], 0, whole_errors[e][1]};
        for (int victim = 0; victim < world_size; victim++) {
            opening(victim, OPEN, &r);
            if (r.error != EINTR) /* fstat(2) waits for nothing */
                opening(victim, FSTAT, &r);
        }
        MPI_File fh = file_create(name);
        OK(MPI_File_set_size(fh, 2000));
        changing(fh, FTRUNCATE, &r);
        changing(fh, FALLOCATE, &r);
        changing(fh, FSYNC, &r);
        MPI_Offset size = -1;
        faults_arm((struct fault){FSTAT, 0, 1, r.error, 0}, none);
        int code = MPI_File_get_size(fh, &size);
        faults_disarm();
        explained(code, &r, NULL, "get_size");
        OK(MPI_File_close(&fh));
        /* A file that cannot be deleted when it is closed, and by itself. */
        if (r.error == EINTR) /* unlink(2) waits for nothing */
            continue;
        struct fault fault = {UNLINK, 0, 1, r.error, 0};
        fh = file_open(name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL);
        faults_arm(world_rank == 0 ? fault : none, none);
        code = MPI_File_close(&fh);
        of_all(code, 0, &r, "unlink");
        faults_arm(fault, none);
        code = MPI_File_delete(name, MPI_INFO_NULL);
        faults_disarm();
        explained(code, &r, NULL, "delete");
    }
    /* A file system without fallocate(2): zeros are written, and those can fail, too. */
    MPI_File fh = file_create(name);
    struct fault refused = {FALLOCATE, 0, 1, EOPNOTSUPP, 0};
    struct reaction full = {ENOSPC, 0, MPI_ERR_NO_SPACE};
    OK(MPI_File_set_size(fh, 10));
    faults_arm(world_rank ? none : (struct fault){WRITE, 0, 1, ENOSPC, 0}, refused);
    of_all(MPI_File_preallocate(fh, 5000), 0, &full, "zeros");
    faults_arm(world_rank ? none : (struct fault){WRITE, 0, 1, 0, 100}, refused);
    of_all(MPI_File_preallocate(fh, 5000), 0, &(struct reaction){0, 0, MPI_SUCCESS}, "zeros");
    MPI_Offset size = -1;
    OK(MPI_File_get_size(fh, &size));
    SAME(size, 5000);
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* ---- io_uring ---- */

/* Reads in the background that have to wait for the device. Faults of io_uring itself are not
 * theirs: the library finds another way. */
static void ring_refused(enum fault_call call, int error)
{
    static const int passing[] = {EINTR, EAGAIN, EBUSY};
    struct fault uncached = {CACHED_READ, 0, 1 << 30, EAGAIN, 0};
    MPI_File fh = open_way(ONE_RUN);
    set_view(fh, ONE_RUN, READ_AT);
    prepare(ONE_RUN, READ_AT, fh);
    for (int turn = 0; turn < 12; turn++) {
        static unsigned char buf[BYTES];
        struct fault fault = {call, turn % 3, turn < 9 ? 1 : 1 << 30, error, 0};
        if (turn < 9 && call != RING_SETUP)
            fault.error = passing[turn % 3];
        memset(buf, 0, BYTES);
        faults_arm(fault, uncached);
        MPI_Request requests[PIECES];
        for (int i = 0; i < PIECES; i++)
            OK(MPI_File_iread_at(fh, i * PIECE, buf + i * PIECE, PIECE, MPI_BYTE, &requests[i]));
        OK(MPI_Waitall(PIECES, requests, MPI_STATUSES_IGNORE));
        faults_disarm();
        for (int i = 0; i < BYTES; i++)
            if (buf[i] != byte_of(world_rank, i)) {
                FAIL("turn %d: byte %d is %d, should be %d", turn, i, buf[i],
                     byte_of(world_rank, i));
                break;
            }
    }
    OK(MPI_File_close(&fh));
    file_remove(name);
}

/* A descriptor that can no longer be read: io_uring's own error comes to the request. */
static void ring_reads(void)
{
    struct fault uncached = {CACHED_READ, 0, 1 << 30, EAGAIN, 0};
    MPI_File fh = MPI_FILE_NULL;
    file_make(name, form_names, 100);
    faults_arm((struct fault){OPEN, 0, 1, 0, 0}, none);
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL, &fh));
    CHECK(faults_disarm() > 0, "the file is not opened");
    faults_arm(uncached, none);
    char buf[100];
    MPI_Request request;
    OK(MPI_File_iread_at(fh, 0, buf, 100, MPI_BYTE, &request));
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    faults_disarm();
    explained(code, &(struct reaction){EBADF, 0, MPI_ERR_IO}, "pread", "iread");
    OK(MPI_File_close(&fh));
    file_remove(name);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    faults_begin();
    check_begin(&argc, &argv);
    if (strcmp(what, "access") == 0)
        for (enum way way = 0; way < WAYS; way++)
            accesses(way);
    else if (strcmp(what, "whole") == 0)
        whole_file();
    else if (strcmp(what, "ring-setup") == 0)
        ring_refused(RING_SETUP, EPERM);
    else if (strcmp(what, "ring-submit") == 0)
        ring_reads(), ring_refused(RING_SUBMIT, EIO);
    else if (strcmp(what, "ring-wait") == 0)
        ring_refused(RING_WAIT, EIO);
    else
        FAIL("no such part: [%s]", what);
    return check_end();
}
