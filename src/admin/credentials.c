// SPDX-License-Identifier: Apache-2.0
// Written aside, flushed, renamed and the directory flushed: after a crash the file is whole or
// absent, and absent means that no client has ever been told any credentials.
#include "admin/credentials.h"

#include <stdio.h>
#include <string.h>

#include "admin/config.h"
#include "base/log.h"

#define FILE_BYTES_MAX 512
#define PATH_BYTES     1100
#define MODE_WIDER     077u

static const char access_alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
static const char secret_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

// Every character equally likely: bytes that do not divide evenly are drawn again.
static void random_text(struct sys *sys, const char *alphabet, char *out, size_t chars)
{
    size_t letters = strlen(alphabet);
    size_t limit = 256 - 256 % letters;
    for (size_t i = 0; i < chars;) {
        u8 byte;
        sys->ops->random_bytes(sys, &byte, 1);
        if (byte < limit) {
            out[i++] = alphabet[byte % letters];
        }
    }
    out[chars] = 0;
}

void credentials_generate(struct sys *sys, struct credentials *out)
{
    *out = (struct credentials){.is_generated = true};
    random_text(sys, access_alphabet, out->access_key, CREDENTIALS_ACCESS_CHARS);
    random_text(sys, secret_alphabet, out->secret_key, CREDENTIALS_SECRET_CHARS);
}

// Takes "name=value\n" off the front of *text.
static bool line_take(const char **text, const char *name, char out[CREDENTIALS_TEXT_MAX])
{
    size_t name_len = strlen(name);
    if (strncmp(*text, name, name_len) != 0 || (*text)[name_len] != '=') {
        return false;
    }
    const char *value = *text + name_len + 1;
    size_t len = strcspn(value, "\n");
    if (len == 0 || len >= CREDENTIALS_TEXT_MAX || value[len] != '\n') {
        return false;
    }
    memcpy(out, value, len);
    out[len] = 0;
    *text = value + len + 1;
    return true;
}

bool credentials_parse(const char *text, struct credentials *out)
{
    *out = (struct credentials){0};
    return line_take(&text, "access_key_id", out->access_key) &&
           line_take(&text, "secret_access_key", out->secret_key) && *text == 0 &&
           config_access_key_is_valid(out->access_key) &&
           config_secret_key_is_valid(out->secret_key);
}

static enum err credentials_read(struct sys *sys, const char *path, struct credentials *out)
{
    int fd;
    u64 bytes = 0;
    char text[FILE_BYTES_MAX + 1];
    TRY(sys->ops->file_open(sys, path, SYS_OPEN_READ, &fd));
    enum err e = sys->ops->file_size(sys, fd, &bytes);
    if (e == OK && bytes <= FILE_BYTES_MAX) {
        e = sys->ops->file_read(sys, fd, text, (size_t)bytes, 0);
    }
    sys->ops->file_close(sys, fd);
    TRY(e);
    bool is_whole = bytes <= FILE_BYTES_MAX;
    text[is_whole ? bytes : 0] = 0;
    if (!is_whole || strlen(text) != bytes || !credentials_parse(text, out)) {
        LOG_ERROR("credentials_malformed",
                  "file=%s hint=\"it must have the lines access_key_id=... and "
                  "secret_access_key=...; remove it to have new ones generated\"",
                  path);
        return ERR_INVALID;
    }
    return OK;
}

static enum err credentials_write(struct sys *sys, const char *drive, const char *path,
                                  const struct credentials *c)
{
    char aside[PATH_BYTES];
    char text[FILE_BYTES_MAX];
    snprintf(aside, sizeof(aside), "%s.new", path);
    int n = snprintf(text, sizeof(text), "access_key_id=%s\nsecret_access_key=%s\n", c->access_key,
                     c->secret_key);
    ASSERT(n > 0 && (size_t)n < sizeof(text));
    enum err e = sys->ops->file_remove(sys, aside); // what a crash left
    if (e != OK && e != ERR_NOT_FOUND) {
        return e;
    }
    int fd;
    TRY(sys->ops->file_open(
        sys, aside, SYS_OPEN_WRITE | SYS_OPEN_CREATE | SYS_OPEN_EXCLUSIVE | SYS_OPEN_PRIVATE, &fd));
    e = sys->ops->file_write(sys, fd, text, (size_t)n, 0);
    if (e == OK) {
        e = sys->ops->file_flush(sys, fd);
    }
    sys->ops->file_close(sys, fd);
    TRY(e);
    TRY(sys->ops->file_rename(sys, aside, path));
    return sys->ops->dir_flush(sys, drive);
}

enum err credentials_obtain(struct sys *sys, const char *drive, credentials_mode_fn mode,
                            struct credentials *out)
{
    char path[PATH_BYTES - 8];
    int n = snprintf(path, sizeof(path), "%s/" CREDENTIALS_FILE, drive);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return ERR_INVALID;
    }
    u32 bits = 0;
    enum err e = mode(path, &bits);
    if (e == OK && (bits & MODE_WIDER) != 0) {
        LOG_ERROR("credentials_mode",
                  "file=%s mode=%04o hint=\"others can read it: run chmod 600, or remove it to "
                  "have new ones generated\"",
                  path, bits);
        return ERR_PERMISSION;
    }
    if (e == OK) {
        e = credentials_read(sys, path, out);
    } else if (e == ERR_NOT_FOUND) {
        credentials_generate(sys, out);
        e = credentials_write(sys, drive, path, out);
    }
    if (e != OK && e != ERR_INVALID) {
        LOG_ERROR("credentials_failed", "file=%s error=%s", path, err_name(e));
    }
    return e;
}
