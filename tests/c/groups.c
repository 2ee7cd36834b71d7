/* Groups: set operations against plain arrays, ranges, comparison, translation of ranks. */
#include "check.h"

/* Members of a group as ranks of the world. */
static int members(MPI_Group group, int *out)
{
    MPI_Group world;
    int size = -1;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_size(group, &size));
    int *own = malloc((size_t)(size + 1) * sizeof *own);
    for (int i = 0; i < size; i++)
        own[i] = i;
    OK(MPI_Group_translate_ranks(group, size, own, world, out));
    OK(MPI_Group_free(&world));
    free(own);
    return size;
}

static void same_members(MPI_Group group, const int *wanted, int count, const char *what)
{
    int *is = malloc((size_t)(world_size + 1) * sizeof *is);
    int size = members(group, is);
    CHECK(size == count, "%s has %d members, should have %d", what, size, count);
    for (int i = 0; i < count && i < size; i++)
        CHECK(is[i] == wanted[i], "%s: member %d is %d, should be %d", what, i, is[i], wanted[i]);
    free(is);
}

static int holds(const int *set, int n, int value)
{
    for (int i = 0; i < n; i++)
        if (set[i] == value)
            return 1;
    return 0;
}

/* Some ranks of the world in random order. */
static int draw(Random *random, int *out)
{
    int n = 0, *all = malloc((size_t)world_size * sizeof *all);
    for (int i = 0; i < world_size; i++)
        all[i] = i;
    for (int i = world_size - 1; i > 0; i--) {
        int k = random_below(random, i + 1), swap = all[i];
        all[i] = all[k], all[k] = swap;
    }
    for (int i = 0; i < world_size; i++)
        if (random_below(random, 2))
            out[n++] = all[i];
    free(all);
    return n;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Group world, self, empty = MPI_GROUP_EMPTY, g, h;
    int size = -1, rank = -1, result = -1;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_group(MPI_COMM_SELF, &self));
    OK(MPI_Group_size(world, &size));
    OK(MPI_Group_rank(world, &rank));
    SAME(size, world_size);
    SAME(rank, world_rank);
    OK(MPI_Group_size(empty, &size));
    SAME(size, 0);
    OK(MPI_Group_rank(empty, &rank));
    SAME(rank, MPI_UNDEFINED);

    int n = world_size;
    int *a = malloc((size_t)(n + 1) * sizeof *a), *b = malloc((size_t)(n + 1) * sizeof *b);
    int *wanted = malloc((size_t)(2 * n + 1) * sizeof *wanted);
    Random random = random_from(4);
    for (int round = 0; round < 40; round++) {
        int an = draw(&random, a), bn = draw(&random, b), count;
        MPI_Group ga, gb;
        OK(MPI_Group_incl(world, an, a, &ga));
        OK(MPI_Group_incl(world, bn, b, &gb));
        same_members(ga, a, an, "incl");
        count = 0;
        for (int i = 0; i < an; i++)
            wanted[count++] = a[i];
        for (int i = 0; i < bn; i++)
            if (!holds(a, an, b[i]))
                wanted[count++] = b[i];
        OK(MPI_Group_union(ga, gb, &g));
        same_members(g, wanted, count, "union");
        OK(MPI_Group_free(&g));
        count = 0;
        for (int i = 0; i < an; i++)
            if (holds(b, bn, a[i]))
                wanted[count++] = a[i];
        OK(MPI_Group_intersection(ga, gb, &g));
        same_members(g, wanted, count, "intersection");
        OK(MPI_Group_compare(g, empty, &result));
        SAME(result, count ? MPI_UNEQUAL : MPI_IDENT);
        if (g != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&g));
        count = 0;
        for (int i = 0; i < an; i++)
            if (!holds(b, bn, a[i]))
                wanted[count++] = a[i];
        OK(MPI_Group_difference(ga, gb, &g));
        same_members(g, wanted, count, "difference");
        if (g != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&g));
        OK(MPI_Group_excl(world, bn, b, &g));
        count = 0;
        for (int i = 0; i < n; i++)
            if (!holds(b, bn, i))
                wanted[count++] = i;
        same_members(g, wanted, count, "excl");
        /* Translation into a group that lacks some. */
        int *own = malloc((size_t)(an + 1) * sizeof *own),
            *there = malloc((size_t)(an + 1) * sizeof *there);
        for (int i = 0; i < an; i++)
            own[i] = i;
        own[an] = MPI_PROC_NULL;
        OK(MPI_Group_translate_ranks(ga, an + 1, own, gb, there));
        for (int i = 0; i < an; i++) {
            int at = MPI_UNDEFINED;
            for (int k = 0; k < bn; k++)
                if (b[k] == a[i])
                    at = k;
            SAME(there[i], at);
        }
        SAME(there[an], MPI_PROC_NULL);
        free(own), free(there);
        /* The same set in another order is similar. */
        for (int i = 0; i < an; i++)
            wanted[i] = a[an - 1 - i];
        OK(MPI_Group_incl(world, an, wanted, &h));
        OK(MPI_Group_compare(ga, h, &result));
        SAME(result, an > 1 ? MPI_SIMILAR : MPI_IDENT);
        OK(MPI_Group_compare(ga, ga, &result));
        SAME(result, MPI_IDENT);
        if (h != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&h));
        if (g != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&g));
        if (ga != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&ga));
        if (gb != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&gb));
    }

    /* Ranges, upwards, downwards and with steps. */
    int ranges[3][3] = {{n - 1, n / 2 + 1, -2}, {0, n / 2, 3}, {n / 2 + 1, n / 2, 1}};
    int count = 0;
    for (int i = n - 1; i >= n / 2 + 1; i -= 2)
        wanted[count++] = i;
    for (int i = 0; i <= n / 2 && i < n; i += 3)
        wanted[count++] = i;
    if (n >= 4) {
        OK(MPI_Group_range_incl(world, 2, ranges, &g));
        same_members(g, wanted, count, "range_incl");
        OK(MPI_Group_free(&g));
        OK(MPI_Group_range_excl(world, 2, ranges, &g));
        int rest = 0, *left = malloc((size_t)n * sizeof *left);
        for (int i = 0; i < n; i++)
            if (!holds(wanted, count, i))
                left[rest++] = i;
        same_members(g, left, rest, "range_excl");
        free(left);
        if (g != MPI_GROUP_EMPTY)
            OK(MPI_Group_free(&g));
    }
    int all[1][3] = {{0, n - 1, 1}};
    OK(MPI_Group_range_incl(world, 1, all, &g));
    OK(MPI_Group_compare(g, world, &result));
    SAME(result, MPI_IDENT);
    OK(MPI_Group_free(&g));
    OK(MPI_Group_range_excl(world, 1, all, &g));
    OK(MPI_Group_size(g, &size));
    SAME(size, 0);
    OK(MPI_Group_compare(world, self, &result));
    SAME(result, n == 1 ? MPI_IDENT : MPI_UNEQUAL);
    SAME(g == MPI_GROUP_NULL, 0);
    OK(MPI_Group_free(&self));
    SAME(self == MPI_GROUP_NULL, 1);
    OK(MPI_Group_free(&world));
    free(a), free(b), free(wanted);
    return check_end();
}
