/* Runs the magika model from C: reads batch x 2048 int32 from stdin, writes the scores to stdout and the time of one
   call in microseconds to stderr.

       cc -O2 -o host examples/host.c -I DIR DIR/model.so -Wl,-rpath,DIR
       ./host BATCH < bytes.bin > scores.bin
*/
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"

enum { WIDTH = 2048, MAIN = 0, CALLS = 20 };

static double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    int64_t batch = argc == 2 ? strtoll(argv[1], NULL, 10) : -1;
    if (batch < 0) {
        fprintf(stderr, "usage: %s BATCH < bytes.bin > scores.bin\n", argv[0]);
        return 2;
    }
    size_t count = (size_t)batch * WIDTH;
    int32_t *bytes = malloc(count * sizeof *bytes + 1);
    if (bytes == NULL || fread(bytes, sizeof *bytes, count, stdin) != count) {
        fprintf(stderr, "expected %zu int32 on standard input\n", count);
        return 1;
    }

    rx_context *ctx = rx_create(NULL); /* NULL: the default allocator */
    if (ctx == NULL) {
        fprintf(stderr, "%s\n", rx_create_error());
        return 1;
    }
    int64_t in_shape[2] = {batch, WIDTH}, out_shape[2] = {0, 0};
    DLTensor in = {.data = bytes, .device = {.device_type = 1}, .ndim = 2, .dtype = {0, 32, 1}, .shape = in_shape};
    double best = 1e30;
    for (int i = 0; i < CALLS; i++) {
        DLTensor out = {.data = NULL, .ndim = 2, .shape = out_shape}; /* no data: the library allocates */
        double start = microseconds();
        if (rx_call(ctx, MAIN, &in, 1, &out, 1) != 0) {
            fprintf(stderr, "%s\n", rx_last_error(ctx));
            return 1;
        }
        double taken = microseconds() - start;
        best = taken < best ? taken : best;
        if (i == CALLS - 1) {
            fwrite(out.data, sizeof(float), (size_t)(out.shape[0] * out.shape[1]), stdout);
        }
        rx_free(ctx, out.data);
    }
    fprintf(stderr, "%.1f\n", best);
    rx_destroy(ctx);
    free(bytes);
    return 0;
}
