/* Functions of Open MPI's inside that its C++ bindings (libmpi_cxx.so.40) call: Python loads an
 * extension only if all of them are there. Called here as the bindings call them. */
#include "check.h"
#include <dlfcn.h>
#include <string.h>

static int copies, deletes, handled;
static MPI_Comm failed_on;

static int copy(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    copies += *(int *)state;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *in, void *state)
{
    (void)comm, (void)key, (void)in;
    deletes += *(int *)state;
    return MPI_SUCCESS;
}

static void program(void)
{
    handled++;
}

/* What the bindings store in an error handler that they have made. */
static void dispatch(MPI_Comm *comm, int *code, const char *message, void (*function)(void))
{
    int class = 0;
    MPI_Error_class(*code, &class);
    CHECK(class == MPI_ERR_TAG && strlen(message) > 0);
    failed_on = *comm;
    function();
}

int main(int argc, char **argv)
{
    int (*keyval)(int, void *, void *, int *, void *, int, void *);
    void *(*create)(int, void *, int);
    int (*invoke)(void *, void *, int, int, const char *);
    *(void **)&keyval = dlsym(RTLD_DEFAULT, "ompi_attr_create_keyval");
    *(void **)&create = dlsym(RTLD_DEFAULT, "ompi_errhandler_create");
    *(void **)&invoke = dlsym(RTLD_DEFAULT, "ompi_errhandler_invoke");
    CHECK(keyval && create && invoke);
    if (wrong)
        return 1;
    MPI_Init(&argc, &argv);

    int key, step = 3, found = 0;
    char value[2], *got = NULL;
    CHECK(keyval(1, (void *)copy, (void *)delete, &key, &step, 0, NULL) == MPI_SUCCESS);
    MPI_Comm one, two;
    MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_set_attr(one, key, value);
    MPI_Comm_dup(one, &two);
    MPI_Comm_get_attr(two, key, &got, &found);
    CHECK(copies == 3 && found && got == value + 1);

    /* Two handlers at a time; each object gets its own, and one is freed while it is in use. */
    MPI_Errhandler first = create(1, (void *)program, 1), second = create(1, NULL, 1);
    CHECK(first && second && first != second);
    *(void **)((char *)first + 0x78) = (void *)dispatch;
    MPI_Comm_set_errhandler(one, first);
    MPI_Comm_set_errhandler(two, first);
    MPI_Errhandler_free(&first);
    CHECK(first == MPI_ERRHANDLER_NULL);
    CHECK(MPI_Send(value, 1, MPI_CHAR, 0, -9, two) != MPI_SUCCESS);
    CHECK(handled == 1 && failed_on == two);
    invoke(NULL, one, 1, MPI_ERR_TAG, NULL);
    CHECK(handled == 2 && failed_on == one);
    MPI_Errhandler_free(&second);

    MPI_Comm_free(&two);
    MPI_Comm_free(&one);
    CHECK(deletes == 6);
    MPI_Comm_free_keyval(&key);
    MPI_Finalize();
    return wrong;
}
