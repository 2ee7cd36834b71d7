/* Spawns again and again: `leaks TIMES`. Descriptors and mappings stay as many, memory stays. */
#include "../c/check.h"

#include <dirent.h>

static int entries(const char *folder)
{
    int n = 0;
    DIR *opened = opendir(folder);
    while (readdir(opened))
        n++;
    closedir(opened);
    return n;
}

static int lines(const char *file)
{
    int n = 0, c;
    FILE *opened = fopen(file, "r");
    while ((c = getc(opened)) != EOF)
        n += c == '\n';
    fclose(opened);
    return n;
}

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *opened = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, opened))
        if (!strncmp(line, "VmRSS:", 6))
            kb = atol(line + 6);
    fclose(opened);
    return kb;
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv);
    MPI_Comm parent, inter;
    int word = 0, fds = 0, maps = 0;
    long kb = 0;
    OK(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        OK(MPI_Bcast(&word, 1, MPI_INT, 0, parent));
        SAME(word, 4711);
        OK(MPI_Barrier(parent));
        OK(MPI_Comm_disconnect(&parent));
        return check_end();
    }
    int times = atoi(argv[1]);
    for (int i = 0; i < times; i++) {
        word = 4711;
        OK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                          MPI_ERRCODES_IGNORE));
        OK(MPI_Bcast(&word, 1, MPI_INT, world_rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
        OK(MPI_Barrier(inter));
        OK(MPI_Comm_disconnect(&inter));
        if (i == times / 4)
            fds = entries("/proc/self/fd"), maps = lines("/proc/self/maps"), kb = resident_kb();
    }
    int more = entries("/proc/self/fd") - fds;
    /* One connection may not have got the last close notification yet. */
    SAME(!!(more <= 2), 1);
    SAME(!!(lines("/proc/self/maps") - maps <= 8), 1);
    SAME(!!(resident_kb() - kb <= 2048), 1);
    return check_end();
}
