/* Functions of C that call the procedures of Fortran which a program passes. */
#include "mpifort.h"

#include <pthread.h>
#include <stdlib.h>

/* A reduction's function and an error handler have no argument by which they could find the
 * program's procedure. So each procedure gets a C function of its own from a table, and keeps it: a
 * program has few such procedures, however many operations and handlers it makes of them. */
#define TABLE_SIZE 256

struct table {
    procedure *users[TABLE_SIZE];
    int used;
};

static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of a procedure, or -1 if there are too many. */
static int place_of(struct table *table, procedure *user)
{
    pthread_mutex_lock(&tables_lock);
    int at = 0;
    while (at < table->used && table->users[at] != user)
        at++;
    if (at == table->used && at < TABLE_SIZE)
        table->users[table->used++] = user;
    pthread_mutex_unlock(&tables_lock);
    return at < TABLE_SIZE ? at : -1;
}

#define FOUR(X, n) X(n##0) X(n##1) X(n##2) X(n##3)
#define SIXTEEN(X, n) FOUR(X, n##0) FOUR(X, n##1) FOUR(X, n##2) FOUR(X, n##3)
#define SIXTY_FOUR(X, n) SIXTEEN(X, n##0) SIXTEEN(X, n##1) SIXTEEN(X, n##2) SIXTEEN(X, n##3)
#define ALL(X) SIXTY_FOUR(X, 0) SIXTY_FOUR(X, 1) SIXTY_FOUR(X, 2) SIXTY_FOUR(X, 3)
/* The number of the digits to the base of four. */
#define DIGIT(text, at) ((text[at] - '0') << (2 * (3 - (at))))
#define NUMBER(n) (DIGIT(#n, 0) + DIGIT(#n, 1) + DIGIT(#n, 2) + DIGIT(#n, 3))

static struct table ops, large_ops, comm_handlers, win_handlers, file_handlers, session_handlers;

typedef void op_procedure(void *invec, void *inoutvec, int *len, fint *datatype);
typedef void large_op_procedure(void *invec, void *inoutvec, MPI_Count *len, fint *datatype);
typedef void error_procedure(fint *object, fint *code);

static void call_op(int at, void *invec, void *inoutvec, int *len, MPI_Datatype *datatype)
{
    fint type = type_out(*datatype);
    ((op_procedure *) ops.users[at])(invec, inoutvec, len, &type);
}

static void call_large_op(int at, void *invec, void *inoutvec, MPI_Count *len,
                          MPI_Datatype *datatype)
{
    fint type = type_out(*datatype);
    ((large_op_procedure *) large_ops.users[at])(invec, inoutvec, len, &type);
}

#define OP(n)                                                                                      \
    static void op_##n(void *invec, void *inoutvec, int *len, MPI_Datatype *datatype)              \
    {                                                                                              \
        call_op(NUMBER(n), invec, inoutvec, len, datatype);                                        \
    }                                                                                              \
    static void large_op_##n(void *invec, void *inoutvec, MPI_Count *len, MPI_Datatype *datatype)  \
    {                                                                                              \
        call_large_op(NUMBER(n), invec, inoutvec, len, datatype);                                  \
    }
ALL(OP)

#define HANDLER(n, word, type)                                                                     \
    static void word##_handler_##n(type *object, int *code, ...)                                   \
    {                                                                                              \
        fint number = word##_out(*object);                                                         \
        ((error_procedure *) word##_handlers.users[NUMBER(n)])(&number, code);                     \
    }
#define HANDLERS(n)                                                                                \
    HANDLER(n, comm, MPI_Comm)                                                                     \
    HANDLER(n, win, MPI_Win)                                                                       \
    HANDLER(n, file, MPI_File)                                                                     \
    HANDLER(n, session, MPI_Session)
ALL(HANDLERS)

#define FUNCTION(name, type, table, prefix)                                                        \
    type *name(procedure *user)                                                                    \
    {                                                                                              \
        static type *const all[] = {ALL(prefix)};                                                  \
        int at = place_of(&table, user);                                                           \
        return at < 0 ? NULL : all[at];                                                            \
    }
#define OP_NAME(n) op_##n,
#define LARGE_OP_NAME(n) large_op_##n,
#define COMM_NAME(n) comm_handler_##n,
#define WIN_NAME(n) win_handler_##n,
#define FILE_NAME(n) file_handler_##n,
#define SESSION_NAME(n) session_handler_##n,
FUNCTION(op_function, MPI_User_function, ops, OP_NAME)
FUNCTION(op_function_c, MPI_User_function_c, large_ops, LARGE_OP_NAME)
FUNCTION(comm_error_function, MPI_Comm_errhandler_function, comm_handlers, COMM_NAME)
FUNCTION(win_error_function, MPI_Win_errhandler_function, win_handlers, WIN_NAME)
FUNCTION(file_error_function, MPI_File_errhandler_function, file_handlers, FILE_NAME)
FUNCTION(session_error_function, MPI_Session_errhandler_function, session_handlers, SESSION_NAME)
