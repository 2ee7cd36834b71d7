/* What the programs of this folder test with. */
#include <mpi.h>
#include <stdio.h>

#define CHECK(x)                                                          \
    do {                                                                  \
        if (!(x)) {                                                       \
            printf("%s:%d: %s is not so\n", __FILE__, __LINE__, #x);      \
            wrong = 1;                                                    \
        }                                                                 \
    } while (0)

static int wrong = 0;
