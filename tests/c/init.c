/* Starting and ending: what may be asked before, between and after, thread levels, versions, names.
 * Run with the name of a thread level, it asks for that level. */
// run:
// run: single
// run: funneled
// run: serialized
// run: multiple
#include "check.h"

#include <pthread.h>

static int deleted;

static int at_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)key;
    (void)extra;
    int flag = -1;
    /* MPI 5.0 section 11.2.4: the callbacks on MPI_COMM_SELF run first, while MPI is still whole.
     */
    SAME(MPI_Finalized(&flag), MPI_SUCCESS);
    SAME(flag, 0);
    SAME(comm == MPI_COMM_SELF, 1);
    int order = (int)(intptr_t)value;
    deleted++;
    SAME(order, 4 - deleted); /* in the reverse order of their setting */
    int one = 1, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    SAME(sum, 1);
    return MPI_SUCCESS;
}

static void *other_thread(void *out)
{
    int main_thread = -1;
    OK(MPI_Is_thread_main(&main_thread));
    *(int *)out = main_thread;
    return NULL;
}

int main(int argc, char **argv)
{
    int flag = -1;
    OK(MPI_Initialized(&flag));
    SAME(flag, 0);
    OK(MPI_Finalized(&flag));
    SAME(flag, 0);
    int version = 0, subversion = -1, length = -1;
    OK(MPI_Get_version(&version, &subversion));
    SAME(version, MPI_VERSION);
    SAME(subversion, MPI_SUBVERSION);
    static char library[MPI_MAX_LIBRARY_VERSION_STRING];
    OK(MPI_Get_library_version(library, &length));
    SAME(length, strlen(library));
    CHECK(length > 0, "the library version is empty");
    int abi = 0, abi_minor = -1;
    OK(MPI_Abi_get_version(&abi, &abi_minor));
    SAME(abi, 1);
    SAME(abi_minor, 0);

    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED},
                  {"multiple", MPI_THREAD_MULTIPLE}};
    int asked = -1, provided = -1;
    for (int i = 0; argc > 1 && i < 4; i++)
        if (strcmp(argv[1], levels[i].name) == 0)
            asked = levels[i].level;
    if (asked >= 0) {
        OK(MPI_Init_thread(&argc, &argv, asked, &provided));
        CHECK(provided >= asked, "level %d was asked for, %d is provided", asked, provided);
    } else {
        OK(MPI_Init(NULL, NULL));
    }
    check_know_world();
    int level = -1;
    OK(MPI_Query_thread(&level));
    if (asked >= 0)
        SAME(level, provided);
    OK(MPI_Is_thread_main(&flag));
    SAME(flag, 1);
    if (level >= MPI_THREAD_FUNNELED) {
        pthread_t thread;
        int other = -1;
        pthread_create(&thread, NULL, other_thread, &other);
        pthread_join(thread, NULL);
        SAME(other, 0);
    }
    OK(MPI_Initialized(&flag));
    SAME(flag, 1);
    OK(MPI_Finalized(&flag));
    SAME(flag, 0);
    CHECK(world_size >= 1 && world_rank >= 0 && world_rank < world_size, "rank %d of %d",
          world_rank, world_size);
    int self = -1, alone = -1;
    OK(MPI_Comm_rank(MPI_COMM_SELF, &self));
    OK(MPI_Comm_size(MPI_COMM_SELF, &alone));
    SAME(self, 0);
    SAME(alone, 1);

    char name[MPI_MAX_PROCESSOR_NAME];
    OK(MPI_Get_processor_name(name, &length));
    SAME(length, strlen(name));
    CHECK(length > 0, "the processor has no name");

    for (int i = 1; i <= 3; i++) {
        int key;
        OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL));
        OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, (void *)(intptr_t)i));
        OK(MPI_Comm_free_keyval(&key));
    }
    OK(MPI_Finalize());
    SAME(deleted, 3);
    OK(MPI_Initialized(&flag));
    SAME(flag, 1);
    OK(MPI_Finalized(&flag));
    SAME(flag, 1);
    OK(MPI_Get_version(&version, &subversion));
    OK(MPI_Get_library_version(library, &length));
    return check_failures ? 1 : 0;
}
