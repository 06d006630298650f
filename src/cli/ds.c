// SPDX-License-Identifier: Apache-2.0
// `leat ds doctor [PATH]`: what is present, what would be used for PATH, what to fix.
// `leat ds stats FILE`: reads FILE once through the library and prints its statistics.
// Exit: 0 nothing to fix, 1 something to fix, 2 wrong usage.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/types.h"
#include "cli/ds_cmd.h"
#include "opends.h"

static int usage(void)
{
    fprintf(stderr, "usage: ds doctor [FILE-OR-FOLDER]\n"
                    "       ds stats FILE\n");
    return 2;
}

static int doctor(const char *path)
{
    unsigned problems = 0;
    ssize_t need = opends_doctor(path, NULL, 0, &problems);
    char *text = malloc((size_t)need + 4096); // a second look may find a little more to say
    if (text == NULL) {
        fprintf(stderr, "ds doctor: out of memory\n");
        return 1;
    }
    (void)opends_doctor(path, text, (size_t)need + 4096, &problems);
    fputs(text, stdout);
    free(text);
    return problems == 0 ? 0 : 1;
}

static int fail(const char *what)
{
    fprintf(stderr, "ds: %s: %s\n", what, opends_last_error());
    return 1;
}

// Reads the whole file in pieces of 1 MiB.
static int read_through(int fd)
{
    opends_handle_t h;
    if (opends_driver_open().err != OPENDS_SUCCESS ||
        opends_handle_register(&h, fd).err != OPENDS_SUCCESS) {
        return fail("open");
    }
    void *memory = opends_alloc(MIB);
    ssize_t n = memory == NULL ? -1 : 1;
    for (off_t at = 0; n > 0; at += n) {
        n = opends_read(h, memory, MIB, at, 0);
    }
    opends_handle_deregister(h);
    return n < 0 ? fail("read") : 0;
}

static int stats(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "ds: %s: %s\n", path, strerror(errno));
        return 1;
    }
    int rc = read_through(fd);
    ssize_t need = opends_stats_prometheus(NULL, 0);
    char *text = malloc((size_t)need + 1);
    if (rc == 0 && text != NULL) {
        (void)opends_stats_prometheus(text, (size_t)need + 1);
        fputs(text, stdout);
    }
    free(text);
    close(fd);
    (void)opends_driver_close();
    return rc;
}

int cli_ds_main(int argc, char **argv)
{
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "doctor") == 0) {
        return doctor(argc == 3 ? argv[2] : NULL);
    }
    if (argc == 3 && strcmp(argv[1], "stats") == 0) {
        return stats(argv[2]);
    }
    return usage();
}
