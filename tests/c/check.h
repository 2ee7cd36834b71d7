/* What every test program here shares: counted checks that print only when they fail, the rank and
 * size of the world, and random numbers that are the same on every rank of a run and in every run.
 *
 * A program starts with check_begin(&argc, &argv), ends with `return check_end();`, and prints
 * nothing if all is well. Its exit status is non-zero on every rank that saw a failure. */
#ifndef FERRY_TESTS_CHECK_H
#define FERRY_TESTS_CHECK_H

#include <mpi.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;
static volatile int check_failures;
enum { CHECK_PRINTED = 10 }; /* failures printed in full by each rank; the rest are only counted */

#define UNUSED __attribute__((unused))

UNUSED __attribute__((format(printf, 3, 4))) static void check_fail(const char *file, int line,
                                                                    const char *format, ...)
{
    int nth = __sync_add_and_fetch(&check_failures, 1);
    if (nth > CHECK_PRINTED)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: rank %d of %d: %s\n", file, line, world_rank, world_size, text);
    fflush(stderr);
}

#define FAIL(...) check_fail(__FILE__, __LINE__, __VA_ARGS__)

/* A condition, with a printf text that says what differed. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_fail(__FILE__, __LINE__, __VA_ARGS__);                                           \
    } while (0)

/* Two integers that must be equal. */
#define SAME(is, wanted)                                                                           \
    do {                                                                                           \
        long long is_ = (long long)(is), wanted_ = (long long)(wanted);                            \
        if (is_ != wanted_)                                                                        \
            check_fail(__FILE__, __LINE__, "%s is %lld, should be %lld", #is, is_, wanted_);       \
    } while (0)

/* A call that must succeed. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MPI_SUCCESS)                                                                  \
            check_code(__FILE__, __LINE__, #call, code_, MPI_SUCCESS);                             \
    } while (0)

/* A call that must fail with this error class (the handler in force must return). */
#define CLASS(call, wanted)                                                                        \
    do {                                                                                           \
        int code_ = (call), class_ = -1;                                                           \
        MPI_Error_class(code_, &class_);                                                           \
        if (class_ != (wanted))                                                                    \
            check_code(__FILE__, __LINE__, #call, code_, wanted);                                  \
    } while (0)

UNUSED static void check_code(const char *file, int line, const char *call, int code, int wanted)
{
    char is[MPI_MAX_ERROR_STRING] = "success", should[MPI_MAX_ERROR_STRING] = "success";
    int length;
    MPI_Error_string(code, is, &length);
    MPI_Error_string(wanted, should, &length);
    check_fail(file, line, "%s gave [%s], should give [%s]", call, is, should);
}

UNUSED static void check_know_world(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

UNUSED static void check_begin(int *argc, char ***argv)
{
    OK(MPI_Init(argc, argv));
    check_know_world();
}

UNUSED static int check_end(void)
{
    if (check_failures > CHECK_PRINTED)
        fprintf(stderr, "rank %d of %d: %d checks failed\n", world_rank, world_size,
                check_failures);
    OK(MPI_Finalize());
    return check_failures ? 1 : 0;
}

/* Random numbers: xorshift64*, seeded by the program or by CHECK_SEED. */
typedef struct {
    uint64_t state;
} Random;

UNUSED static Random random_from(uint64_t seed)
{
    const char *text = getenv("CHECK_SEED");
    if (text)
        seed ^= strtoull(text, NULL, 0) * 0x9e3779b97f4a7c15u;
    seed ^= seed >> 31;
    seed = seed * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
    return (Random){seed ? seed : 1};
}

UNUSED static uint64_t random_next(Random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * 0x2545f4914f6cdd1du;
}

/* A number from 0 up to, not including, `below`. */
UNUSED static int random_below(Random *random, int below)
{
    return (int)(random_next(random) % (uint64_t)below);
}

/* A size in bytes or elements from 0 to `most`: small ones as often as large ones. */
UNUSED static int random_size(Random *random, int most)
{
    int bits = 0;
    while ((1 << bits) <= most && bits < 30)
        bits++;
    int below = 1 << random_below(random, bits + 1);
    int size = random_below(random, below);
    return size > most ? most : size;
}

/* The byte that a message with this key has at this place. */
UNUSED static unsigned char pattern(uint64_t key, size_t place)
{
    uint64_t x = key * 0x9e3779b97f4a7c15u + place * 0xff51afd7ed558ccdu;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (unsigned char)(x >> 56);
}

UNUSED static void fill(void *buffer, size_t bytes, uint64_t key)
{
    unsigned char *at = buffer;
    for (size_t i = 0; i < bytes; i++)
        at[i] = pattern(key, i);
}

/* Where the buffer first differs from the pattern, or `bytes` if nowhere. */
UNUSED static size_t differs(const void *buffer, size_t bytes, uint64_t key)
{
    const unsigned char *at = buffer;
    size_t i = 0;
    while (i < bytes && at[i] == pattern(key, i))
        i++;
    return i;
}

#define FILLED(buffer, bytes, key)                                                                 \
    do {                                                                                           \
        size_t bytes_ = (bytes), at_ = differs((buffer), bytes_, (key));                           \
        CHECK(at_ == bytes_, "byte %zu of %zu of %s is wrong (key %llu)", at_, bytes_, #buffer,    \
              (unsigned long long)(key));                                                          \
    } while (0)

/* A neighbour in the ring of the world. */
UNUSED static int ring(int distance)
{
    return ((world_rank + distance) % world_size + world_size) % world_size;
}

#endif
