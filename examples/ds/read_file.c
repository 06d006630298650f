// SPDX-License-Identifier: Apache-2.0
// Reads a file into accelerator memory and says which way it went.
//   cc read_file.c $(pkg-config --cflags --libs opends) -o read_file && ./read_file FILE
#include <fcntl.h>
#include <opends.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    opends_handle_t h;
    if (opends_driver_open().err != OPENDS_SUCCESS ||
        opends_handle_register(&h, fd).err != OPENDS_SUCCESS) {
        fprintf(stderr, "%s\n", opends_last_error());
        return 1;
    }
    close(fd); // the library keeps its own
    size_t size = 1 << 20;
    void *memory = opends_alloc(size);
    off_t at = 0;
    ssize_t n = 0;
    while (memory != NULL && (n = opends_read(h, memory, size, at, 0)) > 0) {
        at += n; // hand `memory` to the accelerator here
    }
    if (memory == NULL || n < 0) {
        fprintf(stderr, "%s\n", opends_last_error());
        return 1;
    }
    opends_path_info_t info;
    if (opends_handle_path(h, &info).err == OPENDS_SUCCESS) {
        printf("%lld bytes by %s: %llu direct, %llu bounced, %llu through the page cache\n",
               (long long)at, info.backend, (unsigned long long)info.direct_bytes,
               (unsigned long long)info.bounced_bytes, (unsigned long long)info.buffered_bytes);
        printf("%s\n", info.reason[0] != 0 ? info.reason : "this is the best path there is");
    }
    opends_free(memory);
    opends_handle_deregister(h);
    return opends_driver_close().err == OPENDS_SUCCESS ? 0 : 1;
}
