/* Rows shared among the threads of torch's OpenMP runtime. */

#include <stdint.h>

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned); /* type of GOMP_parallel */
typedef void (*Process)(void *args, int64_t first, int64_t last, int64_t thread);

typedef struct {
    Process process;
    void *args;
    int64_t num_rows, chunk, next, threads;
} RowQueue;

/* Process chunks of rows until none is left; every thread runs this. */
static void process_chunks(void *arg) {
    RowQueue *queue = arg;
    int64_t first, thread = __atomic_fetch_add(&queue->threads, 1, __ATOMIC_RELAXED);
    while ((first = __atomic_fetch_add(&queue->next, queue->chunk, __ATOMIC_RELAXED)) < queue->num_rows) {
        int64_t last = first + queue->chunk;
        queue->process(queue->args, first, last < queue->num_rows ? last : queue->num_rows, thread);
    }
}

/* Call `process` for all rows, `chunk` at a time. `parallel` is GOMP_parallel of the OpenMP runtime that torch has
   started: new threads would wait for a core while torch's spin for work. If null, one thread does everything. */
static void process_rows(Process process, void *args, int64_t num_rows, int64_t chunk, int32_t num_threads,
                         Parallel parallel) {
    RowQueue queue = {process, args, num_rows, chunk, 0, 0};
    int64_t chunks = (num_rows + chunk - 1) / chunk;
    unsigned threads = (unsigned)(num_threads < chunks ? num_threads : chunks);
    if (parallel && threads > 1)
        parallel(process_chunks, &queue, threads, 0);
    else
        process_chunks(&queue);
}
