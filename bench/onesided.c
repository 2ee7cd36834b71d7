/* One-sided communication. The arguments name the parts to measure, in this order:
 *
 *   small      one operation of 8 bytes and a flush; 64 puts of 8 bytes and one flush
 *   bandwidth  32 puts or gets and one flush
 *   busy       one operation and a flush while the target computes and makes no MPI call
 *   shared     all ranks add to one counter, or lock one window; how evenly they get there
 *   sync       fence, and post/start/complete/wait, each with a put to the right neighbour
 *   make       making and freeing a window
 *   memory-allocated, memory-created
 *              what a window costs a rank; only the first of the two in a job is right, because
 *              libraries keep what they have once allocated
 *
 * Where two ranks are measured rank 0 is the origin and rank 1 the target, which waits in a
 * collective call unless the part says otherwise. */
#include "measure.h"

enum {
    REGION = 4194304,   /* bytes of a window for bandwidth */
    IN_FLIGHT = 32,     /* operations a flush, for bandwidth */
    SMALL_PUTS = 64,    /* puts a flush, for their rate */
    WINDOWS = 1000,     /* at once, for memory; a tenth where ranks share cores */
    CROWD = 8,          /* ranks from which they surely do */
    EARLY_PUTS = 200,   /* to find out what a flush means */
    BUSY_ROUNDS = 10,   /* computations of the target */
    BUSY_SAMPLES = 50,  /* operations during one of them, at most */
    SHARED_BUDGETS = 20 /* how many budgets all ranks work on one window */
};

static const double BUSY_SECONDS = 0.010; /* one computation of the target */

enum flavour { ALLOCATED, CREATED };
static const char *const flavours[] = {"allocated", "created"};

static MPI_Win win;
static char *memory, *origin;
static int target, bytes;
static int64_t one = 1, expected, before;

/* A window of `size` bytes a rank, whose pages are there. */
static void make(enum flavour flavour, MPI_Aint size)
{
    if (flavour == ALLOCATED) {
        MPI_Win_allocate(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
        memset(memory, 0, (size_t)size);
    } else {
        memory = buffer((size_t)size);
        memset(memory, 0, (size_t)size);
        MPI_Win_create(memory, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void unmake(enum flavour flavour)
{
    MPI_Win_free(&win);
    if (flavour == CREATED)
        free(memory);
}

/* "put_allocated" */
static const char *name(const char *figure, enum flavour flavour)
{
    static char text[96];
    snprintf(text, sizeof text, "%s_%s", figure, flavours[flavour]);
    return text;
}

/* The operations, none of them complete without a flush. */

static void put(void)
{
    MPI_Put(origin, 8, MPI_BYTE, target, 0, 8, MPI_BYTE, win);
}

static void get(void)
{
    MPI_Get(origin, 8, MPI_BYTE, target, 0, 8, MPI_BYTE, win);
}

static void accumulate(void)
{
    MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, win);
}

static void fetch_and_op(void)
{
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, win);
}

static void compare_and_swap(void)
{
    MPI_Compare_and_swap(&one, &expected, &before, MPI_INT64_T, target, 0, win);
}

static const struct {
    const char *figure;
    void (*start)(void);
} operations[] = {
    {"put", put},
    {"get", get},
    {"fetch_and_op", fetch_and_op},
    {"compare_and_swap", compare_and_swap},
    {"accumulate", accumulate},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };
static int operation;

static void one_and_flush(int times)
{
    if (rank == 0)
        for (int i = 0; i < times; i++) {
            operations[operation].start();
            MPI_Win_flush(target, win);
        }
}

static void many_puts(int times)
{
    if (rank == 0)
        for (int i = 0; i < times; i++) {
            for (int k = 0; k < SMALL_PUTS; k++)
                MPI_Put(origin, 8, MPI_BYTE, target, 8 * k, 8, MPI_BYTE, win);
            MPI_Win_flush(target, win);
        }
}

static void large_puts(int times)
{
    if (rank == 0)
        for (int i = 0; i < times; i++) {
            for (int k = 0; k < IN_FLIGHT; k++) {
                MPI_Aint at = (MPI_Aint)k * bytes % REGION;
                MPI_Put(origin + at, bytes, MPI_BYTE, target, at, bytes, MPI_BYTE, win);
            }
            MPI_Win_flush(target, win);
        }
}

static void large_gets(int times)
{
    if (rank == 0)
        for (int i = 0; i < times; i++) {
            for (int k = 0; k < IN_FLIGHT; k++) {
                MPI_Aint at = (MPI_Aint)k * bytes % REGION;
                MPI_Get(origin + at, bytes, MPI_BYTE, target, at, bytes, MPI_BYTE, win);
            }
            MPI_Win_flush(target, win);
        }
}

static void small(enum flavour flavour)
{
    make(flavour, 4096);
    MPI_Win_lock_all(0, win);
    for (operation = 0; operation < OPERATIONS; operation++)
        say(name(operations[operation].figure, flavour), 8, timed(one_and_flush) * 1e6);
    say(name("put_rate", flavour), 8, SMALL_PUTS / timed(many_puts) / 1e6);
    MPI_Win_unlock_all(win);
    unmake(flavour);
}

static void bandwidth(enum flavour flavour)
{
    make(flavour, REGION);
    MPI_Win_lock_all(0, win);
    for (bytes = 4096; bytes <= REGION && bytes <= most; bytes *= 4)
        say(name("put_bandwidth", flavour), bytes,
            (double)bytes * IN_FLIGHT / timed(large_puts) / 1e9);
    for (bytes = 4096; bytes <= REGION && bytes <= most; bytes *= 4)
        say(name("get_bandwidth", flavour), bytes,
            (double)bytes * IN_FLIGHT / timed(large_gets) / 1e9);
    MPI_Win_unlock_all(win);
    unmake(flavour);
}

static void compute(double until)
{
    volatile double sum = 0;
    while (now() < until)
        for (int i = 0; i < 100; i++)
            sum += i;
}

/* In per cent, how often a put and its flush are over before the target has the value. The standard
 * allows none (MPI 5.0, 12.5.4); a few are due to when the target looks. It looks in a loop and
 * gives its MPI the chance of progress. Needs one clock. */
static double early_flushes(void)
{
    static double over[EARLY_PUTS], seen[EARLY_PUTS];
    volatile int64_t *cell = (volatile int64_t *)memory;
    int early = 0, flag;
    take_turn();
    MPI_Win_lock_all(0, win);
    *cell = 0;
    MPI_Win_sync(win);
    for (int i = 0; i < EARLY_PUTS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            compute(now() + 100e-6); /* the target is there by then */
            *(int64_t *)origin = i + 1;
            put();
            MPI_Win_flush(target, win);
            over[i] = now();
        } else {
            while (*cell != i + 1)
                MPI_Iprobe(0, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            seen[i] = now();
        }
    }
    MPI_Win_unlock_all(win);
    if (rank == target)
        MPI_Send(seen, EARLY_PUTS, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    else if (rank == 0)
        MPI_Recv(seen, EARLY_PUTS, MPI_DOUBLE, target, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < EARLY_PUTS; i++)
        early += over[i] < seen[i];
    return 100.0 * early / EARLY_PUTS;
}

/* What is measured between hosts. Whose memory a window has makes no difference there. */
static void between_hosts(void)
{
    make(ALLOCATED, REGION);
    MPI_Win_lock_all(0, win);
    for (operation = 0; operation < OPERATIONS; operation++)
        say(name(operations[operation].figure, ALLOCATED), 8, timed(one_and_flush) * 1e6);
    say(name("put_rate", ALLOCATED), 8, SMALL_PUTS / timed(many_puts) / 1e6);
    bytes = 1048576;
    say(name("put_bandwidth", ALLOCATED), bytes,
        (double)bytes * IN_FLIGHT / timed(large_puts) / 1e9);
    say(name("get_bandwidth", ALLOCATED), bytes,
        (double)bytes * IN_FLIGHT / timed(large_gets) / 1e9);
    MPI_Win_unlock_all(win);
    if (one_clock())
        say("early_flushes", 8, early_flushes());
    unmake(ALLOCATED);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median, over all operations that begin while the target computes. The origin begins a tenth
 * of the computation later, when the target has surely left the barrier. An operation that waits
 * for the target lasts until the computation ends, and is the only one of its round. */
static void busy(enum flavour flavour)
{
    static double samples[BUSY_ROUNDS * BUSY_SAMPLES];
    make(flavour, 4096);
    MPI_Win_lock_all(0, win);
    for (operation = 0; operation < OPERATIONS; operation++) {
        char figure[64];
        int taken = 0;
        snprintf(figure, sizeof figure, "busy_%s", operations[operation].figure);
        take_turn();
        one_and_flush(10);
        for (int i = 0; i < BUSY_ROUNDS; i++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begun = now();
            if (rank == target)
                compute(begun + BUSY_SECONDS);
            else if (rank == 0) {
                compute(begun + BUSY_SECONDS * 0.1);
                for (int k = 0; k < BUSY_SAMPLES && now() < begun + BUSY_SECONDS * 0.8; k++) {
                    double start = now();
                    one_and_flush(1);
                    samples[taken++] = now() - start;
                    compute(now() + BUSY_SECONDS / 1000);
                }
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            qsort(samples, (size_t)taken, sizeof *samples, ascending);
        say(name(figure, flavour), 8, samples[taken / 2] * 1e6);
    }
    MPI_Win_unlock_all(win);
    unmake(flavour);
}

static void add(void)
{
    fetch_and_op();
    MPI_Win_flush(target, win);
}

static void lock_put_unlock(void)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    MPI_Put(origin, 8, MPI_BYTE, target, 8, 8, MPI_BYTE, win);
    MPI_Win_unlock(target, win);
}

/* All ranks repeat `action` for the same time. In millions a second for all together, then the
 * greatest share of a rank divided by the least. Returns how often it was done. */
static int64_t share(const char *figure, const char *evenness, void (*action)(void))
{
    int64_t count = 0, total, least, greatest;
    double latest, begun;
    take_turn();
    action();
    MPI_Barrier(MPI_COMM_WORLD);
    begun = now();
    MPI_Allreduce(&begun, &latest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    begun = now();
    do {
        action();
        count++;
    } while (now() < latest + SHARED_BUDGETS * budget);
    double took = together(begun);
    MPI_Allreduce(&count, &total, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&count, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&count, &greatest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    say(figure, 0, (double)total / took / 1e6);
    say(evenness, 0, (double)greatest / (double)least);
    return total + ranks;
}

static void shared(void)
{
    target = 0;
    make(ALLOCATED, 4096);
    MPI_Win_lock_all(0, win);
    int64_t added = share("counter", "counter_shares", add);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    if (rank == 0 && *(int64_t *)memory != added) {
        fprintf(stderr, "The counter is %lld after %lld additions of 1.\n",
                (long long)*(int64_t *)memory, (long long)added);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    share("lock", "lock_shares", lock_put_unlock);
    unmake(ALLOCATED);
    target = 1 % ranks;
}

static MPI_Group left, right;

static void fences(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Put(origin, 8, MPI_BYTE, (rank + 1) % ranks, 0, 8, MPI_BYTE, win);
        MPI_Win_fence(0, win);
    }
}

static void ring(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Win_post(left, 0, win);
        MPI_Win_start(right, 0, win);
        MPI_Put(origin, 8, MPI_BYTE, (rank + 1) % ranks, 0, 8, MPI_BYTE, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
    }
}

static void sync_calls(enum flavour flavour)
{
    MPI_Group all;
    int before_me = (rank + ranks - 1) % ranks, after_me = (rank + 1) % ranks;
    make(flavour, 4096);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &before_me, &left);
    MPI_Group_incl(all, 1, &after_me, &right);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    say(name("fence", flavour), 8, timed(fences) * 1e6);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    say(name("pscw", flavour), 8, timed(ring) * 1e6);
    MPI_Group_free(&left);
    MPI_Group_free(&right);
    MPI_Group_free(&all);
    unmake(flavour);
}

static void create_and_free(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Win_create(origin, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_free(&win);
    }
}

static void allocate_and_free(int times)
{
    for (int i = 0; i < times; i++) {
        MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
        MPI_Win_free(&win);
    }
}

static void make_and_free(void)
{
    say(name("make", ALLOCATED), 0, timed(allocate_and_free) * 1e6);
    say(name("make", CREATED), 0, timed(create_and_free) * 1e6);
}

/* This rank's proportional set size in KiB. */
static long set_size(void)
{
    long kilobytes = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %ld", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes;
}

/* Memory that a rank needs for a window of 64 bytes, in KiB: the mean of all ranks and of many
 * windows. The window's own memory is part of it where MPI allocates it. */
static void windows(enum flavour flavour)
{
    static MPI_Win all[WINDOWS];
    const int count = ranks < CROWD ? WINDOWS : WINDOWS / 10;
    long before_them, cost, sum;
    char *base;
    take_turn();
    create_and_free(1);
    allocate_and_free(1);
    MPI_Barrier(MPI_COMM_WORLD);
    before_them = set_size();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        if (flavour == ALLOCATED) {
            MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &all[i]);
            memset(base, 1, 64);
        } else
            MPI_Win_create(origin, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    cost = set_size() - before_them;
    MPI_Reduce(&cost, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    say(name("memory", flavour), 0, (double)sum / ranks / count);
    for (int i = 0; i < count; i++)
        MPI_Win_free(&all[i]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    origin = buffer(REGION);
    target = 1 % ranks;
    for (int i = 1; i < argc; i++) {
        const char *part = argv[i];
        if (strcmp(part, "hosts") == 0)
            between_hosts();
        else if (strcmp(part, "shared") == 0)
            shared();
        else if (strcmp(part, "make") == 0)
            make_and_free();
        else if (strcmp(part, "memory-allocated") == 0)
            windows(ALLOCATED);
        else if (strcmp(part, "memory-created") == 0)
            windows(CREATED);
        else
            for (enum flavour flavour = ALLOCATED; flavour <= CREATED; flavour++)
                if (strcmp(part, "small") == 0)
                    small(flavour);
                else if (strcmp(part, "bandwidth") == 0)
                    bandwidth(flavour);
                else if (strcmp(part, "busy") == 0)
                    busy(flavour);
                else if (strcmp(part, "sync") == 0)
                    sync_calls(flavour);
                else {
                    fprintf(stderr, "There is no part \"%s\".\n", part);
                    MPI_Abort(MPI_COMM_WORLD, 2);
                }
    }
    finish();
    return 0;
}
