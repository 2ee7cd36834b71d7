/* Bandwidth from rank 0 to rank 1, and in both directions at once, with 64 messages in flight, in
 * GB/s. Then the same where all messages are sent at once and received one by one. Then the rate of
 * small messages, in millions a second. */
#include "measure.h"
#include "window.h"

static char *out, *in;
static int bytes;
static int is_one_by_one;

static void one_way(int times)
{
    window_one_way(rank, out, in, bytes, times, is_one_by_one);
}

static void both_ways(int times)
{
    window_both_ways(rank, out, in, bytes, times);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int rates[] = {1, 8, 64};
    static const int sizes[] = {256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304};
    out = buffer(4194304), in = buffer(4194304);
    for (int i = 0; i < 3; i++) {
        bytes = rates[i];
        say("rate", bytes, WINDOW / timed(one_way) / 1e6);
    }
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("bandwidth", bytes, (double)bytes * WINDOW / timed(one_way) / 1e9);
    }
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("bidirectional", bytes, 2.0 * bytes * WINDOW / timed(both_ways) / 1e9);
    }
    is_one_by_one = 1;
    for (int i = 0; i < 8 && sizes[i] <= most; i++) {
        bytes = sizes[i];
        say("onebyone", bytes, (double)bytes * WINDOW / timed(one_way) / 1e9);
    }
    finish();
    return 0;
}
