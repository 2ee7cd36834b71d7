/* Files that are transferred again and again, which Ferry maps: the data are the same as by calls,
 * also when somebody cuts the file, and signals of the program's own go where they went. */
// ranks: 1 2 3
#include "files.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { LENGTH = 1048579, TURNS = 5 };

static unsigned char *out, *in;
static sigjmp_buf back;

static int byte_of(int rank, int turn, int i)
{
    return (rank * 57 + turn * 31 + i % 249) & 255;
}

/* Is the file among the process's mappings? */
static int is_mapped(const char *name)
{
    char line[1024];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, name) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

/* Each rank writes its part, and reads the next rank's. */
static void turn(MPI_File fh, int number)
{
    MPI_Status status;
    int other = ring(1);
    for (int i = 0; i < LENGTH; i++)
        out[i] = (unsigned char)byte_of(world_rank, number, i);
    OK(MPI_File_write_at(fh, (MPI_Offset)world_rank * LENGTH, out, LENGTH, MPI_BYTE, &status));
    SAME(bytes_of(&status), LENGTH);
    file_publish(fh);
    memset(in, 0, LENGTH);
    OK(MPI_File_read_at(fh, (MPI_Offset)other * LENGTH, in, LENGTH, MPI_BYTE, &status));
    SAME(bytes_of(&status), LENGTH);
    int wrong = 0;
    for (int i = 0; i < LENGTH; i++)
        wrong += in[i] != byte_of(other, number, i);
    CHECK(wrong == 0, "turn %d: %d bytes of rank %d are wrong", number, wrong, other);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void again_and_again(const char *name, int in_memory)
{
    MPI_File fh = file_create(name);
    MPI_Status status;
    MPI_Offset size = -1;
    for (int number = 0; number < TURNS; number++)
        turn(fh, number);
    CHECK(!in_memory || is_mapped(name), "%s is not mapped", name);
    /* By the system the same is there. */
    SAME(file_contents(name, in, LENGTH, (long long)world_rank * LENGTH), LENGTH);
    SAME(memcmp(in, out, LENGTH), 0);
    /* Somebody cuts it: reads end there, and writes make it longer. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0)
        CHECK(truncate(name, LENGTH / 2) == 0, "truncate: %s", strerror(errno));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_read_at(fh, 0, in, LENGTH, MPI_BYTE, &status));
    SAME(bytes_of(&status), LENGTH / 2);
    OK(MPI_File_read_at(fh, LENGTH / 2, in, LENGTH, MPI_BYTE, &status));
    SAME(bytes_of(&status), 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    turn(fh, TURNS);
    OK(MPI_File_get_size(fh, &size));
    SAME(size, (MPI_Offset)LENGTH * world_size);
    /* What was cut off is zeros when the file is longer again. */
    OK(MPI_File_set_size(fh, 100));
    OK(MPI_File_set_size(fh, (MPI_Offset)LENGTH * world_size));
    OK(MPI_File_read_at(fh, 99, in, 101, MPI_BYTE, &status));
    SAME(bytes_of(&status), 101);
    SAME(in[0], byte_of(0, TURNS, 99));
    for (int i = 1; i < 101; i++)
        SAME(in[i], 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    turn(fh, TURNS + 1);
    OK(MPI_File_close(&fh));
    CHECK(!is_mapped(name), "%s is mapped after its closing", name);
    file_remove(name);
}

static void on_signal(int number)
{
    siglongjmp(back, number);
}

/* The program touches a page of its own that is not there. */
static void signals_of_the_program(const char *name)
{
    int fd = open(name, O_CREAT | O_RDWR, 0600), got;
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0, "%s: %s", name, strerror(errno));
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED && ftruncate(fd, 0) == 0, "%s: %s", name, strerror(errno));
    if ((got = sigsetjmp(back, 1)) == 0)
        got = page[0] - 1000;
    SAME(got, SIGBUS);
    munmap((void *)page, 4096);
    close(fd);
    unlink(name);
}

int main(int argc, char **argv)
{
    char name[64], own[96];
    int id = (int)getpid();
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGBUS, &action, NULL);
    check_begin(&argc, &argv);
    out = malloc(LENGTH), in = malloc(LENGTH);
    OK(MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD));
    again_and_again(file_name(), 0);
    snprintf(name, sizeof name, "/dev/shm/ferry-test-%d-mapped", id);
    again_and_again(name, 1);
    snprintf(own, sizeof own, "%s-%d", name, world_rank);
    signals_of_the_program(own);
    free(in), free(out);
    return check_end();
}
