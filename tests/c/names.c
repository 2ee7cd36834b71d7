/* Names of communicators and datatypes. */
#include "check.h"

#define NAMED(type) {type, #type}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0, "the name is [%s]", name);
    SAME(length, strlen("MPI_COMM_WORLD"));
    OK(MPI_Comm_get_name(MPI_COMM_SELF, name, &length));
    CHECK(strcmp(name, "MPI_COMM_SELF") == 0, "the name is [%s]", name);
    MPI_Comm comm, copy;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_name(comm, name, &length));
    SAME(length, 0);
    SAME(name[0], 0);
    OK(MPI_Comm_set_name(comm, "grid of ours"));
    OK(MPI_Comm_get_name(comm, name, &length));
    CHECK(strcmp(name, "grid of ours") == 0, "the name is [%s]", name);
    OK(MPI_Comm_dup(comm, &copy)); /* names are not copied */
    OK(MPI_Comm_get_name(copy, name, &length));
    SAME(length, 0);
    char longest[MPI_MAX_OBJECT_NAME];
    memset(longest, 'n', sizeof longest);
    longest[MPI_MAX_OBJECT_NAME - 1] = 0;
    OK(MPI_Comm_set_name(copy, longest));
    OK(MPI_Comm_get_name(copy, name, &length));
    SAME(length, MPI_MAX_OBJECT_NAME - 1);
    CHECK(strcmp(name, longest) == 0, "the longest name came back as [%s]", name);
    OK(MPI_Comm_set_name(copy, ""));
    OK(MPI_Comm_get_name(copy, name, &length));
    SAME(length, 0);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));

    static const struct {
        MPI_Datatype type;
        const char *name;
    } types[] = {NAMED(MPI_INT),         NAMED(MPI_CHAR),
                 NAMED(MPI_SIGNED_CHAR), NAMED(MPI_UNSIGNED_CHAR),
                 NAMED(MPI_SHORT),       NAMED(MPI_LONG),
                 NAMED(MPI_UNSIGNED),    NAMED(MPI_UNSIGNED_LONG),
                 NAMED(MPI_FLOAT),       NAMED(MPI_DOUBLE),
                 NAMED(MPI_LONG_DOUBLE), NAMED(MPI_BYTE),
                 NAMED(MPI_PACKED),      NAMED(MPI_WCHAR),
                 NAMED(MPI_C_BOOL),      NAMED(MPI_INT8_T),
                 NAMED(MPI_UINT64_T),    NAMED(MPI_AINT),
                 NAMED(MPI_COUNT),       NAMED(MPI_OFFSET),
                 NAMED(MPI_FLOAT_INT),   NAMED(MPI_DOUBLE_INT),
                 NAMED(MPI_2INT),        NAMED(MPI_SHORT_INT),
                 NAMED(MPI_INTEGER),     NAMED(MPI_REAL),
                 NAMED(MPI_LOGICAL),     NAMED(MPI_DOUBLE_PRECISION),
                 NAMED(MPI_CHARACTER),   NAMED(MPI_LONG_DOUBLE_INT)};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        OK(MPI_Type_get_name(types[i].type, name, &length));
        CHECK(strcmp(name, types[i].name) == 0, "%s is named [%s]", types[i].name, name);
        SAME(length, strlen(types[i].name));
    }
    MPI_Datatype type, twin;
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_get_name(type, name, &length));
    SAME(length, 0);
    OK(MPI_Type_set_name(type, "two ints"));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(strcmp(name, "two ints") == 0, "the name is [%s]", name);
    OK(MPI_Type_dup(type, &twin));
    OK(MPI_Type_get_name(twin, name, &length));
    SAME(length, 0);
    OK(MPI_Type_free(&twin));
    OK(MPI_Type_free(&type));
    return check_end();
}
