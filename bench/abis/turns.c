/* Measures the same operations by several ABIs in one job of two ranks, in turns of 50 to 100 us,
 * so that all meet the same state of the machine, the same queues and the same memory.
 *
 * turns SECONDS BYTES NAME OBJECT...: prints `name,bytes,object,seconds` for every turn. The first
 * object is what others are compared with. SECONDS are for one figure at one size. BYTES and NAME
 * choose a size and a figure; 0 and "" are all. */
#include "operations.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_OBJECTS = 8, MOST_TURNS = 1 << 16, BUFFER = 1 << 18 };
static const double TURN_MIN_SECONDS = 50e-6;

static const struct operations *objects[MOST_OBJECTS];
static float times[MOST_TURNS][MOST_OBJECTS];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double turn(int object, int operation, int bytes, int repeat)
{
    objects[0]->barrier();
    double begun = now();
    objects[object]->all[operation].run(bytes, repeat);
    return now() - begun;
}

/* How often an operation is repeated in a turn: the same on both ranks and for all objects. The
 * least of several turns counts, as one may have met another process. */
static int repetitions(int operation, int bytes)
{
    for (int repeat = 1;; repeat *= 2) {
        double least = 1;
        for (int i = 0; i < 5; i++) {
            double took = objects[0]->greatest(turn(0, operation, bytes, repeat));
            least = took < least ? took : least;
        }
        if (least >= TURN_MIN_SECONDS)
            return repeat;
    }
}

static void measure(int count, int operation, int bytes, double seconds)
{
    int repeat = repetitions(operation, bytes), turns = 0, enough = 0;
    double begun = now();
    while (!enough && turns < MOST_TURNS) {
        for (int k = 0; k < count; k++) {
            int object = (turns + k) % count;
            turn(object, operation, bytes, repeat); /* what the object before left in the caches */
            times[turns][object] = (float)(turn(object, operation, bytes, repeat) / repeat);
        }
        turns++;
        if (turns % 16 == 0)
            enough = objects[0]->greatest(now() - begun) > seconds;
    }
    if (objects[0]->rank() == 0)
        for (int i = 0; i < turns; i++)
            for (int k = 0; k < count; k++)
                printf("%s,%d,%d,%.9g\n", objects[0]->all[operation].name, bytes, k, times[i][k]);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 1024, 4096, 16384, 65536};
    int count = argc - 4;
    char *out, *in;
    if (count < 1 || count > MOST_OBJECTS) {
        fprintf(stderr, "usage: turns SECONDS BYTES NAME OBJECT...\n");
        return 2;
    }
    if (posix_memalign((void **)&out, 4096, BUFFER) || posix_memalign((void **)&in, 4096, BUFFER)) {
        fprintf(stderr, "turns: no memory for %d bytes\n", BUFFER);
        return 1;
    }
    memset(out, 0, BUFFER);
    memset(in, 0, BUFFER);
    for (int k = 0; k < count; k++) {
        void *object = dlopen(argv[4 + k], RTLD_NOW | RTLD_LOCAL);
        objects[k] = object ? dlsym(object, "ferry_bench_operations") : NULL;
        if (!objects[k]) {
            fprintf(stderr, "turns: %s\n", dlerror());
            return 1;
        }
    }
    for (int k = 0; k < count; k++)
        objects[k]->begin(&argc, &argv, out, in);
    for (int operation = 0; operation < objects[0]->count; operation++)
        for (int i = 0; i < 5; i++) {
            const struct operation *it = &objects[0]->all[operation];
            int wanted = (!*argv[3] || !strcmp(argv[3], it->name)) &&
                         (!atoi(argv[2]) || sizes[i] == atoi(argv[2]));
            if (wanted && sizes[i] >= it->least && sizes[i] <= it->most)
                measure(count, operation, sizes[i], atof(argv[1]));
        }
    objects[0]->end();
    return 0;
}
