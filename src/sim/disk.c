// SPDX-License-Identifier: Apache-2.0
// Directories and files that survive a crash, and what a power loss makes of them (see sim.h).
#include "sim/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    ASSERT(p != NULL);
    return p;
}

struct sim_node *node_create(struct sim_disk *d, struct sim_node *parent, const char *path,
                             bool is_dir)
{
    struct sim_node *n = memory(sizeof(*n));
    n->is_dir = is_dir;
    n->drive = parent != NULL ? parent->drive : NULL;
    snprintf(n->path, sizeof(n->path), "%s", path);
    list_init(&n->writes);
    list_init(&n->entries);
    list_init(&n->entries_durable);
    list_init(&n->changes);
    n->next_node = d->nodes;
    d->nodes = n;
    return n;
}

struct sim_disk *sim_disk_create(u64 drive_bytes)
{
    struct sim_disk *d = memory(sizeof(*d));
    d->magic = SIM_DISK_MAGIC;
    d->drive_bytes = drive_bytes;
    d->root = node_create(d, NULL, "", true);
    return d;
}

static void writes_free(struct sim_node *n)
{
    struct list *node;
    while ((node = list_pop_head(&n->writes)) != NULL) {
        free(CONTAINER_OF(node, struct sim_write, node));
    }
}

static void entries_free(struct list *entries)
{
    struct list *node;
    while ((node = list_pop_head(entries)) != NULL) {
        free(CONTAINER_OF(node, struct sim_entry, node));
    }
}

static void changes_free(struct sim_node *dir)
{
    struct list *node;
    while ((node = list_pop_head(&dir->changes)) != NULL) {
        free(CONTAINER_OF(node, struct sim_change, node));
    }
}

void sim_disk_destroy(struct sim_disk *d)
{
    if (d == NULL) {
        return;
    }
    ASSERT_MAGIC(d, SIM_DISK_MAGIC);
    while (d->nodes != NULL) {
        struct sim_node *n = d->nodes;
        d->nodes = n->next_node;
        writes_free(n);
        entries_free(&n->entries);
        entries_free(&n->entries_durable);
        changes_free(n);
        image_deinit(&n->visible);
        image_deinit(&n->durable);
        free(n);
    }
    d->magic = 0;
    free(d);
}

static struct sim_entry *entry_find(const struct list *entries, const char *name)
{
    LIST_FOREACH (node, entries) {
        struct sim_entry *e = CONTAINER_OF(node, struct sim_entry, node);
        if (strcmp(e->name, name) == 0) {
            return e;
        }
    }
    return NULL;
}

// Sets or removes one name.
static void entry_set(struct list *entries, const char *name, struct sim_node *target)
{
    struct sim_entry *e = entry_find(entries, name);
    if (target == NULL) {
        if (e != NULL) {
            list_remove(&e->node);
            free(e);
        }
        return;
    }
    if (e == NULL) {
        e = memory(sizeof(*e));
        snprintf(e->name, sizeof(e->name), "%s", name);
        list_add_tail(entries, &e->node);
    }
    e->target = target;
}

static void change_apply(struct list *entries, const struct sim_change *c)
{
    entry_set(entries, c->name, c->target);
    if (c->removed[0] != '\0') {
        entry_set(entries, c->removed, NULL);
    }
}

struct sim_node *dir_entry(const struct sim_node *dir, const char *name)
{
    ASSERT(dir->is_dir);
    const struct sim_entry *e = entry_find(&dir->entries, name);
    return e == NULL ? NULL : e->target;
}

void dir_change(struct sim_node *dir, const char *name, struct sim_node *target,
                const char *removed)
{
    ASSERT(dir->is_dir && strlen(name) <= SIM_NAME_MAX && strlen(removed) <= SIM_NAME_MAX);
    struct sim_change *c = memory(sizeof(*c));
    memcpy(c->name, name, strlen(name) + 1);
    memcpy(c->removed, removed, strlen(removed) + 1);
    c->target = target;
    change_apply(&dir->entries, c);
    list_add_tail(&dir->changes, &c->node);
}

// Makes the first `count` changes durable and forgets the others.
static void dir_keep(struct sim_node *dir, u64 count)
{
    struct list *node;
    while ((node = list_pop_head(&dir->changes)) != NULL) {
        struct sim_change *c = CONTAINER_OF(node, struct sim_change, node);
        if (count > 0) {
            change_apply(&dir->entries_durable, c);
            count--;
        }
        free(c);
    }
}

void dir_flush(struct sim_node *dir)
{
    dir_keep(dir, UINT64_MAX);
}

// Takes the next component of a path; false at its end. "." counts as nothing.
static bool path_next(const char **path, char name[SIM_NAME_MAX + 1])
{
    for (;;) {
        while (**path == '/') {
            (*path)++;
        }
        size_t len = strcspn(*path, "/");
        if (len == 0) {
            return false;
        }
        ASSERT(len <= SIM_NAME_MAX);
        memcpy(name, *path, len);
        name[len] = '\0';
        *path += len;
        if (strcmp(name, ".") != 0) {
            return true;
        }
    }
}

enum err disk_find(struct sim_disk *d, const char *path, struct sim_node **out)
{
    struct sim_node *n = d->root;
    char name[SIM_NAME_MAX + 1];
    while (path_next(&path, name)) {
        if (!n->is_dir) {
            return ERR_INVALID;
        }
        n = dir_entry(n, name);
        if (n == NULL) {
            return ERR_NOT_FOUND;
        }
    }
    *out = n;
    return OK;
}

enum err disk_find_parent(struct sim_disk *d, const char *path, struct sim_node **dir,
                          char name[SIM_NAME_MAX + 1])
{
    struct sim_node *n = d->root;
    if (!path_next(&path, name)) {
        return ERR_EXISTS; // the root itself
    }
    char next[SIM_NAME_MAX + 1];
    while (path_next(&path, next)) {
        n = dir_entry(n, name);
        if (n == NULL || !n->is_dir) {
            return ERR_NOT_FOUND;
        }
        memcpy(name, next, sizeof(next));
    }
    *dir = n;
    return OK;
}

enum err file_grow(struct sim_disk *d, struct sim_node *file, u64 size)
{
    if (size <= file->size) {
        return OK;
    }
    ASSERT(file->drive != NULL);
    u64 more = size - file->size;
    if (d->drive_bytes != 0 && file->drive->used_bytes + more > d->drive_bytes) {
        return ERR_DRIVE_FULL;
    }
    file->drive->used_bytes += more;
    file->size = size;
    return OK;
}

// A drive gives a page that is written whole another place.
static void pages_repair(struct sim_node *n, u64 offset, u64 len)
{
    u32 kept = 0;
    for (u32 i = 0; i < n->unreadable_count; i++) {
        u64 page = n->unreadable[i];
        if (page < offset || page + SIM_PAGE_BYTES > offset + len) {
            n->unreadable[kept++] = page;
        }
    }
    n->unreadable_count = kept;
}

void file_write_done(struct sim_disk *d, struct sim_node *file, u64 offset, const u8 *data,
                     u32 bytes)
{
    ASSERT(offset + bytes <= file->size);
    pages_repair(file, offset, bytes);
    image_write(&file->visible, offset, data, bytes);
    struct sim_write *w = malloc(sizeof(*w) + bytes); // filled whole: no need for zeros
    ASSERT(w != NULL);
    w->number = ++d->writes;
    w->offset = offset;
    w->bytes = bytes;
    memcpy(w->data, data, bytes);
    list_add_tail(&file->writes, &w->node);
}

static void write_keep(struct sim_node *file, struct sim_write *w)
{
    image_write(&file->durable, w->offset, w->data, w->bytes);
    list_remove(&w->node);
    free(w);
}

void file_write_durable(struct sim_node *file)
{
    struct sim_write *newest = CONTAINER_OF(file->writes.prev, struct sim_write, node);
    u64 from = newest->offset;
    u64 to = from + newest->bytes;
    // An older write to the same place is in the drive's cache below this one, and never above it.
    LIST_FOREACH_SAFE (node, &file->writes) {
        struct sim_write *w = CONTAINER_OF(node, struct sim_write, node);
        if (w->offset < to && from < w->offset + w->bytes) {
            write_keep(file, w);
        }
    }
}

void file_flush_done(struct sim_node *file, u64 covered, u64 size)
{
    LIST_FOREACH_SAFE (node, &file->writes) {
        struct sim_write *w = CONTAINER_OF(node, struct sim_write, node);
        if (w->number <= covered) {
            write_keep(file, w);
        }
    }
    file->size_durable = MAX(file->size_durable, size);
}

// Writes a part of a torn write: bytes [from, to) of it.
static void settle_part(struct sim_node *file, u64 offset, const u8 *data, size_t from, size_t to)
{
    image_write(&file->durable, offset + from, data + from, to - from);
}

// Each sector of the write survives or not.
static void settle_sectors(struct sim_node *file, u64 offset, const u8 *data, size_t bytes,
                           size_t sector, u64 *random)
{
    for (size_t at = 0; at < bytes; at += sector) {
        if (sim_below(random, 2) == 0) {
            settle_part(file, offset, data, at, MIN(at + sector, bytes));
        }
    }
}

// Settles one write: lost, kept, or torn in one of several ways.
static void file_settle_write(struct sim_node *file, u64 offset, const u8 *data, size_t bytes,
                              u64 *random)
{
    u64 fate = sim_below(random, 100);
    if (fate < 35) {
        return; // lost
    }
    if (fate < 65) {
        settle_part(file, offset, data, 0, bytes);
        return;
    }
    if (fate < 75) {
        size_t sectors = (bytes + SIM_SECTOR_BYTES - 1) / SIM_SECTOR_BYTES;
        size_t keep = (size_t)sim_below(random, sectors + 1) * SIM_SECTOR_BYTES;
        settle_part(file, offset, data, 0, MIN(keep, bytes));
        return;
    }
    bool is_fine = fate < 85;
    settle_sectors(file, offset, data, bytes, is_fine ? SIM_SECTOR_BYTES : SIM_PAGE_BYTES, random);
    if (fate >= 95) {
        u8 garbage[SIM_SECTOR_BYTES];
        for (size_t i = 0; i < sizeof(garbage); i++) {
            garbage[i] = (u8)sim_random(random);
        }
        size_t sectors = (bytes + SIM_SECTOR_BYTES - 1) / SIM_SECTOR_BYTES;
        size_t at = (size_t)sim_below(random, sectors) * SIM_SECTOR_BYTES;
        image_write(&file->durable, offset + at, garbage, MIN(sizeof(garbage), bytes - at));
    }
}

// What is left of one file.
static void file_settle(struct sim_node *file, u64 *random)
{
    LIST_FOREACH (node, &file->writes) {
        const struct sim_write *w = CONTAINER_OF(node, struct sim_write, node);
        file_settle_write(file, w->offset, w->data, w->bytes, random);
    }
    // Elsewhere what is seen is what is durable already.
    LIST_FOREACH (node, &file->writes) {
        const struct sim_write *w = CONTAINER_OF(node, struct sim_write, node);
        image_copy_range(&file->visible, &file->durable, w->offset, w->bytes);
    }
    writes_free(file);
    if (file->size_durable < file->size && sim_below(random, 2) == 0) {
        file->size = file->size_durable;
        image_truncate(&file->durable, file->size);
        image_truncate(&file->visible, file->size);
    }
    file->size_durable = file->size;
}

// What is left of one directory: the names as they were after some number of changes.
static void dir_settle(struct sim_node *dir, u64 *random)
{
    u64 count = 0;
    LIST_FOREACH (node, &dir->changes) {
        count++;
    }
    dir_keep(dir, sim_below(random, count + 1));
    entries_free(&dir->entries);
    LIST_FOREACH (node, &dir->entries_durable) {
        const struct sim_entry *e = CONTAINER_OF(node, struct sim_entry, node);
        entry_set(&dir->entries, e->name, e->target);
    }
}

void disk_settle(struct sim_disk *d, u64 *random)
{
    for (struct sim_node *n = d->nodes; n != NULL; n = n->next_node) {
        if (n->is_dir) {
            dir_settle(n, random);
        } else {
            file_settle(n, random);
        }
    }
    disk_recount(d);
}

// Adds up a directory tree for the drive that it belongs to.
static void tree_count(struct sim_node *dir)
{
    LIST_FOREACH (node, &dir->entries) {
        struct sim_node *n = CONTAINER_OF(node, struct sim_entry, node)->target;
        if (n->is_dir) {
            tree_count(n);
        } else {
            n->drive->used_bytes += n->size;
        }
    }
}

void disk_recount(struct sim_disk *d)
{
    for (struct sim_node *n = d->nodes; n != NULL; n = n->next_node) {
        n->used_bytes = 0;
    }
    tree_count(d->root);
}

void disk_unlock_all(struct sim_disk *d)
{
    for (struct sim_node *n = d->nodes; n != NULL; n = n->next_node) {
        n->is_locked = false;
    }
}

// Flips a bit in one image, if it has that byte.
static void image_flip(struct image *im, u64 offset, u8 mask)
{
    u8 byte;
    image_read(im, offset, &byte, 1);
    byte ^= mask;
    image_write(im, offset, &byte, 1);
}

// A byte somewhere in what was ever written. NULL: nothing was.
static struct sim_node *place_pick(struct sim_disk *d, u64 *random, u64 *offset)
{
    ASSERT_MAGIC(d, SIM_DISK_MAGIC);
    u64 pieces = 0;
    for (struct sim_node *n = d->nodes; n != NULL; n = n->next_node) {
        for (size_t i = 0; i < n->durable.piece_count; i++) {
            pieces += n->durable.pieces[i] != NULL;
        }
    }
    if (pieces == 0) {
        return NULL;
    }
    u64 pick = sim_below(random, pieces);
    for (struct sim_node *n = d->nodes; n != NULL; n = n->next_node) {
        for (size_t i = 0; i < n->durable.piece_count; i++) {
            if (n->durable.pieces[i] == NULL || pick-- > 0) {
                continue;
            }
            *offset = i * IMAGE_PIECE_BYTES + sim_below(random, IMAGE_PIECE_BYTES);
            return n;
        }
    }
    return NULL;
}

bool sim_disk_flip_bit(struct sim_disk *d, u64 *random, char *place, size_t place_bytes)
{
    u64 offset;
    struct sim_node *n = place_pick(d, random, &offset);
    if (n == NULL) {
        return false;
    }
    u8 mask = (u8)(1u << sim_below(random, 8));
    image_flip(&n->durable, offset, mask);
    image_flip(&n->visible, offset, mask);
    snprintf(place, place_bytes, "%s %llu", n->path, (unsigned long long)offset);
    return true;
}

bool sim_disk_fail_page(struct sim_disk *d, u64 *random, char *place, size_t place_bytes)
{
    u64 offset;
    struct sim_node *n = place_pick(d, random, &offset);
    if (n == NULL || n->unreadable_count == SIM_UNREADABLE_MAX) {
        return false;
    }
    n->unreadable[n->unreadable_count++] = ALIGN_DOWN(offset, SIM_PAGE_BYTES);
    snprintf(place, place_bytes, "%s %llu", n->path, (unsigned long long)offset);
    return true;
}

bool file_is_readable(const struct sim_node *n, u64 offset, u64 len)
{
    for (u32 i = 0; i < n->unreadable_count; i++) {
        if (offset < n->unreadable[i] + SIM_PAGE_BYTES && n->unreadable[i] < offset + len) {
            return false;
        }
    }
    return true;
}
