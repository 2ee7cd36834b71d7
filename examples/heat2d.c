/* Heat spreading through a plate with a labyrinth of insulating walls, on any number of ranks.
 *
 *     mpicc -O2 examples/heat2d.c -o heat2d -lm && mpiexec -n 4 ./heat2d heat.png
 *
 * The plate is cut into a grid of blocks, one for each rank (MPI_Cart_create). In every step a rank
 * computes its block and swaps the block's edges with its four neighbours: rows as they lie,
 * columns as an MPI vector type. At the end rank 0 collects the blocks with subarray types and
 * writes a picture: temperature as colour, isotherms as fine dark lines, walls in grey.
 *
 * With CHECKPOINT, all ranks write the plate to that file now and then, collectively: each has its
 * block as its view of the file. If the file is there at the beginning, the computation goes on
 * from it, on as many ranks as there are then.
 *
 *     heat2d [PICTURE.png [WIDTH HEIGHT STEPS [CHECKPOINT]]] */
#include <mpi.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int width = 720, height = 480, steps = 12000;

/* What a place of the plate is: an insulating wall, a spot kept at one temperature, or free. */
enum Place { FREE, WALL, FIXED };

static enum Place place(int x, int y, double *temperature)
{
    double u = (double)x / height, v = (double)y / height, right = (double)width / height;
    /* The hot core at the middle of a spiral, and a cold frame. */
    double cx = u - right / 2, cy = v - 0.5, radius = hypot(cx, cy), angle = atan2(cy, cx);
    if (radius < 0.045) {
        *temperature = 1;
        return FIXED;
    }
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        *temperature = 0;
        return FIXED;
    }
    /* Two small ovens off the spiral. */
    if (hypot(u - 0.14, v - 0.82) < 0.03 || hypot(u - (right - 0.14), v - 0.18) < 0.03) {
        *temperature = 0.8;
        return FIXED;
    }
    /* A spiral of two and a half turns; its wall is 0.011 thick. */
    for (int turn = 0; turn < 3; turn++) {
        double along = angle + M_PI + 2 * M_PI * turn, wall = 0.09 + 0.0235 * along;
        if (along < 5 * M_PI && fabs(radius - wall) < 0.0055)
            return WALL;
    }
    return FREE;
}

/* A PNG without a compression library: the deflate stream consists of stored blocks. */

static uint32_t crc_of(uint32_t crc, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return crc;
}

static void big_endian(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void chunk(FILE *file, const char *type, const unsigned char *data, size_t n)
{
    unsigned char number[4];
    big_endian(number, (uint32_t)n);
    fwrite(number, 1, 4, file);
    fwrite(type, 1, 4, file);
    fwrite(data, 1, n, file);
    uint32_t crc =
        crc_of(crc_of(0xffffffffu, (const unsigned char *)type, 4), data, n) ^ 0xffffffffu;
    big_endian(number, crc);
    fwrite(number, 1, 4, file);
}

static int write_png(const char *name, const unsigned char *rgb, int w, int h)
{
    FILE *file = fopen(name, "wb");
    if (!file)
        return 0;
    size_t row = 3 * (size_t)w + 1, raw = row * (size_t)h, blocks = raw / 65535 + 1;
    unsigned char *data = malloc(raw + 5 * blocks + 6), *at = data;
    unsigned char *lines = malloc(raw);
    for (int y = 0; y < h; y++) {
        lines[row * (size_t)y] = 0; /* no filter */
        memcpy(lines + row * (size_t)y + 1, rgb + 3 * (size_t)w * (size_t)y, 3 * (size_t)w);
    }
    *at++ = 0x78;
    *at++ = 0x01;
    for (size_t done = 0; done < raw;) {
        size_t n = raw - done < 65535 ? raw - done : 65535;
        *at++ = done + n == raw; /* last block? */
        *at++ = (unsigned char)n;
        *at++ = (unsigned char)(n >> 8);
        *at++ = (unsigned char)~n;
        *at++ = (unsigned char)(~n >> 8);
        memcpy(at, lines + done, n);
        at += n;
        done += n;
    }
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < raw; i++) {
        a = (a + lines[i]) % 65521;
        b = (b + a) % 65521;
    }
    big_endian(at, b << 16 | a);
    at += 4;
    unsigned char header[13] = {0};
    big_endian(header, (uint32_t)w);
    big_endian(header + 4, (uint32_t)h);
    header[8] = 8; /* bits */
    header[9] = 2; /* red, green, blue */
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, file);
    chunk(file, "IHDR", header, sizeof header);
    chunk(file, "IDAT", data, (size_t)(at - data));
    chunk(file, "IEND", NULL, 0);
    free(lines);
    free(data);
    return fclose(file) == 0;
}

/* Black through violet, red and orange to pale yellow. */
static void colour(double t, unsigned char *rgb)
{
    static const double stops[][3] = {{4, 3, 18},     {40, 11, 84},   {101, 21, 110},
                                      {159, 42, 99},  {212, 72, 66},  {245, 125, 21},
                                      {250, 193, 39}, {252, 255, 196}};
    double at = t * 7;
    int i = at >= 7 ? 6 : at < 0 ? 0 : (int)at;
    double part = at - i;
    for (int k = 0; k < 3; k++)
        rgb[k] = (unsigned char)(stops[i][k] + (stops[i + 1][k] - stops[i][k]) * part + 0.5);
}

static int picture(const char *name, const float *plate)
{
    unsigned char *rgb = malloc(3 * (size_t)width * (size_t)height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            double ignored, t = plate[(size_t)y * (size_t)width + (size_t)x];
            unsigned char *pixel = rgb + 3 * ((size_t)y * (size_t)width + (size_t)x);
            if (place(x, y, &ignored) == WALL) {
                memset(pixel, 0x90, 3);
                continue;
            }
            double shown = pow(t, 0.45); /* shows the faint warmth far out */
            colour(shown, pixel);
            if (x + 1 < width && y + 1 < height) {
                double right = pow(plate[(size_t)y * (size_t)width + (size_t)x + 1], 0.45);
                double below = pow(plate[((size_t)y + 1) * (size_t)width + (size_t)x], 0.45);
                int here = (int)(shown * 16);
                if (here != (int)(right * 16) || here != (int)(below * 16))
                    for (int k = 0; k < 3; k++)
                        pixel[k] = (unsigned char)(pixel[k] * 0.62);
            }
        }
    int written = write_png(name, rgb, width, height);
    free(rgb);
    return written;
}

/* The first of `whole` places that block `i` of `blocks` has. */
static int first(int whole, int blocks, int i)
{
    return (int)((long)whole * i / blocks);
}

/* The checkpoint: the step, and the plate row by row. It is written beside the old one, which it
 * then replaces, so that there always is a whole one. */

static void must(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void save(const char *name, MPI_Comm comm, long step, const float *now, MPI_Datatype block,
                 MPI_Datatype part)
{
    char beside[4096];
    int rank;
    MPI_File file;
    MPI_Comm_rank(comm, &rank);
    snprintf(beside, sizeof beside, "%s.new", name);
    must(MPI_File_open(comm, beside, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
         beside);
    if (rank == 0)
        must(MPI_File_write_at(file, 0, &step, 1, MPI_LONG, MPI_STATUS_IGNORE), beside);
    must(MPI_File_set_view(file, sizeof step, MPI_FLOAT, part, "native", MPI_INFO_NULL), beside);
    must(MPI_File_write_all(file, now, 1, block, MPI_STATUS_IGNORE), beside);
    must(MPI_File_sync(file), beside);
    must(MPI_File_close(&file), beside);
    if (rank == 0 && rename(beside, name) != 0) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The step to go on from; 0 if there is no checkpoint of this plate. */
static long restored(const char *name, MPI_Comm comm, float *now, MPI_Datatype block,
                     MPI_Datatype part)
{
    MPI_File file;
    MPI_Offset size;
    long step;
    if (MPI_File_open(comm, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        return 0;
    must(MPI_File_get_size(file, &size), name);
    if (size != (MPI_Offset)sizeof step + (MPI_Offset)sizeof *now * width * height) {
        must(MPI_File_close(&file), name);
        return 0;
    }
    must(MPI_File_read_at_all(file, 0, &step, 1, MPI_LONG, MPI_STATUS_IGNORE), name);
    must(MPI_File_set_view(file, sizeof step, MPI_FLOAT, part, "native", MPI_INFO_NULL), name);
    must(MPI_File_read_all(file, now, 1, block, MPI_STATUS_IGNORE), name);
    must(MPI_File_close(&file), name);
    return step;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int ranks, rank, grid[2] = {0, 0}, periods[2] = {0, 0}, me[2], north, south, west, east;
    if (argc > 4)
        width = atoi(argv[2]), height = atoi(argv[3]), steps = atoi(argv[4]);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, grid);
    MPI_Comm comm;
    MPI_Cart_create(MPI_COMM_WORLD, 2, grid, periods, 1, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Cart_coords(comm, rank, 2, me);
    MPI_Cart_shift(comm, 0, 1, &north, &south);
    MPI_Cart_shift(comm, 1, 1, &west, &east);

    int y0 = first(height, grid[0], me[0]), h = first(height, grid[0], me[0] + 1) - y0;
    int x0 = first(width, grid[1], me[1]), w = first(width, grid[1], me[1] + 1) - x0;
    int row =
        w + 2; /* the block has a margin of one place all round, for what the neighbours send */
    float *now = calloc((size_t)row * (size_t)(h + 2), sizeof *now),
          *next = calloc((size_t)row * (size_t)(h + 2), sizeof *next);
    /* How much of each neighbour's difference flows in: nothing from and into walls and fixed
     * spots. */
    float *flow = calloc(4 * (size_t)row * (size_t)(h + 2), sizeof *flow);
    for (int y = 1; y <= h; y++)
        for (int x = 1; x <= w; x++) {
            double t = 0, ignored;
            size_t at = (size_t)y * (size_t)row + (size_t)x;
            enum Place here = place(x0 + x - 1, y0 + y - 1, &t);
            now[at] = next[at] = here == FIXED ? (float)t : 0;
            static const int dx[4] = {0, 0, -1, 1}, dy[4] = {-1, 1, 0, 0};
            for (int k = 0; k < 4 && here == FREE; k++)
                flow[4 * at + (size_t)k] =
                    place(x0 + x - 1 + dx[k], y0 + y - 1 + dy[k], &ignored) == WALL ? 0 : 0.24f;
        }

    MPI_Datatype column;
    MPI_Type_vector(h, 1, row, MPI_FLOAT, &column);
    MPI_Type_commit(&column);
    if (rank == 0)
        printf("%d x %d places on %d ranks (%d x %d blocks), %d steps\n", width, height, ranks,
               grid[0], grid[1], steps);
    /* The block within its margin, and within the plate. */
    int sizes[2] = {h + 2, row}, inner[2] = {h, w}, from[2] = {1, 1};
    int whole[2] = {height, width}, corner[2] = {y0, x0};
    MPI_Datatype block, part;
    MPI_Type_create_subarray(2, sizes, inner, from, MPI_ORDER_C, MPI_FLOAT, &block);
    MPI_Type_create_subarray(2, whole, inner, corner, MPI_ORDER_C, MPI_FLOAT, &part);
    MPI_Type_commit(&block);
    MPI_Type_commit(&part);
    const char *checkpoint = argc > 5 ? argv[5] : NULL;
    long begun = checkpoint ? restored(checkpoint, comm, now, block, part) : 0;
    if (begun > 0 && rank == 0)
        printf("going on from step %ld in %s\n", begun, checkpoint);
    double start = MPI_Wtime(), change = 0;
    for (int step = (int)begun; step < steps; step++) {
        MPI_Request r[8];
        MPI_Irecv(now + 1, w, MPI_FLOAT, north, 0, comm, &r[0]);
        MPI_Irecv(now + (size_t)(h + 1) * (size_t)row + 1, w, MPI_FLOAT, south, 0, comm, &r[1]);
        MPI_Irecv(now + row, 1, column, west, 0, comm, &r[2]);
        MPI_Irecv(now + row + w + 1, 1, column, east, 0, comm, &r[3]);
        MPI_Isend(now + row + 1, w, MPI_FLOAT, north, 0, comm, &r[4]);
        MPI_Isend(now + (size_t)h * (size_t)row + 1, w, MPI_FLOAT, south, 0, comm, &r[5]);
        MPI_Isend(now + row + 1, 1, column, west, 0, comm, &r[6]);
        MPI_Isend(now + row + w, 1, column, east, 0, comm, &r[7]);
        MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
        float most = 0;
        for (int y = 1; y <= h; y++)
            for (int x = 1; x <= w; x++) {
                size_t at = (size_t)y * (size_t)row + (size_t)x;
                const float *f = flow + 4 * at;
                float t = now[at], d = f[0] * (now[at - (size_t)row] - t) +
                                       f[1] * (now[at + (size_t)row] - t) +
                                       f[2] * (now[at - 1] - t) + f[3] * (now[at + 1] - t);
                float size = d < 0 ? -d : d;
                next[at] = t + d;
                most = size > most ? size : most;
            }
        float *swap = now;
        now = next, next = swap;
        if (step % 3000 == 2999 || step == steps - 1) {
            double mine = most;
            MPI_Reduce(&mine, &change, 1, MPI_DOUBLE, MPI_MAX, 0, comm);
            if (rank == 0)
                printf("step %6d: greatest change in a step %.2e\n", step + 1, change);
            if (checkpoint)
                save(checkpoint, comm, step + 1, now, block, part);
        }
    }
    double took = MPI_Wtime() - start;

    /* Everybody sends its block, rank 0 lays the blocks into the plate. */
    MPI_Request sent;
    MPI_Isend(now, 1, block, 0, 1, comm, &sent);
    if (rank == 0) {
        float *plate = malloc((size_t)width * (size_t)height * sizeof *plate);
        for (int of = 0; of < ranks; of++) {
            int at[2];
            MPI_Cart_coords(comm, of, 2, at);
            int their_corner[2] = {first(height, grid[0], at[0]), first(width, grid[1], at[1])};
            int their_part[2] = {first(height, grid[0], at[0] + 1) - their_corner[0],
                                 first(width, grid[1], at[1] + 1) - their_corner[1]};
            MPI_Datatype theirs;
            MPI_Type_create_subarray(2, whole, their_part, their_corner, MPI_ORDER_C, MPI_FLOAT,
                                     &theirs);
            MPI_Type_commit(&theirs);
            MPI_Recv(plate, 1, theirs, of, 1, comm, MPI_STATUS_IGNORE);
            MPI_Type_free(&theirs);
        }
        double warmth = 0;
        for (int i = 0; i < width * height; i++)
            warmth += plate[i];
        printf("%.2f s, %.0f million places a second; mean temperature %.6f\n", took,
               1e-6 * width * height * (double)(steps - begun) / took, warmth / width / height);
        if (argc > 1) {
            if (picture(argv[1], plate))
                printf("%s is written\n", argv[1]);
            else
                printf("%s cannot be written\n", argv[1]);
        }
        free(plate);
    }
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Type_free(&part);
    MPI_Type_free(&block);
    MPI_Type_free(&column);
    MPI_Comm_free(&comm);
    free(now), free(next), free(flow);
    MPI_Finalize();
    return 0;
}
