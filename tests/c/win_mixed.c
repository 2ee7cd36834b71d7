/* Random operations of all ranks on all ranks against a sequential model, as in win_random, with
 * what that leaves out: every predefined type and operation, derived types on both sides (backward,
 * permuted, with gaps, with negative displacements), the forms with requests and with large counts,
 * requests that are completed in any order, groups that leave pairs out, assertions, no elements at
 * all, parts of different lengths and of none, several windows over one memory in the same epoch,
 * and threads that each play a game of their own at the same time.
 *
 * Arguments: rounds for each flavor, threads. CHECK_SEED changes the game. */
// run: 4 1
// run: 2 3
// ranks: 2 4
#include "windows.h"

#include <pthread.h>

enum { BLOCKS = 16, STEPS = 24, PERMUTED = 24, RANKS = 16, THREADS = 4 };
enum { OVER = 2, WINDOWS = 1 + OVER, PART_MAX = 200000 };
enum { READ, PUT, OWN, ALL };
enum { FENCE, GROUPS, LOCKS, ONE_BY_ONE, LOCK_ALL, SYNCS };
static const char *const sync_names[SYNCS] = {"fences", "groups", "locks", "a lock each",
                                              "lock_all"};
static const int block_bytes[8] = {64, 512, 512, 512, 1536, 1536, 9216, 73728};

/* Which elements of an array, in which order, and the type that says so. */
typedef struct {
    int n, first, step, permuted[PERMUTED];
    MPI_Aint base; /* where the type begins, bytes */
    MPI_Datatype type;
    int count, own; /* own: the type is freed */
} Layout;

/* What a rank has begun: where its operands and results are, and what they should be. */
typedef struct {
    unsigned char *out, *got, *should;
    size_t out_bytes;
    Layout at; /* of the result */
    const Element *e;
    int target, open, step;
    const char *what;
    MPI_Request request;
} Begun;

typedef struct {
    Random random;
    MPI_Comm comm;
    Window w[WINDOWS];
    int rounds, round, sync, flavor, thread, begun_count;
    unsigned char *model;
    int blocks[RANKS]; /* each rank has as many of the blocks */
    const Element *kind[BLOCKS];
    int start[BLOCKS + 1];
    int uses[RANKS][BLOCKS], owner[RANKS][BLOCKS], taken[RANKS][BLOCKS], op[RANKS][BLOCKS];
    char reaches[RANKS][RANKS];
    Begun begun[STEPS];
} Game;

static unsigned char *model_at(Game *g, int rank, int offset)
{
    return g->model + (size_t)rank * PART_MAX + offset;
}

static int index_of(const Layout *l, int i)
{
    return l->step ? l->first + i * l->step : l->permuted[i];
}

/* A layout of n elements among `room` of them; offsets of its beginning are multiples of `unit`. */
static Layout layout_make(Random *r, const Element *e, int room, int n, MPI_Aint origin, int unit)
{
    Layout l = {.n = n, .step = 1, .count = n, .type = e->type};
    int kind = random_below(r, 6), most = n > 1 ? (room - 1) / (n - 1) : 1;
    if (most > 3)
        most = 3;
    int step = 1 + random_below(r, most > 0 ? most : 1), span = n > 0 ? (n - 1) * step + 1 : 1;
    l.first = random_below(r, room - (span < room ? span : room) + 1);
    if (kind == 0 || n == 0) {
        l.first = random_below(r, room - n + 1);
    } else if (kind == 1) {
        l.step = step, l.count = 1, l.own = 1;
        OK(MPI_Type_vector(n, 1, step, e->type, &l.type));
    } else if (kind == 2) { /* backwards: displacements below 0 */
        l.step = -step, l.count = 1, l.own = 1, l.first += span - 1;
        OK(MPI_Type_create_hvector_c(n, 1, -(MPI_Count)step * e->size, e->type, &l.type));
    } else if (kind == 3) {
        l.step = step, l.own = 1;
        OK(MPI_Type_create_resized(e->type, 0, (MPI_Aint)step * e->size, &l.type));
    } else if (kind == 4) {
        l.count = 1, l.own = 1, l.first = random_below(r, room - n + 1);
        OK(MPI_Type_contiguous(n, e->type, &l.type));
    }
    l.base = (MPI_Aint)l.first * e->size;
    int fits = (origin + l.base) % unit == 0;
    if ((kind == 5 && n > 0 && n <= PERMUTED) || !fits) {
        MPI_Aint at[PERMUTED];
        if (l.own)
            OK(MPI_Type_free(&l.type));
        if (n > PERMUTED)
            n = PERMUTED;
        l.n = n, l.step = 0, l.count = 1, l.own = 1;
        for (int i = 0; i < n; i++) /* neighbours, in any order */
            l.permuted[i] = i ? (l.permuted[i - 1] + 1) % room : random_below(r, room);
        for (int i = n - 1; i > 0; i--) {
            int j = random_below(r, i + 1), kept = l.permuted[i];
            l.permuted[i] = l.permuted[j], l.permuted[j] = kept;
        }
        MPI_Aint base = origin + (MPI_Aint)random_below(r, room) * e->size;
        base -= base % unit;
        l.base = base - origin;
        for (int i = 0; i < n; i++)
            at[i] = (MPI_Aint)l.permuted[i] * e->size - l.base;
        OK(MPI_Type_create_hindexed_block(n, 1, at, e->type, &l.type));
    }
    if (l.own)
        OK(MPI_Type_commit(&l.type));
    return l;
}

static void layout_free(Layout *l)
{
    if (l->own)
        OK(MPI_Type_free(&l->type));
}

/* A value that keeps floating-point results exact, for this operation. */
static void value_store(Random *r, const Element *e, void *at, MPI_Op op)
{
    int value = random_below(r, 9) - 4, second = random_below(r, 5) - 2;
    if (op == MPI_PROD && (e->use == FLOATING || e->use == COMPLEX))
        value = random_below(r, 2) ? 1 : -1, second = 0;
    element_store(e, at, value, second);
}

static int same_number(char number, int bytes, const void *a, const void *b)
{
    long double x = 0, y = 0;
    float f[2];
    double d[2];
    if (number != 'f')
        return memcmp(a, b, (size_t)bytes) == 0;
    if (bytes == 4) {
        memcpy(&f[0], a, 4), memcpy(&f[1], b, 4);
        x = f[0], y = f[1];
    } else if (bytes == 8) {
        memcpy(&d[0], a, 8), memcpy(&d[1], b, 8);
        x = d[0], y = d[1];
    } else {
        memcpy(&x, a, (size_t)bytes), memcpy(&y, b, (size_t)bytes);
    }
    return x == y; /* 0 and -0 are the same here: their order in MPI_MAX is open */
}

static int same_value(const Element *e, const unsigned char *a, const unsigned char *b)
{
    return same_number(e->number, e->first_bytes, a, b) &&
           (!e->second ||
            same_number(e->second, e->second_bytes, a + e->second_at, b + e->second_at));
}

static void hex(const unsigned char *bytes, int n, char *text)
{
    for (int i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Which game it is, and what was going on. */
static const char *game_text(const Game *g)
{
    static _Thread_local char text[200];
    const char *seed = getenv("CHECK_SEED");
    snprintf(text, sizeof text, "CHECK_SEED=%s thread %d round %d (%s, %s)", seed ? seed : "",
             g->thread, g->round, flavor_names[g->flavor], sync_names[g->sync]);
    return text;
}

static void finish(Game *g, Begun *b)
{
    if (!b->open)
        return;
    b->open = 0;
    for (int i = 0; b->got && i < b->at.n; i++) {
        const unsigned char *is = b->got + (size_t)index_of(&b->at, i) * (size_t)b->e->size;
        if (!same_value(b->e, is, b->should + (size_t)i * (size_t)b->e->size)) {
            char is_text[2 * 32 + 1], should_text[2 * 32 + 1];
            hex(is, b->e->size, is_text);
            hex(b->should + (size_t)i * (size_t)b->e->size, b->e->size, should_text);
            FAIL("%s, step %d: %s of %d %s from rank %d: element %d is %s, should be %s",
                 game_text(g), b->step, b->what, b->at.n, b->e->name, b->target, i, is_text,
                 should_text);
            break;
        }
    }
    /* The program may use its buffers again. */
    memset(b->out, 0x77, b->out_bytes);
}

static void finish_all(Game *g, int target)
{
    for (int i = 0; i < g->begun_count; i++)
        if (target < 0 || g->begun[i].target == target)
            finish(g, &g->begun[i]);
}

/* Completes some of the requests, in any order. Returns how many are left. */
static int some_requests(Game *g, Random *r, int how)
{
    MPI_Request open[STEPS];
    int which[STEPS], indices[STEPS], n = 0, done = 0, flag = 0;
    for (int i = 0; i < g->begun_count; i++)
        if (g->begun[i].request != MPI_REQUEST_NULL)
            which[n] = i, open[n++] = g->begun[i].request;
    for (int i = n - 1; i > 0; i--) {
        int j = random_below(r, i + 1), k = which[i];
        MPI_Request kept = open[i];
        which[i] = which[j], open[i] = open[j], which[j] = k, open[j] = kept;
    }
    if (n == 0)
        return 0;
    if (how == 0) {
        OK(MPI_Waitall(n, open, MPI_STATUSES_IGNORE));
        for (; done < n; done++)
            indices[done] = done;
    } else if (how == 1) {
        OK(MPI_Testsome(n, open, &done, indices, MPI_STATUSES_IGNORE));
    } else if (how == 2) {
        OK(MPI_Waitany(n, open, &indices[0], MPI_STATUS_IGNORE));
        done = 1;
    } else {
        OK(MPI_Test(&open[0], &flag, MPI_STATUS_IGNORE));
        indices[0] = 0, done = flag;
    }
    for (int i = 0; i < done; i++) {
        Begun *b = &g->begun[which[indices[i]]];
        b->request = MPI_REQUEST_NULL;
        finish(g, b);
    }
    return n - done;
}

static void all_requests(Game *g, Random *r)
{
    int how = random_below(r, 4);
    while (some_requests(g, r, how))
        ;
}

/* Both sides of an operation: memory here, a window and a displacement there. */
typedef struct {
    void *at;
    const Layout *here, *there;
    int target;
    MPI_Aint disp;
    MPI_Win win;
} Sides;

#define HERE s->at, s->here->count, s->here->type
#define THERE s->target, s->disp, s->there->count, s->there->type

static void put_or_get(Random *r, int way, const Sides *s, MPI_Request *request)
{
    int large = random_below(r, 2);
    if (way == PUT && request)
        OK(large ? MPI_Rput_c(HERE, THERE, s->win, request)
                 : MPI_Rput(HERE, THERE, s->win, request));
    else if (way == PUT)
        OK(large ? MPI_Put_c(HERE, THERE, s->win) : MPI_Put(HERE, THERE, s->win));
    else if (request)
        OK(large ? MPI_Rget_c(HERE, THERE, s->win, request)
                 : MPI_Rget(HERE, THERE, s->win, request));
    else
        OK(large ? MPI_Get_c(HERE, THERE, s->win) : MPI_Get(HERE, THERE, s->win));
}

static void accumulate(Random *r, const Sides *s, void *result, const Layout *got, MPI_Op op,
                       MPI_Request *request)
{
    int large = random_below(r, 2), reads = op != MPI_NO_OP || random_below(r, 2);
    void *at = reads ? s->at : NULL;
    int n = reads ? s->here->count : 0;
    MPI_Datatype type = reads ? s->here->type : MPI_BYTE;
#define ORIGIN at, n, type
#define RESULT result, got->count, got->type
    if (!result && request)
        OK(large ? MPI_Raccumulate_c(ORIGIN, THERE, op, s->win, request)
                 : MPI_Raccumulate(ORIGIN, THERE, op, s->win, request));
    else if (!result)
        OK(large ? MPI_Accumulate_c(ORIGIN, THERE, op, s->win)
                 : MPI_Accumulate(ORIGIN, THERE, op, s->win));
    else if (request)
        OK(large ? MPI_Rget_accumulate_c(ORIGIN, RESULT, THERE, op, s->win, request)
                 : MPI_Rget_accumulate(ORIGIN, RESULT, THERE, op, s->win, request));
    else
        OK(large ? MPI_Get_accumulate_c(ORIGIN, RESULT, THERE, op, s->win)
                 : MPI_Get_accumulate(ORIGIN, RESULT, THERE, op, s->win));
}

/* One step of one rank: in the model by all, over the window by the rank itself. */
static void step(Game *g, Random *shared, int origin, int number, int only)
{
    Random own = {random_next(shared) | 1}, *r = &own;
    int target = only >= 0 ? only : random_below(r, world_size), block = random_below(r, BLOCKS);
    const Window *w = &g->w[block % WINDOWS];
    int mine = origin == world_rank, passive = g->sync >= LOCKS, use = g->uses[target][block];
    if (block >= g->blocks[target] || (g->sync == GROUPS && !g->reaches[origin][target]))
        return;
    const Element *e = g->kind[block];
    const size_t size = (size_t)e->size;
    int room = (g->start[block + 1] - g->start[block]) / e->size;
    int n = random_below(r, 8) ? 1 + random_size(r, room - 1) : random_below(r, 8) / 7;
    if (random_below(r, 12) == 0)
        n = 0;
    int choice = random_below(r, 100), op_number;
    do
        op_number = random_below(r, OPERATIONS);
    while (!(operations[op_number].uses & 1u << e->use));
    MPI_Op op = use == ALL ? operations[g->op[target][block]].op : operations[op_number].op;
    int one = use == OWN && choice >= 60;
    if (one)
        n = 1;
    int wants_result = use == OWN && (choice < 40 || op == MPI_NO_OP);
    if ((use == PUT && g->taken[target][block]++) ||
        ((use == OWN || use == PUT) && g->owner[target][block] != origin))
        return;
    Layout t = layout_make(r, e, room, n, g->start[block], w->unit);
    n = t.n;
    Layout o = layout_make(r, e, room, n, 0, 1), s = layout_make(r, e, room, n, 0, 1);
    if (o.n < n || s.n < n || (one && t.own)) {
        layout_free(&t), layout_free(&o), layout_free(&s);
        return;
    }
    unsigned char *there = model_at(g, target, g->start[block]);
    unsigned char *out = calloc((size_t)room + 2, size), *got = calloc((size_t)room + 1, size);
    unsigned char *should = calloc((size_t)n + 1, size), *values = calloc((size_t)n + 2, size);
    for (int i = 0; i < n; i++) {
        value_store(r, e, values + (size_t)i * size, op);
        memcpy(out + (size_t)index_of(&o, i) * size, values + (size_t)i * size, size);
        memcpy(should + (size_t)i * size, there + (size_t)index_of(&t, i) * size, size);
    }
    memset(got, 0xee, ((size_t)room + 1) * size);
    int swaps = one && choice >= 85 &&
                (e->use == INTEGER || e->use == LOGICAL || e->use == COUNTS || e->use == BITWISE);
    if (swaps && choice % 2)
        memcpy(values + size, should, size);
    else if (swaps)
        element_store(e, values + size, 1, 0);
    /* In the model. */
    for (int i = 0; i < n && use != READ; i++) {
        unsigned char *to = there + (size_t)index_of(&t, i) * size;
        if (use == PUT || (swaps && memcmp(to, values + size, size) == 0))
            memcpy(to, values + (size_t)i * size, size);
        else if (!swaps)
            accumulate_here(values + (size_t)i * size, to, 1, e, op);
    }
    if (mine) {
        Begun *b = &g->begun[g->begun_count++];
        *b = (Begun){.out = out, .should = should, .out_bytes = ((size_t)room + 2) * size, .at = s,
                     .e = e, .target = target, .open = 1, .step = number,
                     .request = MPI_REQUEST_NULL};
        MPI_Request *q = passive && random_below(r, 2) ? &b->request : NULL;
        MPI_Aint disp = place(w, target, g->start[block] + t.base);
        Sides out_of = {out + o.base, &o, &t, target, disp, w->win};
        Sides in_to = {got + s.base, &s, &t, target, disp, w->win};
        b->got = got;
        if (use == READ) {
            b->what = "a get";
            put_or_get(r, READ, &in_to, q);
        } else if (use == PUT) {
            b->got = NULL;
            put_or_get(r, PUT, &out_of, q);
        } else if (one) {
            b->what = swaps ? "a swap" : "a fetch_and_op", b->at = (Layout){.n = 1, .step = 1};
            memcpy(out, values, 2 * size);
            if (swaps)
                OK(MPI_Compare_and_swap(out, out + size, got, e->type, target, disp, w->win));
            else
                OK(MPI_Fetch_and_op(out, got, e->type, target, disp, op, w->win));
        } else {
            b->what = "a get_accumulate";
            if (!wants_result)
                b->got = NULL;
            accumulate(r, &out_of, wants_result ? in_to.at : NULL, &s, op, q);
        }
        if (!b->got)
            free(got);
    } else {
        free(out), free(got), free(should);
    }
    free(values);
    layout_free(&t), layout_free(&o), layout_free(&s);
}

/* What may come between operations of a passive-target epoch. */
static void between(Game *g, Random *r)
{
    int how = random_below(r, 10), target = random_below(r, world_size);
    for (int i = 0; i < WINDOWS && how < 4; i++) {
        if (how == 0)
            OK(MPI_Win_flush(target, g->w[i].win));
        else if (how == 1)
            OK(MPI_Win_flush_local(target, g->w[i].win));
        else if (how == 2)
            OK(MPI_Win_flush_all(g->w[i].win));
        else
            OK(MPI_Win_flush_local_all(g->w[i].win));
    }
    if (how < 4)
        finish_all(g, how < 2 ? target : -1);
    else if (how < 7) /* not all at once */
        some_requests(g, r, how - 3);
}

static void open_epoch(Game *g, Random *shared, MPI_Group from, MPI_Group to, int kind)
{
    for (int i = 0; i < WINDOWS; i++) {
        MPI_Win win = g->w[i].win;
        if (g->sync == FENCE)
            OK(MPI_Win_fence(random_below(shared, 2) ? MPI_MODE_NOPRECEDE : 0, win));
        else if (g->sync == GROUPS)
            OK(MPI_Win_post(from, kind ? MPI_MODE_NOCHECK : 0, win));
        else if (g->sync == LOCK_ALL)
            OK(MPI_Win_lock_all(kind ? MPI_MODE_NOCHECK : 0, win));
        for (int rank = 0; g->sync == LOCKS && rank < world_size; rank++)
            OK(MPI_Win_lock(kind ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, rank, 0, win));
    }
    if (g->sync == GROUPS && kind)
        OK(MPI_Barrier(g->comm));
    for (int i = 0; g->sync == GROUPS && i < WINDOWS; i++)
        OK(MPI_Win_start(to, kind ? MPI_MODE_NOCHECK : 0, g->w[i].win));
}

static void close_epoch(Game *g, Random *mine)
{
    for (int i = 0; i < WINDOWS; i++) {
        MPI_Win win = g->w[i].win;
        if (g->sync == FENCE)
            OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        else if (g->sync == GROUPS)
            OK(MPI_Win_complete(win));
        else if (g->sync == LOCK_ALL)
            OK(MPI_Win_unlock_all(win));
        for (int rank = 0; g->sync == LOCKS && rank < world_size; rank++)
            OK(MPI_Win_unlock(rank, win));
    }
    for (int i = 0; g->sync == GROUPS && i < WINDOWS; i++) {
        int flag = 0;
        if (random_below(mine, 2))
            OK(MPI_Win_wait(g->w[i].win));
        else
            while (!flag)
                OK(MPI_Win_test(g->w[i].win, &flag));
    }
}

static void compare(Game *g)
{
    OK(MPI_Win_lock(MPI_LOCK_SHARED, world_rank, 0, g->w[0].win));
    for (int block = 0; block < g->blocks[world_rank]; block++) {
        const Element *e = g->kind[block];
        const unsigned char *is = g->w[0].base + g->start[block];
        const unsigned char *should = model_at(g, world_rank, g->start[block]);
        for (int at = 0; at < g->start[block + 1] - g->start[block]; at += e->size)
            if (!same_value(e, is + at, should + at)) {
                char is_text[2 * 32 + 1], should_text[2 * 32 + 1];
                hex(is + at, e->size, is_text);
                hex(should + at, e->size, should_text);
                FAIL("%s: element %d of block %d (%s, use %d, owner %d, %s) is %s, should be %s",
                     game_text(g), at / e->size, block, e->name, g->uses[world_rank][block],
                     g->owner[world_rank][block], operations[g->op[world_rank][block]].name,
                     is_text, should_text);
                break;
            }
    }
    OK(MPI_Win_unlock(world_rank, g->w[0].win));
}

static void play_round(Game *g)
{
    Random *shared = &g->random, mine = {(random_next(shared) + (uint64_t)world_rank * 77773) | 1};
    int kind = random_below(shared, 2), from_ranks[RANKS], to_ranks[RANKS], froms = 0, tos = 0;
    g->sync = random_below(shared, SYNCS);
    g->begun_count = 0;
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < BLOCKS; i++) {
            g->uses[rank][i] = random_below(shared, 4);
            g->owner[rank][i] = random_below(shared, world_size);
            g->taken[rank][i] = 0;
            do /* of all ranks at once: in any order the same */
                g->op[rank][i] = random_below(shared, OPERATIONS - 2);
            while (g->kind[i]->use != CHARACTER &&
                   !(operations[g->op[rank][i]].uses & 1u << g->kind[i]->use));
            if (g->kind[i]->use == CHARACTER && g->uses[rank][i] == ALL)
                g->uses[rank][i] = READ;
        }
    for (int a = 0; a < world_size; a++)
        for (int b = 0; b < world_size; b++) {
            g->reaches[a][b] = (char)random_below(shared, 2);
            if (g->reaches[a][b] && a == world_rank)
                to_ranks[tos++] = b;
            if (g->reaches[a][b] && b == world_rank)
                from_ranks[froms++] = a;
        }
    MPI_Group all, from, to;
    OK(MPI_Comm_group(g->comm, &all));
    OK(MPI_Group_incl(all, froms, from_ranks, &from));
    OK(MPI_Group_incl(all, tos, to_ranks, &to));
    uint64_t seed = random_next(shared);
    if (g->sync != ONE_BY_ONE)
        open_epoch(g, shared, from, to, kind);
    for (int origin = 0; origin < world_size; origin++) {
        Random steps = {(seed + (uint64_t)origin * 0x9e3779b97f4a7c15u) | 1};
        for (int i = 0; i < STEPS; i++) {
            int only = g->sync == ONE_BY_ONE ? random_below(&steps, world_size) : -1;
            int locks = only >= 0 && origin == world_rank, type = random_below(&steps, 2);
            for (int k = 0; locks && k < WINDOWS; k++)
                OK(MPI_Win_lock(type ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, only, 0, g->w[k].win));
            step(g, &steps, origin, i, only);
            if (locks) {
                all_requests(g, &mine);
                for (int k = 0; k < WINDOWS; k++)
                    OK(MPI_Win_unlock(only, g->w[k].win));
                finish_all(g, -1);
            } else if (g->sync >= LOCKS && origin == world_rank) {
                between(g, &mine);
            }
        }
    }
    all_requests(g, &mine);
    if (g->sync != ONE_BY_ONE)
        close_epoch(g, &mine);
    finish_all(g, -1);
    for (int i = 0; i < g->begun_count; i++)
        free(g->begun[i].out), free(g->begun[i].got), free(g->begun[i].should);
    OK(MPI_Group_free(&all));
    OK(MPI_Group_free(&from));
    OK(MPI_Group_free(&to));
    OK(MPI_Barrier(g->comm));
    compare(g);
    OK(MPI_Barrier(g->comm));
}

static void play_flavor(Game *g, int flavor)
{
    static const int units[] = {1, 2, 4, 8, 16};
    g->flavor = flavor, g->start[0] = 0;
    for (int i = 0; i < BLOCKS; i++) {
        g->kind[i] = &elements[random_below(&g->random, element_count)];
        g->start[i + 1] = g->start[i] + block_bytes[random_below(&g->random, i % 8 == 7 ? 8 : 6)];
    }
    int parts = random_below(&g->random, 2);
    for (int rank = 0; rank < world_size; rank++)
        g->blocks[rank] = parts ? random_below(&g->random, BLOCKS + 1) : BLOCKS;
    MPI_Aint bytes = g->start[g->blocks[world_rank]];
    memset(g->model, 0, (size_t)world_size * PART_MAX);
    int unit = units[random_below(&g->random, 5)];
    g->w[0] = window_make(flavor, g->comm, bytes, unit, MPI_INFO_NULL);
    for (int i = 1; i <= OVER; i++) {
        g->w[i] = g->w[0];
        g->w[i].flavor = CREATED, g->w[i].addresses = NULL;
        g->w[i].unit = units[random_below(&g->random, 5)];
        OK(MPI_Win_create(bytes ? g->w[0].base : NULL, bytes, g->w[i].unit, MPI_INFO_NULL, g->comm,
                          &g->w[i].win));
    }
    for (g->round = 0; g->round < g->rounds && !check_failures; g->round++)
        play_round(g);
    for (int i = 1; i <= OVER; i++)
        OK(MPI_Win_free(&g->w[i].win));
    OK(MPI_Barrier(g->comm));
    if (flavor == DYNAMIC)
        OK(MPI_Win_detach(g->w[0].win, g->w[0].base));
    OK(MPI_Win_free(&g->w[0].win));
    if (flavor == CREATED || flavor == DYNAMIC)
        free(g->w[0].base);
    free(g->w[0].addresses);
}

static void *play(void *game)
{
    Game *g = game;
    for (int flavor = 0; flavor < FLAVORS; flavor++)
        if (has_flavor(flavor))
            play_flavor(g, flavor);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = -1, threads = argc > 2 ? atoi(argv[2]) : 1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    check_know_world();
    elements_make(), operations_make();
    static Game games[THREADS];
    pthread_t ids[THREADS];
    has_flavor(SHARED);
    for (int i = 0; i < threads && world_size <= RANKS; i++) {
        Game *g = &games[i];
        g->random = random_from(4242 + (uint64_t)i * 977);
        g->rounds = argc > 1 ? atoi(argv[1]) : 6, g->thread = i;
        g->model = malloc((size_t)world_size * PART_MAX);
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &g->comm));
    }
    for (int i = 0; i < threads && world_size <= RANKS; i++)
        pthread_create(&ids[i], NULL, play, &games[i]);
    for (int i = 0; i < threads && world_size <= RANKS; i++) {
        pthread_join(ids[i], NULL);
        OK(MPI_Comm_free(&games[i].comm));
        free(games[i].model);
    }
    return check_end();
}
