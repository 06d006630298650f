// SPDX-License-Identifier: Apache-2.0
// The OPENDS_* environment: read once at open, every value checked, nothing truncated. Also the
// fault injection that tests ask for through OPENDS_FAULT.
#include "ds/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

// The index of `value` among `names`, or -1.
static int name_index(const char *value, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (names[i] != NULL && strcmp(names[i], value) == 0) {
            return i;
        }
    }
    return -1;
}

static opends_error_t read_number(const char *name, u32 min, u32 max, u32 *out)
{
    const char *text = getenv(name);
    u64 v;
    if (text == NULL || *text == 0) {
        return ds_ok();
    }
    if (!u64_parse(bytes_from_string(text), max, &v) || v < min) {
        return ds_fail(OPENDS_DRIVER_INVALID_PROPS, 0, "%s=%s: expected a number from %u to %u",
                       name, text, min, max);
    }
    *out = (u32)v;
    return ds_ok();
}

static opends_error_t read_path(const char *name, const char *fallback, char *out, size_t out_size)
{
    const char *text = getenv(name);
    if (text == NULL || *text == 0) {
        text = fallback;
    }
    if (strlen(text) >= out_size) {
        return ds_fail(OPENDS_DRIVER_INVALID_PROPS, 0, "%s is longer than %zu bytes", name,
                       out_size - 1);
    }
    memcpy(out, text, strlen(text) + 1);
    return ds_ok();
}

// "auto" (or unset) gives -1, otherwise the index of the name.
static opends_error_t read_name(const char *variable, const char *const *names, int count, int *out)
{
    const char *text = getenv(variable);
    *out = -1;
    if (text == NULL || *text == 0 || strcmp(text, "auto") == 0) {
        return ds_ok();
    }
    *out = name_index(text, names, count);
    if (*out < 0) {
        return ds_fail(OPENDS_DRIVER_INVALID_PROPS, 0, "%s=%s: unknown name", variable, text);
    }
    return ds_ok();
}

static opends_error_t bad_fault(const char *text)
{
    return ds_fail(OPENDS_DRIVER_INVALID_PROPS, 0,
                   "OPENDS_FAULT=%s: expected read|write|any:EIO|ENOSPC|EINTR:EVERY or "
                   "read|write|any:delay:MILLISECONDS",
                   text);
}

static opends_error_t read_fault(struct ds_config *c)
{
    const char *text = getenv("OPENDS_FAULT");
    if (text == NULL || *text == 0) {
        return ds_ok();
    }
    char op[8];
    char what[16];
    char number[12];
    u64 n;
    if (sscanf(text, "%7[^:]:%15[^:]:%11s", op, what, number) != 3 ||
        !u64_parse(bytes_from_string(number), 1000000, &n) || n == 0) {
        return bad_fault(text);
    }
    const char *const ops[] = {"read", "write", "any"};
    int index = name_index(op, ops, 3);
    if (index < 0) {
        return bad_fault(text);
    }
    c->fault.opcode = (u8)index;
    if (strcmp(what, "delay") == 0) {
        c->fault.delay_ms = (u32)n;
        return ds_ok();
    }
    const char *const names[] = {"EIO", "ENOSPC", "EINTR"};
    const int numbers[] = {EIO, ENOSPC, EINTR};
    index = name_index(what, names, 3);
    if (index < 0) {
        return bad_fault(text);
    }
    c->fault.sys_errno = numbers[index];
    c->fault.every = (u32)n;
    return ds_ok();
}

static opends_error_t read_numbers(struct ds_config *c)
{
    u32 chunk_kib = c->chunk_bytes / (u32)KIB;
    u32 durable = 0;
    const struct {
        const char *name;
        u32 min, max;
        u32 *out;
    } numbers[] = {
        {"OPENDS_THREADS", 1, DS_ENGINES_MAX, &c->engines},
        {"OPENDS_QUEUE_DEPTH", DS_QUEUE_DEPTH_MIN, DS_QUEUE_DEPTH_MAX, &c->queue_depth},
        {"OPENDS_CHUNK_KIB", (u32)(DS_CHUNK_BYTES_MIN / KIB), (u32)(DS_CHUNK_BYTES_MAX / KIB),
         &chunk_kib},
        {"OPENDS_TRACE", 0, DS_TRACE_ENTRIES_MAX, &c->trace_entries},
        {"OPENDS_IO_TIMEOUT_MS", 0, DS_IO_TIMEOUT_MS_MAX, &c->io_timeout_ms},
        {"OPENDS_WRITE_DURABLE", 0, 1, &durable},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        opends_error_t e =
            read_number(numbers[i].name, numbers[i].min, numbers[i].max, numbers[i].out);
        if (e.err != OPENDS_SUCCESS) {
            return e;
        }
    }
    if (chunk_kib % 4 != 0) {
        return ds_fail(OPENDS_DRIVER_INVALID_PROPS, 0, "OPENDS_CHUNK_KIB must be a multiple of 4");
    }
    c->chunk_bytes = chunk_kib * (u32)KIB;
    c->is_durable = durable != 0;
    return ds_ok();
}

opends_error_t ds_config_load(struct ds_config *c)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *c = (struct ds_config){
        .engines = (u32)MIN(MAX(cpus, 1L), 4L),
        .queue_depth = 64,
        .chunk_bytes = (u32)MIB,
        .trace_entries = 1024,
    };
    const char *const backends[] = {"ref", "uring", "gds", "nvme"};
    const char *const policies[] = {"auto", "require-direct", "compat"};
    const char *const accels[] = {"host", "cuda"};
    int policy;
    opends_error_t e = read_name("OPENDS_BACKEND", backends, 4, &c->backend);
    if (e.err == OPENDS_SUCCESS) {
        e = read_name("OPENDS_POLICY", policies, 3, &policy);
        c->policy = policy < 0 ? DS_POLICY_AUTO : (enum ds_policy)policy;
    }
    if (e.err == OPENDS_SUCCESS) {
        e = read_name("OPENDS_ACCEL", accels, 2, &c->accel);
    }
    if (e.err == OPENDS_SUCCESS) {
        e = read_numbers(c);
    }
    if (e.err == OPENDS_SUCCESS) {
        e = read_fault(c);
    }
    if (e.err == OPENDS_SUCCESS) {
        e = read_path("OPENDS_CUDA_LIBRARY", "libcuda.so.1", c->cuda_library,
                      sizeof(c->cuda_library));
    }
    if (e.err == OPENDS_SUCCESS) {
        e = read_path("OPENDS_CUFILE_LIBRARY", "libcufile.so.0", c->cufile_library,
                      sizeof(c->cufile_library));
    }
    return e;
}

const char *ds_policy_name(enum ds_policy policy)
{
    switch (policy) {
    case DS_POLICY_AUTO:
        return "auto";
    case DS_POLICY_REQUIRE_DIRECT:
        return "require-direct";
    case DS_POLICY_COMPAT:
        return "compat";
    }
    return "?";
}

int ds_fault_next(u8 opcode)
{
    struct ds_driver *d = ds_driver();
    if (LIKELY(d->config.fault.every == 0) ||
        (d->config.fault.opcode != opcode && d->config.fault.opcode != 2)) {
        return 0;
    }
    u64 n = atomic_fetch_add(&d->fault_count[opcode & 1], 1) + 1;
    return n % d->config.fault.every == 0 ? d->config.fault.sys_errno : 0;
}

u32 ds_fault_delay_ms(u8 opcode)
{
    const struct ds_config *c = ds_config();
    if (LIKELY(c->fault.delay_ms == 0) || (c->fault.opcode != opcode && c->fault.opcode != 2)) {
        return 0;
    }
    return c->fault.delay_ms;
}

u64 ds_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * NS_PER_S + (u64)t.tv_nsec;
}
