/* Info objects: setting, asking, order of keys, copies, lengths, what the environment tells. */
#include "check.h"

int main(int argc, char **argv)
{
    /* Info works before MPI_Init (MPI 4.0 on). */
    MPI_Info early;
    OK(MPI_Info_create(&early));
    OK(MPI_Info_set(early, "before", "init"));
    check_begin(&argc, &argv);
    char value[MPI_MAX_INFO_VAL + 1];
    int length = (int)sizeof value, flag = -1;
    OK(MPI_Info_get_string(early, "before", &length, value, &flag));
    SAME(flag, 1);
    SAME(length, 5);
    CHECK(strcmp(value, "init") == 0, "the value is [%s]", value);
    OK(MPI_Info_free(&early));
    SAME(early == MPI_INFO_NULL, 1);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));

    MPI_Info info, copy;
    OK(MPI_Info_create(&info));
    int count = -1;
    OK(MPI_Info_get_nkeys(info, &count));
    SAME(count, 0);
    OK(MPI_Info_set(info, "second", "2"));
    OK(MPI_Info_set(info, "first", "1"));
    OK(MPI_Info_set(info, "third key", "with blanks, = and ;"));
    OK(MPI_Info_set(info, "first", "one"));
    OK(MPI_Info_get_nkeys(info, &count));
    SAME(count, 3);
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "second"));
    OK(MPI_Info_get_nkeys(info, &count));
    SAME(count, 2);
    OK(MPI_Info_get_nkeys(copy, &count));
    SAME(count, 3);
    /* The nth key is stable, and the copy has the keys in the same order. */
    for (int i = 0; i < 3; i++) {
        char key[MPI_MAX_INFO_KEY + 1], again[MPI_MAX_INFO_KEY + 1];
        OK(MPI_Info_get_nthkey(copy, i, key));
        OK(MPI_Info_get_nthkey(copy, i, again));
        CHECK(strcmp(key, again) == 0, "key %d is [%s] and [%s]", i, key, again);
        CHECK(!strcmp(key, "first") || !strcmp(key, "second") || !strcmp(key, "third key"),
              "key %d is [%s]", i, key);
    }
    /* Too short a buffer: as much as fits, closed by a zero, and the needed length. */
    memset(value, 'x', sizeof value);
    length = 4;
    OK(MPI_Info_get_string(copy, "third key", &length, value, &flag));
    SAME(flag, 1);
    SAME(length, strlen("with blanks, = and ;") + 1);
    CHECK(strcmp(value, "wit") == 0, "the shortened value is [%.10s]", value);
    length = 0;
    memset(value, 'x', sizeof value);
    OK(MPI_Info_get_string(copy, "third key", &length, value, &flag));
    SAME(length, strlen("with blanks, = and ;") + 1);
    SAME(value[0], 'x');
    length = (int)sizeof value;
    OK(MPI_Info_get_string(copy, "no such key", &length, value, &flag));
    SAME(flag, 0);
    /* The longest key and value. */
    char key[MPI_MAX_INFO_KEY + 8], longest[MPI_MAX_INFO_VAL + 8];
    memset(key, 'k', sizeof key);
    memset(longest, 'v', sizeof longest);
    key[MPI_MAX_INFO_KEY - 1] = 0;
    longest[MPI_MAX_INFO_VAL - 1] = 0;
    OK(MPI_Info_set(copy, key, longest));
    length = (int)sizeof value;
    OK(MPI_Info_get_string(copy, key, &length, value, &flag));
    SAME(flag, 1);
    CHECK(strcmp(value, longest) == 0, "the longest value came back different");
    key[MPI_MAX_INFO_KEY - 1] = 'k';
    key[MPI_MAX_INFO_KEY + 1] = 0;
    CLASS(MPI_Info_set(copy, key, "v"), MPI_ERR_INFO_KEY);
    longest[MPI_MAX_INFO_VAL - 1] = 'v';
    longest[MPI_MAX_INFO_VAL + 1] = 0;
    CLASS(MPI_Info_set(copy, "long", longest), MPI_ERR_INFO_VALUE);
    CLASS(MPI_Info_set(copy, "", "v"), MPI_ERR_INFO_KEY);
    CLASS(MPI_Info_delete(copy, "no such key"), MPI_ERR_INFO_NOKEY);
    CLASS(MPI_Info_get_nkeys(MPI_INFO_NULL, &count), MPI_ERR_INFO);
    CLASS(MPI_Info_get_nthkey(copy, 99, value), MPI_ERR_ARG);
    OK(MPI_Info_free(&copy));
    OK(MPI_Info_free(&info));

    /* MPI_INFO_ENV is there to be read. */
    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &count));
    CHECK(count >= 0, "MPI_INFO_ENV has %d keys", count);
    for (int i = 0; i < count; i++) {
        char name[MPI_MAX_INFO_KEY + 1];
        OK(MPI_Info_get_nthkey(MPI_INFO_ENV, i, name));
        length = (int)sizeof value;
        OK(MPI_Info_get_string(MPI_INFO_ENV, name, &length, value, &flag));
        SAME(flag, 1);
    }

    /* Many at once. */
    MPI_Info many[200];
    for (int i = 0; i < 200; i++) {
        OK(MPI_Info_create(&many[i]));
        snprintf(value, sizeof value, "%d", i);
        OK(MPI_Info_set(many[i], "number", value));
    }
    for (int i = 199; i >= 0; i--) {
        length = (int)sizeof value;
        OK(MPI_Info_get_string(many[i], "number", &length, value, &flag));
        SAME(atoi(value), i);
        OK(MPI_Info_free(&many[i]));
    }
    /* MPI_Info_create_env reads the words of a command line. */
    OK(MPI_Info_create_env(argc, argv, &info));
    OK(MPI_Info_free(&info));
    return check_end();
}
