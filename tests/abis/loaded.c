/* A program that loads an MPI by its name while it runs, as NEURON does, and tells Open MPI's ABI
 * from MPICH's by a function of Open MPI's inside: `loaded NAME (mpich|openmpi)`. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!library) {
        printf("%s\n", argc == 3 ? dlerror() : "loaded NAME ABI");
        return 1;
    }
    int (*init)(int *, char ***, int, int *);
    int (*inside)(int, char **, int, int *, _Bool);
    int (*initialized)(int *), (*finalize)(void);
    *(void **)&init = dlsym(library, "MPI_Init_thread");
    *(void **)&inside = dlsym(library, "ompi_mpi_init");
    *(void **)&initialized = dlsym(library, "MPI_Initialized");
    *(void **)&finalize = dlsym(library, "MPI_Finalize");
    int openmpi = strcmp(argv[2], "openmpi") == 0, provided = -1, flag = 0;
    if (openmpi != (inside != NULL)) {
        printf("%s: ompi_mpi_init is %p\n", argv[1], *(void **)&inside);
        return 1;
    }
    int error = openmpi ? inside(argc, argv, 0, &provided, 0) : init(&argc, &argv, 0, &provided);
    /* Once more, which is asked to be no error. */
    if (!error && openmpi)
        error = inside(argc, argv, 0, &provided, 1);
    if (!error)
        error = initialized(&flag);
    if (error || !flag || provided < 0) {
        printf("%s: error %d, initialized %d, threads %d\n", argv[1], error, flag, provided);
        return 1;
    }
    return finalize();
}
