/* Files as the system has them, and types as lists of offsets: what the tests of files (MPI 5.0
 * chapter 14) share. The files of a test lie in its working directory, which tests/run makes for
 * each run. */
#ifndef FERRY_TESTS_FILES_H
#define FERRY_TESTS_FILES_H

#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A name for a file, the same on all ranks that ask as often. */
UNUSED static const char *file_name(void)
{
    static char names[4][32];
    static int next;
    char *name = names[next % 4];
    snprintf(name, sizeof names[0], "file-%d", next++);
    return name;
}

/* Bytes of a file, or -1 if there is none. */
UNUSED static long long file_length(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 ? (long long)status.st_size : -1;
}

/* Reads bytes of a file by the system, at most `most` from `offset` on. Returns how many. */
UNUSED static size_t file_contents(const char *name, void *at, size_t most, long long offset)
{
    int fd = open(name, O_RDONLY);
    size_t done = 0;
    ssize_t now = 1;
    CHECK(fd >= 0, "%s cannot be opened: %s", name, strerror(errno));
    while (done < most && now > 0) {
        now = pread(fd, (char *)at + done, most - done, (off_t)offset + (off_t)done);
        done += now > 0 ? (size_t)now : 0;
    }
    close(fd);
    return done;
}

/* Rank 0 of the world makes a file of these bytes. Collective. */
UNUSED static void file_make(const char *name, const void *bytes, size_t length)
{
    if (world_rank == 0) {
        int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0666);
        CHECK(fd >= 0 && pwrite(fd, bytes, length, 0) == (ssize_t)length, "%s: %s", name,
              strerror(errno));
        close(fd);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Rank 0 of the world deletes a file, when all ranks have come. Collective. */
UNUSED static void file_remove(const char *name)
{
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 0)
        CHECK(unlink(name) == 0, "%s: %s", name, strerror(errno));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Opens a file on all ranks of the world. */
UNUSED static MPI_File file_open(const char *name, int amode, MPI_Info info)
{
    MPI_File fh = MPI_FILE_NULL;
    OK(MPI_File_open(MPI_COMM_WORLD, name, amode, info, &fh));
    return fh;
}

UNUSED static MPI_File file_create(const char *name)
{
    return file_open(name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL);
}

/* What one rank has written is seen by all afterwards (MPI 5.0 section 14.6.1). Collective. */
UNUSED static void file_publish(MPI_File fh)
{
    OK(MPI_File_sync(fh));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(fh));
}

/* File descriptors that this process has open. */
UNUSED static int descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    while (all && readdir(all))
        count++;
    if (all)
        closedir(all);
    return count;
}

/* How many bytes a status says. */
UNUSED static long long bytes_of(const MPI_Status *status)
{
    MPI_Count bytes = -1;
    OK(MPI_Get_elements_c(status, MPI_BYTE, &bytes));
    return bytes;
}

/* A type as the offsets of its bytes, in the order of its type map. */
typedef struct {
    int bytes;
    long long lb, extent, low, high; /* of the offsets: the least, and behind the greatest */
    int *offsets;
} Map;

/* What each byte of a type is, is found out by unpacking numbers to it. */
UNUSED static Map map_of(MPI_Datatype type)
{
    Map map = {0};
    MPI_Count lb, extent, low, true_extent;
    OK(MPI_Type_size(type, &map.bytes));
    OK(MPI_Type_get_extent_c(type, &lb, &extent));
    OK(MPI_Type_get_true_extent_c(type, &low, &true_extent));
    map.lb = lb, map.extent = extent, map.low = low, map.high = low + true_extent;
    map.offsets = malloc((size_t)map.bytes * sizeof(int) + 1);
    size_t span = (size_t)true_extent;
    unsigned char *numbers = malloc((size_t)map.bytes + 1), *memory = malloc(span + 1);
    for (size_t i = 0; i < (size_t)map.bytes; i++)
        map.offsets[i] = 0;
    /* The bytes of an offset one after the other: packed, they come in the type's order. */
    for (int part = 0; part < 24; part += 8) {
        for (size_t at = 0; at < span; at++)
            memory[at] = (unsigned char)(at >> part);
        int position = 0;
        OK(MPI_Pack(memory - low, 1, type, numbers, map.bytes, &position, MPI_COMM_SELF));
        for (int i = 0; i < map.bytes; i++)
            map.offsets[i] |= numbers[i] << part;
    }
    for (int i = 0; i < map.bytes; i++)
        map.offsets[i] += (int)low;
    free(numbers);
    free(memory);
    return map;
}

/* Where byte number `n` of elements of a type lies. */
UNUSED static long long map_place(const Map *map, long long n)
{
    return n / map->bytes * map->extent + map->offsets[n % map->bytes];
}

UNUSED static void map_free(Map *map)
{
    free(map->offsets);
    map->offsets = NULL;
}

#endif
