// SPDX-License-Identifier: Apache-2.0
// Sparse bytes of simulated files, and the simulator's random numbers.
#include "sim/internal.h"

#include <stdlib.h>
#include <string.h>

// splitmix64: one word of state, and every seed is as good as any other.
u64 sim_random(u64 *state)
{
    *state += 0x9e3779b97f4a7c15u;
    u64 z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// The piece that holds `offset`, made if absent; only one that is not written whole needs zeros.
static u8 *piece_for_write(struct image *im, u64 offset, bool is_whole)
{
    size_t index = (size_t)(offset / IMAGE_PIECE_BYTES);
    if (index >= im->piece_count) {
        size_t count = MAX(index + 1, im->piece_count * 2);
        u8 **pieces = realloc(im->pieces, count * sizeof(u8 *));
        ASSERT(pieces != NULL);
        memset(pieces + im->piece_count, 0, (count - im->piece_count) * sizeof(u8 *));
        im->pieces = pieces;
        im->piece_count = count;
    }
    if (im->pieces[index] == NULL) {
        im->pieces[index] = is_whole ? malloc(IMAGE_PIECE_BYTES) : calloc(1, IMAGE_PIECE_BYTES);
        ASSERT(im->pieces[index] != NULL);
    }
    return im->pieces[index];
}

void image_write(struct image *im, u64 offset, const u8 *data, size_t len)
{
    while (len > 0) {
        size_t at = (size_t)(offset % IMAGE_PIECE_BYTES);
        size_t n = MIN(len, IMAGE_PIECE_BYTES - at);
        memcpy(piece_for_write(im, offset, n == IMAGE_PIECE_BYTES) + at, data, n);
        data += n;
        offset += n;
        len -= n;
    }
}

void image_read(const struct image *im, u64 offset, u8 *out, size_t len)
{
    while (len > 0) {
        size_t index = (size_t)(offset / IMAGE_PIECE_BYTES);
        size_t at = (size_t)(offset % IMAGE_PIECE_BYTES);
        size_t n = MIN(len, IMAGE_PIECE_BYTES - at);
        if (index < im->piece_count && im->pieces[index] != NULL) {
            memcpy(out, im->pieces[index] + at, n);
        } else {
            memset(out, 0, n);
        }
        out += n;
        offset += n;
        len -= n;
    }
}

void image_copy_range(struct image *to, const struct image *from, u64 offset, size_t len)
{
    u8 page[512];
    while (len > 0) {
        size_t n = MIN(len, sizeof(page));
        image_read(from, offset, page, n);
        image_write(to, offset, page, n);
        offset += n;
        len -= n;
    }
}

// Forgets everything from `size` on, so that growing again shows zeros.
void image_truncate(struct image *im, u64 size)
{
    for (size_t i = 0; i < im->piece_count; i++) {
        u64 start = i * IMAGE_PIECE_BYTES;
        if (im->pieces[i] == NULL || start + IMAGE_PIECE_BYTES <= size) {
            continue;
        }
        size_t keep = size > start ? (size_t)(size - start) : 0;
        memset(im->pieces[i] + keep, 0, IMAGE_PIECE_BYTES - keep);
    }
}

void image_deinit(struct image *im)
{
    for (size_t i = 0; i < im->piece_count; i++) {
        free(im->pieces[i]);
    }
    free(im->pieces);
    *im = (struct image){0};
}
