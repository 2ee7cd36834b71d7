/* Procedures whose arguments are unlike those of the C function. */
#include "mpifort.h"

#include <stdlib.h>
#include <string.h>

#define PROCEDURE(p) ((procedure *) (p))

/* Procedures that programs pass by name. */

#define EXTERNAL_COPY(word) extern void mpi_##word##_dup_fn_(), mpi_##word##_null_copy_fn_();
#define EXTERNAL_DELETE(word) extern void mpi_##word##_null_delete_fn_();
EXTERNAL_COPY(comm)
EXTERNAL_COPY(type)
EXTERNAL_COPY(win)
EXTERNAL_DELETE(comm)
EXTERNAL_DELETE(type)
EXTERNAL_DELETE(win)
extern void mpi_dup_fn_(), mpi_null_copy_fn_(), mpi_null_delete_fn_();
extern void mpi_conversion_fn_null_(), mpi_conversion_fn_null_c_();

/* Attributes. */

/* What the functions of a keyval get as extra_state: never freed, since a keyval lives until the
 * last object that has it. */
struct keyval {
    procedure *copy, *delete;
    MPI_Aint extra_state;
};

static struct keyval *keyval(procedure *copy, procedure *delete, MPI_Aint extra_state)
{
    struct keyval *made = malloc(sizeof *made);
    if (made == NULL)
        abort();
    *made = (struct keyval){copy, delete, extra_state};
    return made;
}

typedef void copy_procedure(fint *, int *, MPI_Aint *, MPI_Aint *, MPI_Aint *, fint *, fint *);
typedef void delete_procedure(fint *, int *, MPI_Aint *, MPI_Aint *, fint *);

static int copy_attribute(fint object, int key, void *state, void *in, void *out, int *flag)
{
    struct keyval *of = state;
    MPI_Aint extra = of->extra_state, from = attribute_out(key, in), to = 0;
    fint copied = 0, err = MPI_SUCCESS;
    ((copy_procedure *) of->copy)(&object, &key, &extra, &from, &to, &copied, &err);
    *flag = copied != 0;
    if (*flag && err == MPI_SUCCESS)
        *(void **) out = attribute_in(to);
    return err;
}

static int delete_attribute(fint object, int key, void *attribute, void *state)
{
    struct keyval *of = state;
    MPI_Aint extra = of->extra_state, value = attribute_out(key, attribute);
    fint err = MPI_SUCCESS;
    ((delete_procedure *) of->delete)(&object, &key, &value, &extra, &err);
    return err;
}

#define ATTRIBUTES(word, type, Name, WORD)                                                         \
    static int word##_copy(type object, int key, void *state, void *in, void *out, int *flag)      \
    {                                                                                              \
        return copy_attribute(word##_out(object), key, state, in, out, flag);                      \
    }                                                                                              \
    static int word##_delete(type object, int key, void *attribute, void *state)                   \
    {                                                                                              \
        return delete_attribute(word##_out(object), key, attribute, state);                        \
    }                                                                                              \
    void N(mpi_##word##_create_keyval_)(procedure *copy, procedure *delete, fint *key,             \
                                        MPI_Aint *extra_state, fint *ierror)                       \
    {                                                                                              \
        MPI_##Name##_copy_attr_function *copy_c = word##_copy;                                     \
        MPI_##Name##_delete_attr_function *delete_c = word##_delete;                               \
        if (copy == PROCEDURE(mpi_##word##_dup_fn_))                                               \
            copy_c = (MPI_##Name##_copy_attr_function *) DUP_FUNCTION(WORD);                       \
        else if (copy == PROCEDURE(mpi_##word##_null_copy_fn_))                                    \
            copy_c = NULL;                                                                         \
        if (delete == PROCEDURE(mpi_##word##_null_delete_fn_))                                     \
            delete_c = NULL;                                                                       \
        struct keyval *state = keyval(copy, delete, *extra_state);                                 \
        error_out(ierror, M(Name##_create_keyval)(copy_c, delete_c, key, state));                  \
    }                                                                                              \
    void N(mpi_##word##_get_attr_)(fint *object, fint *key, MPI_Aint *value, fint *flag,           \
                                   fint *ierror)                                                   \
    {                                                                                              \
        void *attribute = NULL;                                                                    \
        int found = 0, key_c = key_in(*key);                                                       \
        int err = M(Name##_get_attr)(word##_in(*object), key_c, &attribute, &found);               \
        if (err == MPI_SUCCESS && found)                                                           \
            *value = attribute_out(key_c, attribute);                                              \
        *flag = found != 0;                                                                        \
        error_out(ierror, err);                                                                    \
    }                                                                                              \
    void N(mpi_##word##_set_attr_)(fint *object, fint *key, MPI_Aint *value, fint *ierror)         \
    {                                                                                              \
        error_out(ierror, M(Name##_set_attr)(word##_in(*object), key_in(*key),                     \
                                       attribute_in(*value)));                                     \
    }
ATTRIBUTES(comm, MPI_Comm, Comm, COMM)
ATTRIBUTES(type, MPI_Datatype, Type, TYPE)
ATTRIBUTES(win, MPI_Win, Win, WIN)
#define ATTRIBUTE_NAMES(word, WORD)                                                                \
    ALIASES(word##_create_keyval, WORD##_CREATE_KEYVAL)                                            \
    ALIASES(word##_get_attr, WORD##_GET_ATTR)                                                      \
    ALIASES(word##_set_attr, WORD##_SET_ATTR)                                                      \
    ALIAS_F08(word##_create_keyval)                                                                \
    ALIAS_F08(word##_get_attr)                                                                     \
    ALIAS_F08(word##_set_attr)
ATTRIBUTE_NAMES(comm, COMM)
ATTRIBUTE_NAMES(type, TYPE)
ATTRIBUTE_NAMES(win, WIN)

/* The forms of MPI-1, where an attribute is an INTEGER. */
typedef void old_copy_procedure(fint *, int *, fint *, fint *, fint *, fint *, fint *);
typedef void old_delete_procedure(fint *, int *, fint *, fint *, fint *);

static int old_copy(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    struct keyval *of = state;
    fint object = comm_out(comm), extra = (fint) of->extra_state, to = 0, copied = 0, err = 0;
    fint from = (fint) attribute_out(key, in);
    ((old_copy_procedure *) of->copy)(&object, &key, &extra, &from, &to, &copied, &err);
    *flag = copied != 0;
    if (*flag && err == MPI_SUCCESS)
        *(void **) out = attribute_in(to);
    return err;
}

static int old_delete(MPI_Comm comm, int key, void *attribute, void *state)
{
    struct keyval *of = state;
    fint object = comm_out(comm), extra = (fint) of->extra_state, err = MPI_SUCCESS;
    fint value = (fint) attribute_out(key, attribute);
    ((old_delete_procedure *) of->delete)(&object, &key, &value, &extra, &err);
    return err;
}

void N(mpi_keyval_create_)(procedure *copy, procedure *delete, fint *key, fint *extra_state,
                           fint *ierror)
{
    MPI_Comm_copy_attr_function *copy_c = old_copy;
    MPI_Comm_delete_attr_function *delete_c = old_delete;
    if (copy == PROCEDURE(mpi_dup_fn_) || copy == PROCEDURE(mpi_comm_dup_fn_))
        copy_c = (MPI_Comm_copy_attr_function *) DUP_FUNCTION(COMM);
    else if (copy == PROCEDURE(mpi_null_copy_fn_) || copy == PROCEDURE(mpi_comm_null_copy_fn_))
        copy_c = NULL;
    if (delete == PROCEDURE(mpi_null_delete_fn_) ||
        delete == PROCEDURE(mpi_comm_null_delete_fn_))
        delete_c = NULL;
    struct keyval *state = keyval(copy, delete, *extra_state);
    error_out(ierror, M(Comm_create_keyval)(copy_c, delete_c, key, state));
}
ALIASES(keyval_create, KEYVAL_CREATE)

void N(mpi_attr_get_)(fint *comm, fint *key, fint *value, fint *flag, fint *ierror)
{
    MPI_Aint wide = 0;
    N(mpi_comm_get_attr_)(comm, key, &wide, flag, ierror);
    if (*flag)
        *value = (fint) wide;
}
ALIASES(attr_get, ATTR_GET)

void N(mpi_attr_put_)(fint *comm, fint *key, fint *value, fint *ierror)
{
    MPI_Aint wide = *value;
    N(mpi_comm_set_attr_)(comm, key, &wide, ierror);
}
ALIASES(attr_put, ATTR_PUT)

/* Reductions, error handlers. */

void N(mpi_op_create_)(procedure *user, fint *commute, fint *op, fint *ierror)
{
    MPI_Op made = MPI_OP_NULL;
    int err = M(Op_create)(op_function(user), *commute != 0, &made);
    *op = op_out(made);
    error_out(ierror, err);
}
ALIASES(op_create, OP_CREATE)
ALIAS_F08(op_create)

void N(mpi_op_create_c_f08_)(procedure *user, fint *commute, fint *op, fint *ierror)
{
    MPI_Op made = MPI_OP_NULL;
    int err = M(Op_create_c)(op_function_c(user), *commute != 0, &made);
    *op = op_out(made);
    error_out(ierror, err);
}

#define ERROR_HANDLER(word, WORD, Name)                                                            \
    void N(mpi_##word##_create_errhandler_)(procedure *user, fint *errhandler, fint *ierror)       \
    {                                                                                              \
        MPI_Errhandler made = MPI_ERRHANDLER_NULL;                                                 \
        int err = M(Name##_create_errhandler)(word##_error_function(user), &made);                 \
        *errhandler = errhandler_out(made);                                                        \
        error_out(ierror, err);                                                                    \
    }                                                                                              \
    ALIASES(word##_create_errhandler, WORD##_CREATE_ERRHANDLER)                                    \
    ALIAS_F08(word##_create_errhandler)
ERROR_HANDLER(comm, COMM, Comm)
ERROR_HANDLER(win, WIN, Win)
ERROR_HANDLER(file, FILE, File)
ERROR_HANDLER(session, SESSION, Session)

/* Generalized requests. */

struct grequest {
    procedure *query, *free, *cancel;
    MPI_Aint extra_state;
};

static int grequest_query(void *state, MPI_Status *status)
{
    struct grequest *of = state;
    fint err = MPI_SUCCESS;
    ((void (*)(MPI_Aint *, MPI_Status *, fint *)) of->query)(&of->extra_state, status, &err);
    return err;
}

static int grequest_free(void *state)
{
    struct grequest *of = state;
    fint err = MPI_SUCCESS;
    ((void (*)(MPI_Aint *, fint *)) of->free)(&of->extra_state, &err);
    free(of);
    return err;
}

static int grequest_cancel(void *state, int complete)
{
    struct grequest *of = state;
    fint err = MPI_SUCCESS, done = complete != 0;
    ((void (*)(MPI_Aint *, fint *, fint *)) of->cancel)(&of->extra_state, &done, &err);
    return err;
}

void N(mpi_grequest_start_)(procedure *query, procedure *free_user, procedure *cancel,
                            MPI_Aint *extra_state, fint *request, fint *ierror)
{
    MPI_Request made = MPI_REQUEST_NULL;
    struct grequest *state = malloc(sizeof *state);
    if (state == NULL)
        abort();
    *state = (struct grequest){query, free_user, cancel, *extra_state};
    int err = M(Grequest_start)(grequest_query, grequest_free, grequest_cancel, state, &made);
    if (err == MPI_SUCCESS)
        *request = request_out(made);
    else
        free(state);
    error_out(ierror, err);
}
ALIASES(grequest_start, GREQUEST_START)
ALIAS_F08(grequest_start)

/* Data representations. */

/* A data representation lasts as long as the program (MPI 5.0 §14.5.3). */
struct datarep {
    procedure *read, *write, *extent;
    MPI_Aint extra_state;
};

static int datarep_extent(MPI_Datatype datatype, MPI_Aint *extent, void *state)
{
    struct datarep *of = state;
    fint type = type_out(datatype), err = MPI_SUCCESS;
    ((void (*)(fint *, MPI_Aint *, MPI_Aint *, fint *)) of->extent)(&type, extent,
                                                                     &of->extra_state, &err);
    return err;
}

#define CONVERSION(name, count_type, which)                                                        \
    static int name(void *userbuf, MPI_Datatype datatype, count_type count, void *filebuf,         \
                    MPI_Offset position, void *state)                                              \
    {                                                                                              \
        typedef void conversion(void *, fint *, count_type *, void *, MPI_Offset *, MPI_Aint *,    \
                                fint *);                                                           \
        struct datarep *of = state;                                                                \
        fint type = type_out(datatype), err = MPI_SUCCESS;                                         \
        ((conversion *) of->which)(userbuf, &type, &count, filebuf, &position, &of->extra_state,   \
                                   &err);                                                          \
        return err;                                                                                \
    }
CONVERSION(datarep_read, int, read)
CONVERSION(datarep_write, int, write)
CONVERSION(datarep_read_c, MPI_Count, read)
CONVERSION(datarep_write_c, MPI_Count, write)

static struct datarep *datarep(procedure *read, procedure *write, procedure *extent,
                               MPI_Aint extra_state)
{
    struct datarep *made = malloc(sizeof *made);
    if (made == NULL)
        abort();
    *made = (struct datarep){read, write, extent, extra_state};
    return made;
}

void N(mpi_register_datarep_)(const char *name, procedure *read, procedure *write,
                              procedure *extent, MPI_Aint *extra_state, fint *ierror,
                              size_t name_len)
{
    char few[FEW_CHARS];
    char *name_c = text_in(name, name_len, few);
    procedure *null = PROCEDURE(mpi_conversion_fn_null_);
    int err = M(Register_datarep)(name_c, read == null ? NULL : datarep_read,
                                  write == null ? NULL : datarep_write, datarep_extent,
                                  datarep(read, write, extent, *extra_state));
    few_free(name_c, few);
    error_out(ierror, err);
}
ALIASES(register_datarep, REGISTER_DATAREP)
ALIAS_F08(register_datarep)

void N(mpi_register_datarep_c_f08_)(const char *name, procedure *read, procedure *write,
                                    procedure *extent, MPI_Aint *extra_state, fint *ierror,
                                    size_t name_len)
{
    char few[FEW_CHARS];
    char *name_c = text_in(name, name_len, few);
    procedure *null = PROCEDURE(mpi_conversion_fn_null_c_);
    int err = M(Register_datarep_c)(name_c, read == null ? NULL : datarep_read_c,
                                    write == null ? NULL : datarep_write_c, datarep_extent,
                                    datarep(read, write, extent, *extra_state));
    few_free(name_c, few);
    error_out(ierror, err);
}

/* Dynamic processes. */

/* Blanks before and after are not part of a program's name or argument (MPI 5.0 §11.8.2). */
static char *copy_text(const char *from, size_t length)
{
    char few[FEW_CHARS];
    char *text = text_in_stripped(from, length, few);
    char *copy = strdup(text);
    few_free(text, few);
    if (copy == NULL)
        abort();
    return copy;
}

static int is_blank(const char *text, size_t length)
{
    while (length > 0 && text[length - 1] == ' ')
        length--;
    return length == 0;
}

/* Arguments of a program: strings `step` apart, up to a blank one. */
static char **arguments_in(const char *from, size_t length, size_t step)
{
    size_t count = 0;
    while (!is_blank(from + count * step, length))
        count++;
    char **to = calloc(count + 1, sizeof *to);
    if (to == NULL)
        abort();
    for (size_t at = 0; at < count; at++)
        to[at] = copy_text(from + at * step, length);
    return to;
}

static void arguments_free(char **arguments)
{
    for (char **at = arguments; at != NULL && *at != NULL; at++)
        free(*at);
    free(arguments);
}

static int *errcodes_in(fint *errcodes)
{
    char *at = (char *) errcodes;
    return at == mpiferrcodes_ || at == mpif08errcodes_ ? MPI_ERRCODES_IGNORE : errcodes;
}

/* The program's name and arguments are significant at the root alone. */
static int is_root(MPI_Comm comm, int root)
{
    int rank = MPI_UNDEFINED;
    return comm != MPI_COMM_NULL && PMPI_Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

void N(mpi_comm_spawn_)(const char *command, const char *argv, fint *maxprocs, fint *info,
                        fint *root, fint *comm, fint *intercomm, fint *errcodes, fint *ierror,
                        size_t command_len, size_t argv_len)
{
    MPI_Comm made = MPI_COMM_NULL, comm_c = comm_in(*comm);
    int here = is_root(comm_c, *root);
    char *command_c = copy_text(command, here ? command_len : 0);
    int none = argv == mpifargv_ || argv == mpif08argv_;
    char **argv_c = here && !none ? arguments_in(argv, argv_len, argv_len) : NULL;
    MPI_Info info_c = here ? info_in(*info) : MPI_INFO_NULL;
    int err = M(Comm_spawn)(command_c, argv_c, here ? *maxprocs : 0, info_c, *root, comm_c, &made,
                            errcodes_in(errcodes));
    *intercomm = comm_out(made);
    arguments_free(argv_c);
    free(command_c);
    error_out(ierror, err);
}
ALIASES(comm_spawn, COMM_SPAWN)
ALIAS_F08(comm_spawn)

void N(mpi_comm_spawn_multiple_)(fint *count, const char *commands, const char *argvs,
                                 fint *maxprocs, fint *infos, fint *root, fint *comm,
                                 fint *intercomm, fint *errcodes, fint *ierror,
                                 size_t command_len, size_t argv_len)
{
    MPI_Comm made = MPI_COMM_NULL, comm_c = comm_in(*comm);
    int here = is_root(comm_c, *root) && *count > 0;
    size_t n = here ? (size_t) *count : 0;
    int none = argvs == mpifargvs_ || argvs == mpif08argvs_;
    char **commands_c = calloc(n + 1, sizeof *commands_c);
    char ***argvs_c = calloc(n + 1, sizeof *argvs_c);
    MPI_Info *infos_c = calloc(n + 1, sizeof *infos_c);
    if (commands_c == NULL || argvs_c == NULL || infos_c == NULL)
        abort();
    for (size_t at = 0; at < n; at++) {
        commands_c[at] = copy_text(commands + at * command_len, command_len);
        /* Fortran's first dimension is the program. */
        argvs_c[at] = none ? NULL : arguments_in(argvs + at * argv_len, argv_len, n * argv_len);
        infos_c[at] = info_in(infos[at]);
    }
    int err = M(Comm_spawn_multiple)(*count, commands_c, none ? MPI_ARGVS_NULL : argvs_c, maxprocs,
                                     infos_c, *root, comm_c, &made, errcodes_in(errcodes));
    *intercomm = comm_out(made);
    for (size_t at = 0; at < n; at++) {
        free(commands_c[at]);
        arguments_free(argvs_c[at]);
    }
    free(commands_c);
    free(argvs_c);
    free(infos_c);
    error_out(ierror, err);
}
ALIASES(comm_spawn_multiple, COMM_SPAWN_MULTIPLE)
ALIAS_F08(comm_spawn_multiple)

/* Strings whose length the program gives. */

/* Lengths in Fortran are without C's final null (MPI 5.0 §10, §11.3). */

void N(mpi_info_get_)(fint *info, const char *key, fint *valuelen, char *value, fint *flag,
                      fint *ierror, size_t key_len, size_t value_len)
{
    char few[FEW_CHARS];
    char *key_c = text_in_stripped(key, key_len, few);
    char *value_c = calloc(1, (size_t) (*valuelen > 0 ? *valuelen : 0) + 1);
    int found = 0;
    if (value_c == NULL)
        abort();
    int err = M(Info_get)(info_in(*info), key_c, *valuelen, value_c, &found);
    if (err == MPI_SUCCESS && found)
        text_out(value, value_len, value_c);
    *flag = found != 0;
    free(value_c);
    few_free(key_c, few);
    error_out(ierror, err);
}
ALIASES(info_get, INFO_GET)
ALIAS_F08(info_get)

void N(mpi_info_get_string_)(fint *info, const char *key, fint *buflen, char *value, fint *flag,
                             fint *ierror, size_t key_len, size_t value_len)
{
    char few[FEW_CHARS];
    char *key_c = text_in_stripped(key, key_len, few);
    int found = 0, room = *buflen > 0 ? *buflen + 1 : *buflen;
    char *value_c = calloc(1, (size_t) (room > 0 ? room : 0) + 1);
    if (value_c == NULL)
        abort();
    int length = room;
    int err = M(Info_get_string)(info_in(*info), key_c, &length, value_c, &found);
    if (err == MPI_SUCCESS && found) {
        if (room > 0)
            text_out(value, value_len, value_c);
        *buflen = length - 1;
    }
    *flag = found != 0;
    free(value_c);
    few_free(key_c, few);
    error_out(ierror, err);
}
ALIASES(info_get_string, INFO_GET_STRING)
ALIAS_F08(info_get_string)

void N(mpi_session_get_nth_pset_)(fint *session, fint *info, fint *n, fint *pset_len,
                                  char *pset_name, fint *ierror, size_t pset_name_len)
{
    int room = *pset_len > 0 ? *pset_len + 1 : *pset_len;
    char *name_c = calloc(1, (size_t) (room > 0 ? room : 0) + 1);
    if (name_c == NULL)
        abort();
    int length = room;
    int err = M(Session_get_nth_pset)(session_in(*session), info_in(*info), *n, &length, name_c);
    if (err == MPI_SUCCESS) {
        if (room > 0)
            text_out(pset_name, pset_name_len, name_c);
        *pset_len = length - 1;
    }
    free(name_c);
    error_out(ierror, err);
}
ALIASES(session_get_nth_pset, SESSION_GET_NTH_PSET)
ALIAS_F08(session_get_nth_pset)

/* Procedures that only Fortran has. */

void N(mpi_pcontrol_)(fint *level)
{
    M(Pcontrol)(*level);
}
ALIASES(pcontrol, PCONTROL)
ALIAS_F08(pcontrol)

void N(mpi_sizeof_fts_)(struct descriptor *x, fint *size, fint *ierror)
{
    *size = (fint) x->elem_len;
    error_out(ierror, MPI_SUCCESS);
}
ALIAS_FORM(sizeof_f08ts, sizeof_fts)

/* A status of mpi_f08 and one of mpi are the same eight integers. */
void N(mpi_status_f2f08_)(const MPI_Status *from, MPI_Status *to, fint *ierror)
{
    *to = *from;
    error_out(ierror, MPI_SUCCESS);
}
ALIASES(status_f2f08, STATUS_F2F08)
ALIAS_F08(status_f2f08)

void N(mpi_status_f082f_)(const MPI_Status *from, MPI_Status *to, fint *ierror)
{
    *to = *from;
    error_out(ierror, MPI_SUCCESS);
}
ALIASES(status_f082f, STATUS_F082F)
ALIAS_F08(status_f082f)

/* The call itself keeps the compiler from moving the buffer's accesses over it. */
void N(mpi_f_sync_reg_)(void *buf)
{
    (void) buf;
}
ALIASES(f_sync_reg, F_SYNC_REG)
ALIAS_FORM(f_sync_reg_f08ts, f_sync_reg)
ALIAS_FORM(f_sync_reg_f08, f_sync_reg)

#ifndef MPIFORT_PROFILE
/* The predefined functions, called by the program itself. C has constants for them, which stand
 * above in their place. */
#undef MPI_COMM_DUP_FN
#undef MPI_COMM_NULL_COPY_FN
#undef MPI_COMM_NULL_DELETE_FN
#undef MPI_TYPE_DUP_FN
#undef MPI_TYPE_NULL_COPY_FN
#undef MPI_TYPE_NULL_DELETE_FN
#undef MPI_WIN_DUP_FN
#undef MPI_WIN_NULL_COPY_FN
#undef MPI_WIN_NULL_DELETE_FN
#undef MPI_DUP_FN
#undef MPI_NULL_COPY_FN
#undef MPI_NULL_DELETE_FN
#undef MPI_CONVERSION_FN_NULL
#undef MPI_CONVERSION_FN_NULL_C

/* In MPICH and Open MPI, procedures of a module that gfortran has compiled. */
#ifdef MPIFORT_OTHER_ABI
#define ALIAS_MODULE(name) ALIAS(__mpi_f08_callbacks_MOD_mpi_##name, mpi_##name##_)
#else
#define ALIAS_MODULE(name)
#endif
#define COPY_FUNCTIONS(word, WORD, value)                                                          \
    void mpi_##word##dup_fn_(fint *object, fint *key, value *extra, value *in, value *out,         \
                             fint *flag, fint *ierror)                                             \
    {                                                                                              \
        (void) object, (void) key, (void) extra;                                                   \
        *out = *in;                                                                                \
        *flag = 1;                                                                                 \
        *ierror = MPI_SUCCESS;                                                                     \
    }                                                                                              \
    void mpi_##word##null_copy_fn_(fint *object, fint *key, value *extra, value *in, value *out,   \
                                   fint *flag, fint *ierror)                                       \
    {                                                                                              \
        (void) object, (void) key, (void) extra, (void) in, (void) out;                            \
        *flag = 0;                                                                                 \
        *ierror = MPI_SUCCESS;                                                                     \
    }                                                                                              \
    void mpi_##word##null_delete_fn_(fint *object, fint *key, value *attribute, value *extra,      \
                                     fint *ierror)                                                 \
    {                                                                                              \
        (void) object, (void) key, (void) attribute, (void) extra;                                 \
        *ierror = MPI_SUCCESS;                                                                     \
    }                                                                                              \
    ALIASES(word##dup_fn, WORD##DUP_FN)                                                            \
    ALIASES(word##null_copy_fn, WORD##NULL_COPY_FN)                                                \
    ALIASES(word##null_delete_fn, WORD##NULL_DELETE_FN)                                            \
    ALIAS_MODULE(word##dup_fn)                                                                     \
    ALIAS_MODULE(word##null_copy_fn)                                                               \
    ALIAS_MODULE(word##null_delete_fn)
COPY_FUNCTIONS(comm_, COMM_, MPI_Aint)
COPY_FUNCTIONS(type_, TYPE_, MPI_Aint)
COPY_FUNCTIONS(win_, WIN_, MPI_Aint)
COPY_FUNCTIONS(, , fint)

/* A name for "no conversion", which nobody calls (MPI 5.0 §14.5.3). */
void mpi_conversion_fn_null_(void)
{
}
void mpi_conversion_fn_null_c_(void)
{
}
ALIASES(conversion_fn_null, CONVERSION_FN_NULL)
ALIASES(conversion_fn_null_c, CONVERSION_FN_NULL_C)
#endif
