/* Random operations of all ranks on all ranks, against a model in which one
 * after another happens. A program of rounds: what each rank does in each is
 * drawn from numbers that all ranks share, so each rank can do in the model
 * what all do. CHECK_SEED and an argument, the number of rounds, change it.
 *
 * The part of a rank is cut into blocks. In a round each block of each rank is
 * one of these: read by all; put to, once, by one rank; accumulated to by one
 * rank, which knows every result since its accumulates stay in order; or added
 * to by all. Then the order of different ranks never matters. */
#include "windows.h"

enum {
  BLOCKS = 20,
  BLOCK = 256,
  PART = BLOCKS * BLOCK,
  STEPS = 40,
  PENDING = 4 * STEPS,
  MOST = 64
};
enum { READ, PUT, OWN, SUM };
enum { FENCE, GROUPS, LOCKS, LOCK_ALL, SYNCS };

static const char *const sync_names[SYNCS] = {"fences", "groups", "locks",
                                              "lock_all"};

typedef struct {
  MPI_Datatype type;
  int size;
  char number;
  MPI_Op ops[8];
  int op_count;
} Kind;

enum { KINDS = 4 };
static Kind kinds[KINDS];

/* A result that is due when the epoch is over. */
typedef struct {
  unsigned char *got, *expected;
  int bytes, step;
  const char *what;
} Due;

static unsigned char *model; /* PART bytes of each rank */
static Due due[PENDING];
static int due_count, round_now;
static int uses[MOST][BLOCKS], owners[MOST][BLOCKS], taken[MOST][BLOCKS];

static void kinds_make(void) {
  kinds[0] = (Kind){
      MPI_INT64_T,
      8,
      'i',
      {MPI_SUM, MPI_MAX, MPI_BXOR, MPI_REPLACE, MPI_NO_OP, MPI_MIN, MPI_BOR},
      7};
  kinds[1] = (Kind){MPI_DOUBLE,
                    8,
                    'f',
                    {MPI_SUM, MPI_MAX, MPI_MIN, MPI_REPLACE, MPI_NO_OP},
                    5};
  kinds[2] = (Kind){
      MPI_INT32_T,
      4,
      'i',
      {MPI_SUM, MPI_MAX, MPI_BAND, MPI_REPLACE, MPI_NO_OP, MPI_LXOR, MPI_BXOR},
      7};
  kinds[3] =
      (Kind){MPI_UINT8_T, 1, 'i', {MPI_SUM, MPI_BXOR, MPI_MAX, MPI_REPLACE}, 4};
}

static unsigned char *in_model(int rank, int at) {
  return model + (size_t)rank * PART + at;
}

/* Room for a result, whose value the model has now. */
static Due *expect(const void *expected, int bytes, int step,
                   const char *what) {
  Due *d = &due[due_count++];
  d->got = malloc((size_t)bytes + 1);
  d->expected = malloc((size_t)bytes + 1);
  memset(d->got, 0xee, (size_t)bytes);
  memcpy(d->expected, expected, (size_t)bytes);
  d->bytes = bytes;
  d->step = step;
  d->what = what;
  return d;
}

static void results(const char *sync, int flavor) {
  for (int i = 0; i < due_count; i++) {
    if (memcmp(due[i].got, due[i].expected, (size_t)due[i].bytes) != 0)
      FAIL("round %d (%s, %s), step %d: %s of %d bytes is wrong; CHECK_SEED=%s",
           round_now, flavor_names[flavor], sync, due[i].step, due[i].what,
           due[i].bytes, getenv("CHECK_SEED") ? getenv("CHECK_SEED") : "");
    free(due[i].got);
    free(due[i].expected);
  }
  due_count = 0;
}

/* One step of one rank: in the model by all, and over the window by the rank
 * itself. */
static void step(const Window *w, Random *random, int origin, int number,
                 int passive, unsigned char *values, MPI_Request *requests,
                 int *request_count) {
  int target = random_below(random, world_size),
      block = random_below(random, BLOCKS);
  const Kind *kind = &kinds[block % KINDS];
  int per_block = BLOCK / kind->size, first = random_below(random, per_block);
  int count = 1 + random_below(random, per_block - first),
      choice = random_below(random, 100);
  int strided = random_below(random, 4) == 0,
      request = random_below(random, 3) == 0;
  MPI_Op op = kind->ops[random_below(random, kind->op_count)];
  uint64_t key = random_next(random);
  int use = uses[target][block], own = owners[target][block] == origin,
      mine = origin == world_rank;
  if (w->unit > kind->size) /* displacements are whole units */
    first -= first % (w->unit / kind->size);
  int at = block * BLOCK + first * kind->size, bytes = count * kind->size;
  unsigned char *there = in_model(target, at);
  MPI_Aint place_there = place(w, target, at);
  Element e = {"", kind->type, INTEGER, kind->size, kind->number,
               0,  kind->size, 0,       0};
  for (int i = 0; i < count; i++)
    number_store(values + i * kind->size, kind->number, kind->size,
                 pattern(key, (size_t)i) % 50);
  MPI_Request *r =
      passive && request && mine ? &requests[*request_count] : NULL;

  if (use == READ) {
    if (!mine)
      return;
    void *got = expect(there, bytes, number, "a get")->got;
    if (r)
      OK(MPI_Rget(got, bytes, MPI_BYTE, target, place_there, count, kind->type,
                  w->win, r));
    else
      OK(MPI_Get(got, count, kind->type, target, place_there, count, kind->type,
                 w->win));
  } else if (use == PUT) {
    if (!own || taken[target][block]++)
      return;
    if (strided && per_block - first >= 2) { /* every second element */
      count = (per_block - first) / 2;
      for (int i = 0; i < count; i++)
        memcpy(there + 2 * i * kind->size,
               values + i % bytes * kind->size % bytes, (size_t)kind->size);
    } else {
      strided = 0;
      memcpy(there, values, (size_t)bytes);
    }
    if (!mine)
      return;
    if (strided) {
      MPI_Datatype second;
      unsigned char *gathered = expect("", 0, number, "")->got;
      gathered = realloc(gathered, (size_t)(count * kind->size));
      due[due_count - 1].got = gathered;
      for (int i = 0; i < count; i++)
        memcpy(gathered + i * kind->size, there + 2 * i * kind->size,
               (size_t)kind->size);
      OK(MPI_Type_vector(count, 1, 2, kind->type, &second));
      OK(MPI_Type_commit(&second));
      OK(MPI_Put(gathered, count, kind->type, target, place_there, 1, second,
                 w->win));
      OK(MPI_Type_free(&second));
      return;
    }
    if (r)
      OK(MPI_Rput(values, count, kind->type, target, place_there, count,
                  kind->type, w->win, r));
    else
      OK(MPI_Put(values, count, kind->type, target, place_there, count,
                 kind->type, w->win));
  } else if (use == SUM) {
    accumulate_here(values, there, count, &e, MPI_SUM);
    if (!mine)
      return;
    if (r)
      OK(MPI_Raccumulate(values, count, kind->type, target, place_there, count,
                         kind->type, MPI_SUM, w->win, r));
    else
      OK(MPI_Accumulate(values, count, kind->type, target, place_there, count,
                        kind->type, MPI_SUM, w->win));
  } else {
    if (!own)
      return;
    int swap = choice >= 80 && kind->number == 'i',
        fetch = choice >= 60 && !swap;
    if (swap || fetch)
      count = 1, bytes = kind->size;
    if (swap) {
      unsigned char *compared =
          values + kind->size; /* there is room: values is a block */
      if (choice % 2)
        memcpy(compared, there, (size_t)bytes);
      else
        number_store(compared, kind->number, kind->size, 99);
      int same = memcmp(compared, there, (size_t)bytes) == 0;
      if (mine)
        OK(MPI_Compare_and_swap(
            values, compared,
            expect(there, bytes, number, "a swap's result")->got, kind->type,
            target, place_there, w->win));
      if (same)
        memcpy(there, values, (size_t)bytes);
      return;
    }
    int with_result = choice < 40 || fetch || op == MPI_NO_OP;
    void *got = mine && with_result
                    ? expect(there, bytes, number, "a fetched value")->got
                    : NULL;
    accumulate_here(values, there, count, &e, op);
    if (!mine)
      return;
    if (fetch)
      OK(MPI_Fetch_and_op(values, got, kind->type, target, place_there, op,
                          w->win));
    else if (!with_result)
      OK(MPI_Accumulate(values, count, kind->type, target, place_there, count,
                        kind->type, op, w->win));
    else if (r)
      OK(MPI_Rget_accumulate(values, count, kind->type, got, count, kind->type,
                             target, place_there, count, kind->type, op, w->win,
                             r));
    else
      OK(MPI_Get_accumulate(values, count, kind->type, got, count, kind->type,
                            target, place_there, count, kind->type, op,
                            w->win));
    if (!r || fetch || !with_result)
      r = NULL;
  }
  if (r)
    ++*request_count;
}

static void one_round(const Window *w, Random *shared) {
  int sync = random_below(shared, SYNCS),
      flushes = random_below(shared, 3) == 0;
  int exclusive = random_below(shared, 3) == 0;
  static unsigned char values[2][STEPS][2 * BLOCK]; /* of other ranks in the
                                                       model, and our own */
  MPI_Request requests[STEPS];
  MPI_Group all;
  for (int rank = 0; rank < world_size; rank++)
    for (int i = 0; i < BLOCKS; i++) {
      uses[rank][i] = random_below(shared, 4);
      owners[rank][i] = random_below(shared, world_size);
      taken[rank][i] = 0;
    }
  uint64_t seed = random_next(shared);
  OK(MPI_Win_get_group(w->win, &all));
  int rounds_of_locks = sync == LOCKS && exclusive;
  if (sync == FENCE) {
    OK(MPI_Win_fence(0, w->win));
  } else if (sync == GROUPS) {
    OK(MPI_Win_post(all, 0, w->win));
    OK(MPI_Win_start(all, 0, w->win));
  } else if (sync == LOCK_ALL) {
    OK(MPI_Win_lock_all(0, w->win));
  } else {
    for (int rank = 0; rank < world_size; rank++)
      OK(MPI_Win_lock(rounds_of_locks ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED,
                      rank, 0, w->win));
  }
  for (int origin = 0; origin < world_size; origin++) {
    Random random = {(seed + (uint64_t)origin * 0x9e3779b97f4a7c15u) | 1};
    int request_count = 0;
    for (int i = 0; i < STEPS; i++) {
      step(w, &random, origin, i, sync >= LOCKS,
           values[origin == world_rank][i], requests, &request_count);
      if (flushes && sync >= LOCKS && origin == world_rank && i % 8 == 7)
        OK(MPI_Win_flush_all(w->win));
    }
    OK(MPI_Waitall(request_count, requests, MPI_STATUSES_IGNORE));
  }
  if (sync == FENCE) {
    OK(MPI_Win_fence(0, w->win));
  } else if (sync == GROUPS) {
    OK(MPI_Win_complete(w->win));
    OK(MPI_Win_wait(w->win));
  } else if (sync == LOCK_ALL) {
    OK(MPI_Win_unlock_all(w->win));
  } else {
    for (int rank = 0; rank < world_size; rank++)
      OK(MPI_Win_unlock(rank, w->win));
  }
  OK(MPI_Group_free(&all));
  if (sync == FENCE)
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win));
  results(sync_names[sync], w->flavor);
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, w->win));
  unsigned char *should = in_model(world_rank, 0);
  for (int i = 0; i < PART; i++)
    if (w->base[i] != should[i]) {
      FAIL("round %d (%s, %s): byte %d of block %d (use %d, owner %d) is %d, "
           "should be %d; "
           "CHECK_SEED=%s",
           round_now, flavor_names[w->flavor], sync_names[sync], i % BLOCK,
           i / BLOCK, uses[world_rank][i / BLOCK],
           owners[world_rank][i / BLOCK], w->base[i], should[i],
           getenv("CHECK_SEED") ? getenv("CHECK_SEED") : "");
      break;
    }
  OK(MPI_Win_unlock(world_rank, w->win));
  OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Windows over the same memory as this one, of other displacement units: a
 * round uses one. */
static int windows_over(const Window *w, Window *more) {
  static const int units[] = {1, 4};
  int n = 0;
  for (; n < 2; n++) {
    more[n] = *w;
    more[n].flavor = CREATED;
    more[n].unit = units[n];
    OK(MPI_Win_create(w->base, PART, units[n], MPI_INFO_NULL, MPI_COMM_WORLD,
                      &more[n].win));
  }
  return n;
}

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  int rounds = argc > 1 ? atoi(argv[1]) : 200;
  Random shared = random_from(2027);
  kinds_make();
  model = malloc((size_t)world_size * PART);
  for (int flavor = 0; flavor < FLAVORS && world_size <= MOST; flavor++) {
    if (!has_flavor(flavor))
      continue;
    Window windows[3];
    windows[0] = window_make(flavor, MPI_COMM_WORLD, PART, 1, MPI_INFO_NULL);
    int n = 1 + windows_over(&windows[0], windows + 1);
    memset(model, 0, (size_t)world_size * PART);
    for (round_now = 0; round_now < rounds && !check_failures; round_now++)
      one_round(&windows[random_below(&shared, n)], &shared);
    while (--n > 0)
      OK(MPI_Win_free(&windows[n].win));
    window_free(&windows[0]);
  }
  free(model);
  return check_end();
}
