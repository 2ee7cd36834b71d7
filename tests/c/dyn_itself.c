// No process is in both groups of an intercommunicator (MPI 5.0 section 7.6): MPI_Comm_connect to a
// port of its own is an error, and so is a meeting of groups that share a process, on all ranks of
// both. Afterwards the port is as good as before. MPI_Comm_join of two threads of a process is an
// error on both, and leaves nothing in the socket.
// ranks: 2 3
// machines: no
#include "dyn.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static char port[MPI_MAX_PORT_NAME];

/* Connects by itself, while another thread of this rank accepts with all. */
static void *visit(void *unused) {
  MPI_Comm inter;
  int class = -1;
  (void)unused;
  MPI_Error_class(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
  SAME(class, MPI_ERR_COMM);
  return NULL;
}

static void *join_end(void *fd) {
  MPI_Comm inter;
  int class = -1;
  MPI_Error_class(MPI_Comm_join(*(int *)fd, &inter), &class);
  SAME(class, MPI_ERR_COMM);
  return NULL;
}

static void join_itself(void) {
  int ends[2];
  char byte = 'x';
  pthread_t other;
  SAME(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  pthread_create(&other, NULL, join_end, &ends[1]);
  join_end(&ends[0]);
  pthread_join(other, NULL);
  for (int i = 0; i < 2; i++)
    SAME(recv(ends[i], &byte, 1, MSG_DONTWAIT), -1);
  close(ends[0]);
  close(ends[1]);
}

int main(int argc, char **argv) {
  int provided, class = -1, got = -1;
  MPI_Comm inter;
  OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  check_know_world();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int last = world_size - 1;
  join_itself();
  if (world_rank == 0) {
    OK(MPI_Open_port(MPI_INFO_NULL, port));
    MPI_Error_class(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
    SAME(class, MPI_ERR_COMM);
  }
  OK(MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD));
  for (int round = 0; round < 5; round++) {
    pthread_t visitor;
    if (world_rank == last)
      pthread_create(&visitor, NULL, visit, NULL);
    MPI_Error_class(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), &class);
    SAME(class, MPI_ERR_COMM);
    if (world_rank == last)
      pthread_join(visitor, NULL);
  }
  if (world_rank == 0) {
    OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    OK(MPI_Recv(&got, 1, MPI_INT, 0, 3, inter, MPI_STATUS_IGNORE));
    SAME(got, last);
    OK(MPI_Comm_disconnect(&inter));
    OK(MPI_Close_port(port));
  } else if (world_rank == last) {
    OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    OK(MPI_Send(&last, 1, MPI_INT, 0, 3, inter));
    OK(MPI_Comm_disconnect(&inter));
  }
  return check_end();
}
