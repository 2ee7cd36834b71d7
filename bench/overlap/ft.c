/* Three-dimensional FFT, after the public specification of the NAS parallel benchmarks (FT): a
 * random field is transformed, and in each iteration evolved and transformed back; slabs, one
 * all-to-all a transform. Verified: the transform and its inverse give the field back; the
 * checksums are those of the run without overlap, to the last bit.
 *   ft LOG2NX LOG2NY LOG2NZ ITERATIONS ROUNDS   both ways in turn; prints one line of JSON, seconds
 * (the least of the rounds, of the slowest rank) */
#include "kernel.h"

#include <complex.h>
#include <stdint.h>

typedef double complex cplx;
static int ny;
static cplx *u0, *u1, *out, *in, *roots;
static double in_calls;

static void fft(cplx *a, int n, int stride_root, int sign)
{
    for (int i = 1, j = 0; i < n; i++) {
        int bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j |= bit;
        if (i < j) {
            cplx s = a[i];
            a[i] = a[j], a[j] = s;
        }
    }
    for (int len = 2; len <= n; len <<= 1)
        for (int i = 0; i < n; i += len)
            for (int k = 0; k < len / 2; k++) {
                cplx w = roots[stride_root * (n / len) * k];
                if (sign < 0)
                    w = conj(w);
                cplx x = a[i + k], y = a[i + k + len / 2] * w;
                a[i + k] = x + y;
                a[i + k + len / 2] = x - y;
            }
}

static int most;

/* From z planes of [y][x] to x planes of [y][z], through an all-to-all. Back it is called with nx
 * and nz exchanged. */
static void transform(const cplx *from, cplx *to, int nx, int nz, int sign, MPI_Comm comm)
{
    cplx line[2048];
    /* Planes of z here before the transposition, of x after it. */
    int lz = nz / size, lx = nx / size;
    for (int z = 0; z < lz; z++) {
        for (int y = 0; y < ny; y++) {
            const cplx *row = from + ((size_t)z * ny + y) * nx;
            memcpy(line, row, sizeof(cplx) * (size_t)nx);
            fft(line, nx, most / nx, sign);
            memcpy(to + ((size_t)z * ny + y) * nx, line, sizeof(cplx) * (size_t)nx);
        }
        for (int x = 0; x < nx; x++) {
            for (int y = 0; y < ny; y++)
                line[y] = to[((size_t)z * ny + y) * nx + x];
            fft(line, ny, most / ny, sign);
            for (int y = 0; y < ny; y++) /* block of the rank that has x: [x][y][z] */
                out[(((size_t)(x / lx) * lx + x % lx) * ny + y) * lz + z] = line[y];
        }
    }
    int block = lx * ny * lz;
    double t = MPI_Wtime();
    MPI_Alltoall(out, block, MPI_C_DOUBLE_COMPLEX, in, block, MPI_C_DOUBLE_COMPLEX, comm);
    in_calls += MPI_Wtime() - t;
    /* Line by line: its pieces are taken from all blocks and transformed while they are in the
     * cache. */
    for (size_t i = 0; i < (size_t)lx * ny; i++) {
        for (int r = 0; r < size; r++)
            memcpy(to + i * nz + (size_t)r * lz, in + ((size_t)r * lx * ny + i) * lz,
                   sizeof(cplx) * (size_t)lz);
        fft(to + i * nz, nz, most / nz, sign);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int nx = 1 << atoi(argv[1]), nz = 1 << atoi(argv[3]);
    ny = 1 << atoi(argv[2]);
    int iterations = atoi(argv[4]), rounds = atoi(argv[5]) < ROUNDS ? atoi(argv[5]) : ROUNDS;
    int lx = nx / size;
    most = nx > ny ? nx : ny;
    most = nz > most ? nz : most;
    size_t n = (size_t)nx * ny * (size_t)(nz / size);
    u0 = malloc(n * sizeof(cplx)), u1 = malloc(n * sizeof(cplx)), out = malloc(n * sizeof(cplx)),
    in = malloc(n * sizeof(cplx));
    roots = malloc((size_t)most * sizeof(cplx));
    cplx *field = malloc(n * sizeof(cplx)), *w = malloc(n * sizeof(cplx));
    for (int i = 0; i < most; i++)
        roots[i] = cexp(2 * M_PI * I * i / most);
    uint64_t x = 314159265ULL * (uint64_t)(rank + 1) & ((1ULL << 46) - 1);
    for (size_t i = 0; i < n; i++) {
        double part[2];
        for (int k = 0; k < 2; k++) {
            x = x * 1220703125ULL & ((1ULL << 46) - 1);
            part[k] = (double)x / 70368744177664.0;
        }
        field[i] = part[0] + part[1] * I;
    }
    double sums[2][64][2];
    for (int round = 0; round <= rounds; round++)
        for (int nth = 0; nth < 2; nth++) {
            int on = way(round, nth);
            in_calls = 0;
            MPI_Barrier(MPI_COMM_WORLD);
            double a = MPI_Wtime();
            transform(field, u0, nx, nz, 1, comms[on]);
            for (int it = 1; it <= iterations; it++) {
                for (int xx = 0; xx < lx; xx++)
                    for (int y = 0; y < ny; y++)
                        for (int z = 0; z < nz; z++) {
                            int kx = xx + rank * lx, ky = y, kz = z;
                            kx = kx > nx / 2 ? kx - nx : kx, ky = ky > ny / 2 ? ky - ny : ky,
                            kz = kz > nz / 2 ? kz - nz : kz;
                            size_t at = ((size_t)xx * ny + y) * nz + z;
                            u1[at] = u0[at] * exp(-4e-6 * M_PI * M_PI * it *
                                                  (double)(kx * kx + ky * ky + kz * kz));
                        }
                /* Back: x and z have changed places. */
                transform(u1, w, nz, nx, -1, comms[on]);
                cplx sum = 0;
                for (size_t j = 0; j < 1024; j++)
                    sum += w[j * 977 % n] / ((double)nx * ny * nz);
                double mine[2] = {creal(sum), cimag(sum)};
                MPI_Allreduce(mine, sums[on][it], 2, MPI_DOUBLE, MPI_SUM, comms[on]);
            }
            double took = longest(MPI_Wtime() - a), calls = longest(in_calls);
            if (round > 0)
                t[on][round - 1] = took, call[on][round - 1] = calls;
        }
    /* Forward and back gives the field, with x and z exchanged twice. */
    transform(field, u0, nx, nz, 1, comms[1]);
    transform(u0, w, nz, nx, -1, comms[1]);
    double off = 0;
    for (size_t i = 0; i < n; i++) {
        double d = cabs(w[i] / ((double)nx * ny * nz) - field[i]);
        off = d > off ? d : off;
    }
    int same = memcmp(&sums[0][1], &sums[1][1], sizeof(double) * 2 * (size_t)iterations) == 0;
    if (!(off < 1e-9) || !same) {
        fprintf(stderr, "rank %d: %s (off by %g)\n", rank,
                same ? "the inverse transform does not give the field back"
                     : "other checksums with overlap",
                off);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    say("FT", rounds);
    MPI_Finalize();
    return 0;
}
