/* While a child that has disconnected sleeps, its launcher and the mpiexec that started that, whose
 * own ranks have ended, use no processor. */
#include "../c/check.h"

#include <unistd.h>

/* A field of /proc/PID/stat, counted from 1. */
static long field(int pid, int number)
{
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL, "%s cannot be read", path);
    if (!file)
        return 0;
    CHECK(fread(text, 1, sizeof text - 1, file) > 0, "%s is empty", path);
    fclose(file);
    char *at = strrchr(text, ')');
    for (int i = 2; at && i < number; i++)
        at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : 0;
}

/* Clock ticks that this process's launcher and the first one, its parent, have used. */
static long ticks(void)
{
    int launcher = getppid(), first = (int)field(launcher, 4);
    return field(launcher, 14) + field(launcher, 15) + field(first, 14) + field(first, 15);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm parent, child;
    OK(MPI_Comm_get_parent(&parent));
    if (parent == MPI_COMM_NULL) {
        OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child,
                          MPI_ERRCODES_IGNORE));
        OK(MPI_Comm_disconnect(&child));
        return check_end();
    }
    OK(MPI_Comm_disconnect(&parent));
    long before = ticks();
    sleep(1); /* what is tested */
    long used = ticks() - before;
    CHECK(used < sysconf(_SC_CLK_TCK) / 4, "the launchers used %ld ticks in a second", used);
    return check_end();
}
