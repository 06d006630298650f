// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files: `replay-NAME PATH...`, a directory standing for the files in it.
// This is how seeds and found crashes are tested by any compiler, without libFuzzer.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

#define FILE_BYTES_MAX (16 * 1024 * 1024)

// Runs the target on one file; 0 on success.
static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *buf = malloc(FILE_BYTES_MAX);
    size_t n = buf != NULL ? fread(buf, 1, FILE_BYTES_MAX, f) : 0;
    int failed = buf == NULL || ferror(f) != 0 || !feof(f);
    fclose(f);
    if (failed) {
        fprintf(stderr, "%s: cannot be read, or is larger than %d bytes\n", path, FILE_BYTES_MAX);
        free(buf);
        return 1;
    }
    // An exact copy, so that AddressSanitizer sees one byte too many.
    uint8_t *exact = malloc(n > 0 ? n : 1);
    if (exact == NULL) {
        free(buf);
        return 1;
    }
    memcpy(exact, buf, n);
    free(buf);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

// Runs a file, or every file of a directory, and counts them.
static int replay_path(const char *path, int *files)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode)) {
        (*files)++;
        return replay_file(path);
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        perror(path);
        return 1;
    }
    int failed = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char inner[4096 - 512];
        if (entry->d_name[0] == '.') {
            continue;
        }
        int len = snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof(inner)) {
            failed = 1;
            continue;
        }
        (*files)++;
        failed |= replay_file(inner);
    }
    closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    int files = 0;
    for (int i = 1; i < argc; i++) {
        failed |= replay_path(argv[i], &files);
    }
    printf("%d inputs\n", files);
    // No input at all would be a test that cannot fail.
    return failed != 0 || files == 0;
}
