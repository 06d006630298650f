// SPDX-License-Identifier: Apache-2.0
// Reads many files at once, each to its own place in one buffer.
//   cc batch.c $(pkg-config --cflags --libs opends) -o batch && ./batch FILE...
#include <fcntl.h>
#include <opends.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOT_BYTES (256u << 10)

static int die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, opends_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    unsigned count = (unsigned)argc - 1;
    if (count == 0) {
        fprintf(stderr, "usage: %s FILE...\n", argv[0]);
        return 2;
    }
    if (opends_driver_open().err != OPENDS_SUCCESS) {
        return die("open");
    }
    char *memory = opends_alloc((size_t)count * SLOT_BYTES);
    opends_io_params_t *p = calloc(count, sizeof(*p));
    opends_io_events_t *events = calloc(count, sizeof(*events));
    opends_batch_handle_t batch;
    if (memory == NULL || p == NULL || events == NULL ||
        opends_batch_io_setup(&batch, count).err != OPENDS_SUCCESS) {
        return die("set-up");
    }
    for (unsigned i = 0; i < count; i++) {
        int fd = open(argv[i + 1], O_RDONLY);
        p[i].mode = OPENDS_BATCH;
        p[i].opcode = OPENDS_READ;
        p[i].u.batch.dev_ptr_base = memory;
        p[i].u.batch.dev_ptr_offset = (off_t)i * SLOT_BYTES;
        p[i].u.batch.size = SLOT_BYTES;
        p[i].cookie = argv[i + 1];
        if (fd < 0 || opends_handle_register(&p[i].fh, fd).err != OPENDS_SUCCESS) {
            return die(argv[i + 1]);
        }
        close(fd);
    }
    unsigned nr = count;
    if (opends_batch_io_submit(batch, count, p, 0).err != OPENDS_SUCCESS ||
        opends_batch_io_get_status(batch, count, &nr, events, NULL).err != OPENDS_SUCCESS) {
        return die("batch");
    }
    for (unsigned i = 0; i < nr; i++) {
        if (events[i].status == OPENDS_COMPLETE) {
            printf("%s: %zu bytes\n", (char *)events[i].cookie, events[i].ret);
        } else {
            printf("%s: %s\n", (char *)events[i].cookie,
                   OPENDS_ERRSTR((int)-(ssize_t)events[i].ret));
        }
    }
    opends_batch_io_destroy(batch);
    for (unsigned i = 0; i < count; i++) {
        opends_handle_deregister(p[i].fh);
    }
    opends_free(memory);
    free(p);
    free(events);
    return opends_driver_close().err == OPENDS_SUCCESS ? 0 : 1;
}
