/* MPI_T: initialising before and after MPI, control variables, enumerations, categories, events and
 * their sources. */
#include <limits.h>
#include "check.h"

/* A call of the tool interface that must return this code. */
#define CODE(call, wanted) SAME(call, wanted)

enum { ROOM = 512 };

static int find_cvar(const char *name)
{
    int index = -1;
    CODE(MPI_T_cvar_get_index(name, &index), MPI_SUCCESS);
    return index;
}

/* Before MPI_T_init_thread every call is refused; users are counted. */
static void life(void)
{
    int n = -1, provided = -1;
    CODE(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    CODE(MPI_T_pvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    CODE(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    CODE(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
    SAME(provided, MPI_THREAD_SINGLE);
    CODE(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided), MPI_SUCCESS);
    CODE(MPI_T_finalize(), MPI_SUCCESS);
    CODE(MPI_T_cvar_get_num(&n), MPI_SUCCESS);
    CHECK(n > 0, "there are %d control variables", n);
    CODE(MPI_T_finalize(), MPI_SUCCESS);
    CODE(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    CODE(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
}

/* Before MPI_Init a setting can be read and changed. */
static void settings(unsigned long long wanted)
{
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int count = -1;
    unsigned long long value = 0;
    CODE(MPI_T_cvar_handle_alloc(find_cvar("FERRY_SHM_READ_MIN"), NULL, &handle, &count),
         MPI_SUCCESS);
    SAME(count, 1);
    CODE(MPI_T_cvar_read(handle, &value), MPI_SUCCESS);
    SAME(value, wanted);
    value = 12345678;
    CODE(MPI_T_cvar_write(handle, &value), MPI_SUCCESS);
    value = 0;
    CODE(MPI_T_cvar_read(handle, &value), MPI_SUCCESS);
    SAME(value, 12345678);
    CODE(MPI_T_cvar_read(handle, NULL), MPI_T_ERR_INVALID);
    MPI_T_cvar_handle old = handle;
    CODE(MPI_T_cvar_handle_free(&handle), MPI_SUCCESS);
    SAME(handle == MPI_T_CVAR_HANDLE_NULL, 1);
    CODE(MPI_T_cvar_read(old, &value), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_cvar_handle_free(&old), MPI_T_ERR_INVALID_HANDLE);
    CODE(MPI_T_cvar_read(MPI_T_CVAR_HANDLE_NULL, &value), MPI_T_ERR_INVALID_HANDLE);
}

/* Every variable has a name that finds it, a text, a value that can be read. */
static void all_controls(void)
{
    int n = -1, index = -1;
    CODE(MPI_T_cvar_get_num(&n), MPI_SUCCESS);
    for (int i = 0; i < n; i++) {
        char name[ROOM], text[ROOM];
        int name_length = ROOM, text_length = ROOM, verbosity = -1, bind = -1, scope = -1,
            count = -1;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_T_enum names = MPI_T_ENUM_NULL;
        CODE(MPI_T_cvar_get_info(i, name, &name_length, &verbosity, &type, &names, text,
                                 &text_length, &bind, &scope),
             MPI_SUCCESS);
        SAME(name_length, strlen(name) + 1);
        SAME(text_length, strlen(text) + 1);
        CHECK(strncmp(name, "FERRY_", 6) == 0, "variable %d is called [%s]", i, name);
        CHECK(verbosity >= MPI_T_VERBOSITY_USER_BASIC && verbosity <= MPI_T_VERBOSITY_MPIDEV_ALL,
              "verbosity %d", verbosity);
        CODE(MPI_T_cvar_get_index(name, &index), MPI_SUCCESS);
        SAME(index, i);
        char little[4] = "xyz";
        int room = 3;
        CODE(MPI_T_cvar_get_info(i, little, &room, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
             MPI_SUCCESS);
        CHECK(strcmp(little, "FE") == 0, "shortened to [%s]", little);
        SAME(room, name_length);
        MPI_T_cvar_handle handle;
        MPI_Comm comm = MPI_COMM_WORLD;
        if (bind == MPI_T_BIND_MPI_COMM) {
            CODE(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count), MPI_T_ERR_INVALID_HANDLE);
            comm = MPI_COMM_NULL;
            CODE(MPI_T_cvar_handle_alloc(i, &comm, &handle, &count), MPI_T_ERR_INVALID_HANDLE);
            comm = MPI_COMM_WORLD;
        }
        CODE(MPI_T_cvar_handle_alloc(i, &comm, &handle, &count), MPI_SUCCESS);
        union {
            int i;
            unsigned u;
            unsigned long long l;
            char text[ROOM];
        } value = {0};
        CHECK(count == (type == MPI_CHAR ? ROOM : 1), "%s has %d elements", name, count);
        CODE(MPI_T_cvar_read(handle, &value), MPI_SUCCESS);
        CODE(MPI_T_cvar_write(handle, &value),
             scope == MPI_T_SCOPE_READONLY ? MPI_T_ERR_CVAR_SET_NEVER : MPI_SUCCESS);
        if (strcmp(name, "FERRY_ON_HANG") == 0)
            CHECK(strcmp(value.text, getenv("FERRY_ON_HANG") ? getenv("FERRY_ON_HANG") : "") == 0,
                  "it is [%s]", value.text);
        if (type == MPI_INT) {
            int items = -1, stands_for = -1;
            room = ROOM;
            CODE(MPI_T_enum_get_info(names, &items, text, &room), MPI_SUCCESS);
            CHECK(items >= 3 && value.i >= 0 && value.i < items, "%s is %d of %d names", name,
                  value.i, items);
            for (int k = 0; k < items; k++) {
                room = ROOM;
                CODE(MPI_T_enum_get_item(names, k, &stands_for, text, &room), MPI_SUCCESS);
                SAME(stands_for, k);
                SAME(room, strlen(text) + 1);
            }
            CODE(MPI_T_enum_get_item(names, items, &stands_for, text, &room),
                 MPI_T_ERR_INVALID_INDEX);
            value.i = items;
            CODE(MPI_T_cvar_write(handle, &value), MPI_T_ERR_INVALID);
        } else {
            SAME(names == MPI_T_ENUM_NULL, 1);
        }
        CODE(MPI_T_cvar_handle_free(&handle), MPI_SUCCESS);
    }
    CODE(MPI_T_cvar_get_index("FERRY_NO_SUCH_THING", &index), MPI_T_ERR_INVALID_NAME);
    CODE(MPI_T_cvar_get_info(n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
         MPI_T_ERR_INVALID_INDEX);
    CODE(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
         MPI_T_ERR_INVALID_INDEX);
}

/* Categories form trees that hold every variable and event once. */
static void categories(void)
{
    int n = -1, controls = -1, counts = -1, events = -1, stamp = -1;
    CODE(MPI_T_category_get_num(&n), MPI_SUCCESS);
    CODE(MPI_T_cvar_get_num(&controls), MPI_SUCCESS);
    CODE(MPI_T_pvar_get_num(&counts), MPI_SUCCESS);
    CODE(MPI_T_event_get_num(&events), MPI_SUCCESS);
    CODE(MPI_T_category_changed(&stamp), MPI_SUCCESS);
    int seen_controls[ROOM] = {0}, seen_counts[ROOM] = {0}, seen_events[ROOM] = {0},
        seen[ROOM] = {0};
    int list[ROOM], index = -1;
    for (int i = 0; i < n; i++) {
        char name[ROOM];
        int room = ROOM, c = -1, p = -1, k = -1, e = -1;
        CODE(MPI_T_category_get_info(i, name, &room, NULL, NULL, &c, &p, &k), MPI_SUCCESS);
        CODE(MPI_T_category_get_num_events(i, &e), MPI_SUCCESS);
        CODE(MPI_T_category_get_index(name, &index), MPI_SUCCESS);
        SAME(index, i);
        CODE(MPI_T_category_get_cvars(i, c, list), MPI_SUCCESS);
        for (int j = 0; j < c; j++)
            seen_controls[list[j]]++;
        CODE(MPI_T_category_get_pvars(i, p, list), MPI_SUCCESS);
        for (int j = 0; j < p; j++)
            seen_counts[list[j]]++;
        CODE(MPI_T_category_get_events(i, e, list), MPI_SUCCESS);
        for (int j = 0; j < e; j++)
            seen_events[list[j]]++;
        CODE(MPI_T_category_get_categories(i, k, list), MPI_SUCCESS);
        for (int j = 0; j < k; j++)
            seen[list[j]]++;
    }
    for (int i = 0; i < controls; i++)
        CHECK(seen_controls[i] == 1, "control variable %d stands in %d categories", i,
              seen_controls[i]);
    for (int i = 0; i < counts; i++)
        CHECK(seen_counts[i] == 1, "performance variable %d stands in %d categories", i,
              seen_counts[i]);
    for (int i = 0; i < events; i++)
        CHECK(seen_events[i] == 1, "event %d stands in %d categories", i, seen_events[i]);
    int tops = 0;
    for (int i = 0; i < n; i++) {
        CHECK(seen[i] <= 1, "category %d stands in %d others", i, seen[i]);
        tops += seen[i] == 0;
    }
    CHECK(tops > 0 && tops < n, "%d of %d categories stand in no other", tops, n);
    CODE(MPI_T_category_get_index("no such thing", &index), MPI_T_ERR_INVALID_NAME);
    CODE(MPI_T_category_get_cvars(n, 1, list), MPI_T_ERR_INVALID_INDEX);
}

/* An event is told once, with its elements, and no more once its registration is freed. */
static int told, told_code, told_class, freed, dropped;
static MPI_Count told_time;

static void on_error(MPI_T_event_instance event, MPI_T_event_registration registration,
                     MPI_T_cb_safety safety, void *data)
{
    (void)registration;
    SAME(safety, MPI_T_CB_REQUIRE_NONE);
    SAME(data == &told, 1);
    told++;
    int both[2] = {-1, -1}, source = -1;
    CODE(MPI_T_event_read(event, 0, &told_code), MPI_SUCCESS);
    CODE(MPI_T_event_read(event, 1, &told_class), MPI_SUCCESS);
    CODE(MPI_T_event_read(event, 2, &source), MPI_T_ERR_INVALID_INDEX);
    CODE(MPI_T_event_copy(event, both), MPI_SUCCESS);
    SAME(both[0], told_code);
    SAME(both[1], told_class);
    CODE(MPI_T_event_get_source(event, &source), MPI_SUCCESS);
    SAME(source, 0);
    CODE(MPI_T_event_get_timestamp(event, &told_time), MPI_SUCCESS);
    /* What goes wrong in here is not told, but counted. */
    CLASS(MPI_Send(NULL, 0, MPI_INT, -9, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
}

static void on_drop(MPI_Count count, MPI_T_event_registration registration, int source,
                    MPI_T_cb_safety safety, void *data)
{
    (void)registration, (void)source, (void)safety, (void)data;
    dropped += (int)count;
}

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)registration, (void)safety;
    SAME(data == &freed, 1);
    freed++;
}

static void events(void)
{
    int sources = -1, index = -1, elements = 2, room = ROOM;
    char name[ROOM];
    MPI_T_source_order order;
    MPI_Count ticks = -1, most = -1, before = -1, after = -1;
    CODE(MPI_T_source_get_num(&sources), MPI_SUCCESS);
    SAME(sources, 1);
    CODE(MPI_T_source_get_info(0, name, &room, NULL, NULL, &order, &ticks, &most, NULL),
         MPI_SUCCESS);
    SAME(ticks, 1000000000);
    CODE(MPI_T_source_get_timestamp(1, &before), MPI_T_ERR_INVALID_INDEX);
    CODE(MPI_T_source_get_timestamp(0, &before), MPI_SUCCESS);
    CODE(MPI_T_event_get_index("no such thing", &index), MPI_T_ERR_INVALID_NAME);
    CODE(MPI_T_event_get_index("error_raised", &index), MPI_SUCCESS);
    MPI_Datatype types[2];
    MPI_Aint places[2];
    MPI_Info info;
    room = ROOM;
    CODE(MPI_T_event_get_info(index, name, &room, NULL, types, places, &elements, NULL, &info, NULL,
                              NULL, NULL),
         MPI_SUCCESS);
    OK(MPI_Info_free(&info));
    SAME(elements, 2);
    SAME(types[0] == MPI_INT && types[1] == MPI_INT, 1);
    SAME(places[1], sizeof(int));
    MPI_T_event_registration registration;
    CODE(MPI_T_event_handle_alloc(index + 1, NULL, MPI_INFO_NULL, &registration),
         MPI_T_ERR_INVALID_INDEX);
    CODE(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registration), MPI_SUCCESS);
    CLASS(MPI_Send(NULL, 0, MPI_INT, -9, 0, MPI_COMM_WORLD), MPI_ERR_RANK); /* nobody listens yet */
    CODE(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &told,
                                       on_error),
         MPI_SUCCESS);
    CODE(MPI_T_event_set_dropped_handler(registration, on_drop), MPI_SUCCESS);
    int code = MPI_Send(NULL, 0, MPI_INT, world_size, 0, MPI_COMM_WORLD);
    CODE(MPI_T_source_get_timestamp(0, &after), MPI_SUCCESS);
    SAME(told, 1);
    SAME(told_code, code);
    SAME(told_class, MPI_ERR_RANK);
    SAME(dropped, 1);
    CHECK(before <= told_time && told_time <= after, "it happened at %lld, between %lld and %lld",
          (long long)told_time, (long long)before, (long long)after);
    CODE(MPI_T_event_handle_free(registration, &freed, on_free), MPI_SUCCESS);
    SAME(freed, 1);
    CODE(MPI_T_event_handle_free(registration, &freed, on_free), MPI_T_ERR_INVALID_HANDLE);
    CLASS(MPI_Send(NULL, 0, MPI_INT, world_size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    SAME(told, 1);
}

/* An algorithm can be chosen for one communicator. */
static void algorithm(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    int index = find_cvar("FERRY_COLL_ALLREDUCE"), count = -1, items = -1, value = -1, ring_is = -1;
    MPI_T_enum names;
    CODE(MPI_T_cvar_get_info(index, NULL, NULL, NULL, NULL, &names, NULL, NULL, NULL, NULL),
         MPI_SUCCESS);
    CODE(MPI_T_enum_get_info(names, &items, NULL, NULL), MPI_SUCCESS);
    for (int i = 0; i < items; i++) {
        char name[ROOM];
        int room = ROOM;
        CODE(MPI_T_enum_get_item(names, i, &value, name, &room), MPI_SUCCESS);
        if (strcmp(name, "ring") == 0)
            ring_is = value;
    }
    MPI_T_cvar_handle handle;
    CODE(MPI_T_cvar_handle_alloc(index, &comm, &handle, &count), MPI_SUCCESS);
    CODE(MPI_T_cvar_write(handle, &ring_is), MPI_SUCCESS);
    CODE(MPI_T_cvar_handle_free(&handle), MPI_SUCCESS);
    MPI_Info info;
    char text[ROOM] = "";
    int flag = 0, room = ROOM, sum = -1;
    OK(MPI_Comm_get_info(comm, &info));
    OK(MPI_Info_get_string(info, "ferry_coll_allreduce", &room, text, &flag));
    OK(MPI_Info_free(&info));
    CHECK(flag && strcmp(text, "ring") == 0, "the info says [%s]", text);
    OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    SAME(sum, world_size * (world_size - 1) / 2);
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    life();
    settings(ULLONG_MAX);
    check_begin(&argc, &argv);
    settings(12345678);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    all_controls();
    categories();
    events();
    algorithm();
    int status = check_end(), n = -1;
    /* The interface outlives MPI. */
    SAME(MPI_T_cvar_get_num(&n), MPI_SUCCESS);
    SAME(MPI_T_finalize(), MPI_SUCCESS);
    SAME(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED);
    return status || check_failures;
}
