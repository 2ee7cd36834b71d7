"""Mandelbrot's set in the terminal: rank 0 hands out lines, the others compute them, whoever is
free gets the next.

mpiexec -n 4 python examples/mandelbrot.py
"""

import sys

from mpi4py import MPI

WIDTH, HEIGHT, DEPTH = 100, 36, 1500
SHADES = " .:-=+*#%@"
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size


def line(y):
    """How many steps each point of a line takes to escape; DEPTH if it does not."""
    counts = []
    for x in range(WIDTH):
        c = complex(-2.2 + 3.2 * x / (WIDTH - 1), -1.2 + 2.4 * y / (HEIGHT - 1))
        z, n = 0j, 0
        while n < DEPTH and z.real * z.real + z.imag * z.imag < 4.0:
            z, n = z * z + c, n + 1
        counts.append(n)
    return counts


start = MPI.Wtime()
if size == 1:
    lines = {y: (0, line(y)) for y in range(HEIGHT)}
elif rank == 0:
    lines, status, following, working = {}, MPI.Status(), 0, size - 1
    while working:
        result = comm.recv(source=MPI.ANY_SOURCE, status=status)
        if result is not None:
            lines[result[0]] = (status.source, result[1])
        comm.send(following if following < HEIGHT else None, dest=status.source)
        working -= following >= HEIGHT
        following += 1
else:
    comm.send(None, dest=0)
    while (y := comm.recv(source=0)) is not None:
        comm.send((y, line(y)), dest=0)

if rank == 0:
    for y in range(HEIGHT):
        print(
            "".join(
                SHADES[min(len(SHADES) - 1, n.bit_length() - 1)] if n < DEPTH else " "
                for n in lines[y][1]
            )
        )
    shares = [sum(1 for worker, _ in lines.values() if worker == r) for r in range(size)]
    print(f"{MPI.Wtime() - start:.2f} s; lines computed by each rank: {shares}")

# The same once more with a collective: the area of the set, from how many points never escaped.
inside = sum(n >= DEPTH for y in range(rank, HEIGHT, size) for n in line(y))
area = comm.allreduce(inside) * 3.2 * 2.4 / WIDTH / HEIGHT
if rank == 0:
    print(
        f"area of the set: about {area:.2f} (known: 1.51), with"
        f" {MPI.Get_library_version().splitlines()[0].strip(chr(0))}"
    )
    sys.exit(0 if abs(area - 1.51) < 0.1 else 1)
