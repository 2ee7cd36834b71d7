// Two halves of the job meet at a port: messages, collectives, a merge, duplicates and splits of
// the intercommunicator, windows on the merged one; errors of ports (MPI 5.0 §11.9).
// ranks: 2 3 4 7
// machines: no
// time: 120
#include "dyn.h"

int main(int argc, char **argv) {
  check_begin(&argc, &argv);
  int rank = world_rank, size = world_size;
  int low = rank < size / 2, first_high = size / 2;
  MPI_Comm half, inter;
  MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
  char port[MPI_MAX_PORT_NAME] = "";

  for (int round = 0; round < 3; round++) {
    if (rank == 0) {
      SAME(MPI_Open_port(MPI_INFO_NULL, port), MPI_SUCCESS);
      MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, first_high, 0, MPI_COMM_WORLD);
    } else if (rank == first_high) {
      MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    // The name matters at the root only.
    if (low)
      MPI_Comm_accept(rank == 0 ? port : NULL, MPI_INFO_NULL, 0, half, &inter);
    else
      MPI_Comm_connect(rank == first_high ? port : NULL, MPI_INFO_NULL, 0, half, &inter);
    use(inter, low);
    MPI_Comm_disconnect(&inter);
    SAME(inter, MPI_COMM_NULL);
    if (rank == 0)
      SAME(MPI_Close_port(port), MPI_SUCCESS);
  }

  // Several accepts at one port; others wait there meanwhile.
  if (rank == 0)
    MPI_Open_port(MPI_INFO_NULL, port);
  MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    for (int i = 1; i < size; i++) {
      int got = -1;
      MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
      MPI_Recv(&got, 1, MPI_INT, 0, 3, inter, MPI_STATUS_IGNORE);
      SAME(!!(got > 0 && got < size), 1);
      MPI_Send(&got, 1, MPI_INT, 0, 4, inter);
      MPI_Comm_disconnect(&inter);
    }
  } else {
    int got = -1;
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    MPI_Send(&rank, 1, MPI_INT, 0, 3, inter);
    MPI_Recv(&got, 1, MPI_INT, 0, 4, inter, MPI_STATUS_IGNORE);
    SAME(got, rank);
    MPI_Comm_disconnect(&inter);
  }

  // Wrong names, and a port that is closed: MPI_ERR_PORT on every rank of the group.
  OK(MPI_Barrier(MPI_COMM_WORLD));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
  int class;
  MPI_Error_class(MPI_Comm_connect("nowhere", MPI_INFO_NULL, 0, half, &inter), &class);
  SAME(class, MPI_ERR_PORT);
  MPI_Error_class(MPI_Comm_accept("nowhere", MPI_INFO_NULL, 0, half, &inter), &class);
  SAME(class, MPI_ERR_PORT);
  if (rank == size - 1) {
    MPI_Request request;
    int word = 1;
    MPI_Isend(&word, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, &request);
    MPI_Error_class(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
    SAME(class, MPI_ERR_PORT);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (rank == 0) {
    int word = 0;
    MPI_Recv(&word, 1, MPI_INT, size - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SAME(MPI_Close_port(port), MPI_SUCCESS);
    MPI_Error_class(MPI_Close_port(port), &class);
    SAME(class, MPI_ERR_PORT);
    MPI_Error_class(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
    SAME(class, MPI_ERR_PORT);
  }
  OK(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == size - 1) {
    // The process that has closed it says so: it refuses nobody, and logs nothing.
    MPI_Error_class(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), &class);
    SAME(class, MPI_ERR_PORT);
  }
  MPI_Comm_free(&half);
  return check_end();
}
