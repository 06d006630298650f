// SPDX-License-Identifier: Apache-2.0
// Stream-ordered I/O: write a block, read it back, in the order of one stream, without waiting
// between.
//   cc stream.c $(pkg-config --cflags --libs opends) -o stream && ./stream NEW-FILE
// With CUDA, pass your cudaStream_t where this program makes a stream of the library.
#include <fcntl.h>
#include <opends.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s NEW-FILE\n", argv[0]);
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    opends_handle_t h;
    opends_stream_t stream;
    if (opends_driver_open().err != OPENDS_SUCCESS ||
        opends_handle_register(&h, fd).err != OPENDS_SUCCESS ||
        opends_stream_create(&stream).err != OPENDS_SUCCESS) {
        fprintf(stderr, "%s\n", opends_last_error());
        return 1;
    }
    close(fd);
    // The library reads these when the stream gets there, so they must live until it has.
    size_t size = 1 << 20;
    off_t file_offset = 0;
    off_t from = 0;
    off_t to = 1 << 20;
    ssize_t written = 0;
    ssize_t read_back = 0;
    void *memory = opends_alloc(2 << 20);
    if (memory == NULL ||
        opends_write_async(h, memory, &size, &file_offset, &from, &written, stream).err !=
            OPENDS_SUCCESS ||
        opends_read_async(h, memory, &size, &file_offset, &to, &read_back, stream).err !=
            OPENDS_SUCCESS ||
        opends_stream_synchronize(stream).err != OPENDS_SUCCESS) {
        fprintf(stderr, "%s\n", opends_last_error());
        return 1;
    }
    printf("%zd bytes written, %zd read back\n", written, read_back);
    (void)opends_stream_destroy(stream);
    opends_free(memory);
    opends_handle_deregister(h);
    (void)opends_driver_close();
    return written == 1 << 20 && read_back == 1 << 20 ? 0 : 1;
}
