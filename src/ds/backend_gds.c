// SPDX-License-Identifier: Apache-2.0
// The gds backend: cuFile, loaded at run time. It moves accelerator memory; each operation is one
// blocking cuFile call on the caller's thread or a worker's. What cuFile says it does not support
// goes through the ring and its bounce buffers instead, visibly, unless the policy forbids it.
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ds/backends.h"
#include "ds/gds.h"

static struct ds_gds *gds(void)
{
    return ds_driver()->gds;
}

static bool load(struct ds_gds *g, char *why, size_t why_size)
{
    const struct {
        const char *name;
        void **slot;
    } symbols[] = {
        {"cuFileDriverOpen", (void **)&g->driver_open},
        {"cuFileDriverClose", (void **)&g->driver_close},
        {"cuFileHandleRegister", (void **)&g->handle_register},
        {"cuFileHandleDeregister", (void **)&g->handle_deregister},
        {"cuFileBufRegister", (void **)&g->buf_register},
        {"cuFileBufDeregister", (void **)&g->buf_deregister},
        {"cuFileRead", (void **)&g->read},
        {"cuFileWrite", (void **)&g->write},
    };
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        *symbols[i].slot = dlsym(g->library, symbols[i].name);
        if (*symbols[i].slot == NULL) {
            snprintf(why, why_size, "%s lacks %s", ds_config()->cufile_library, symbols[i].name);
            return false;
        }
    }
    *(void **)&g->batch_setup = dlsym(g->library, "cuFileBatchIOSetUp");
    *(void **)&g->batch_submit = dlsym(g->library, "cuFileBatchIOSubmit");
    *(void **)&g->batch_status = dlsym(g->library, "cuFileBatchIOGetStatus");
    *(void **)&g->batch_destroy = dlsym(g->library, "cuFileBatchIODestroy");
    // Current headers rename close; the old name stays for old programs.
    void *close_v2 = dlsym(g->library, "cuFileDriverClose_v2");
    if (close_v2 != NULL) {
        *(void **)&g->driver_close = close_v2;
    }
    return true;
}

static bool start(struct ds_gds *g, char *why, size_t why_size)
{
    g->library = dlopen(ds_config()->cufile_library, RTLD_NOW | RTLD_LOCAL);
    if (g->library == NULL) {
        snprintf(why, why_size, "no cuFile: %s", dlerror());
        return false;
    }
    if (dlsym(g->library, CUFILE_FACE_MARK) != NULL) {
        snprintf(why, why_size, "%s is this library's own face, not the vendor's",
                 ds_config()->cufile_library);
        return false;
    }
    if (!load(g, why, why_size)) {
        return false;
    }
    struct cufile_error e = g->driver_open();
    if (e.err != 0) {
        snprintf(why, why_size, "cuFileDriverOpen: %s (%d, CUDA %d)",
                 opends_op_status_error((opends_op_error_t)e.err), e.err, e.cu_err);
        return false;
    }
    return true;
}

static bool gds_probe(char *why, size_t why_size)
{
    int wanted = ds_config()->backend;
    if (wanted >= 0 && wanted != DS_GDS) {
        snprintf(why, why_size, "another backend was asked for");
        return false;
    }
    if (ds_accel_current() != ds_accel_cuda()) {
        snprintf(why, why_size, "needs CUDA: %s", ds_driver()->accel_missing);
        return false;
    }
    struct ds_gds *g = calloc(1, sizeof(*g));
    if (g == NULL || !start(g, why, why_size)) {
        if (g != NULL && g->library != NULL) {
            dlclose(g->library);
        }
        free(g);
        return false;
    }
    ds_gds_batch_init(g);
    ds_driver()->gds = g;
    return true;
}

void ds_gds_close(void)
{
    struct ds_gds *g = gds();
    if (g != NULL) {
        (void)g->driver_close();
        dlclose(g->library);
        free(g);
        ds_driver()->gds = NULL;
    }
}

static bool gds_attach(struct ds_handle *h, char *reason, size_t reason_size)
{
    struct cufile_descr d = {.type = CUFILE_HANDLE_OPAQUE_FD};
    d.handle.fd = h->direct_fd >= 0 ? h->direct_fd : h->buffered_fd;
    struct cufile_error e = gds()->handle_register(&h->gds_handle, &d);
    if (e.err != 0) {
        snprintf(reason, reason_size, "cuFile refused the file: %s (%d)",
                 opends_op_status_error((opends_op_error_t)e.err), e.err);
        return false;
    }
    h->path = OPENDS_PATH_GDS;
    return true;
}

static void gds_detach(struct ds_handle *h)
{
    if (h->gds_handle != NULL) {
        gds()->handle_deregister(h->gds_handle);
        h->gds_handle = NULL;
    }
}

// Codes that mean "not this way" rather than "not at all".
static bool is_refusal(i64 code)
{
    switch (-code) {
    case OPENDS_PLATFORM_NOT_SUPPORTED:
    case OPENDS_IO_NOT_SUPPORTED:
    case OPENDS_DEVICE_NOT_SUPPORTED:
    case OPENDS_INVALID_FILE_TYPE:
    case OPENDS_DIO_NOT_SET:
    case OPENDS_IO_DISABLED:
        return true;
    default:
        return false;
    }
}

// One whole operation. Returns the bytes, or a negated code with dev_err set.
static i64 gds_move(struct ds_op *op)
{
    void *base = op->buffer != NULL ? op->buffer->base : op->memory;
    off_t base_offset = (off_t)(op->memory - (u8 *)base);
    u64 done = 0;
    while (done < op->size) {
        size_t left = op->size - done;
        off_t at = (off_t)(op->offset + done);
        errno = 0;
        ssize_t n =
            op->opcode == OPENDS_READ
                ? gds()->read(op->handle->gds_handle, base, left, at, base_offset + (off_t)done)
                : gds()->write(op->handle->gds_handle, base, left, at, base_offset + (off_t)done);
        if (n < 0 && -n > OPENDS_BASE_ERR) {
            op->dev_err = -1;
            return n;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) { // the vendor's convention: -1 and errno for a system error
            op->dev_err = errno;
            return -(i64)(errno == 0 ? OPENDS_INTERNAL_ERROR : ds_code_from_errno(errno));
        }
        if (n == 0) {
            break;
        }
        done += (u64)n;
    }
    return (i64)done;
}

static void gds_exec(struct ds_op *op)
{
    if (atomic_load(&op->cancel) != DS_CANCEL_NONE) {
        op->result = atomic_load(&op->cancel) == DS_CANCEL_TIMEOUT ? -(i64)OPENDS_TIMED_OUT
                                                                   : -(i64)OPENDS_CANCELED_ERROR;
        return;
    }
    int rc = ds_accel_current()->enter();
    if (rc != 0) {
        op->result = -(i64)OPENDS_DEVICE_DRIVER_ERROR;
        op->dev_err = rc;
        return;
    }
    op->result = gds_move(op);
    ds_accel_current()->leave();
    if (op->result >= 0) {
        op->traffic.gds += (u64)op->result;
        if (op->is_durable) {
            opends_error_t e = ds_handle_flush(op->handle);
            op->result = e.err == OPENDS_SUCCESS ? op->result : -(i64)e.err;
            op->dev_err = e.dev_err;
        }
        return;
    }
    if (is_refusal(op->result) && ds_config()->policy != DS_POLICY_REQUIRE_DIRECT &&
        ds_backend_is_present(DS_URING, NULL)) {
        char why[DS_FALLBACK_BYTES];
        snprintf(why, sizeof(why), "cuFile: %s (%lld)",
                 opends_op_status_error((opends_op_error_t)-op->result), (long long)-op->result);
        ds_handle_note_fallback(op->handle, why);
        op->fell_back = true;
        op->backend = DS_URING;
        op->path = op->handle->direct_fd >= 0 ? OPENDS_PATH_DIRECT : OPENDS_PATH_BUFFERED;
        op->dev_err = 0;
        op->result = 0;
        ds_op_run_on_ring(op);
    }
}

static opends_error_t gds_buffer_register(const void *base, size_t size, int flags)
{
    struct cufile_error e = gds()->buf_register(base, size, flags);
    return (opends_error_t){(opends_op_error_t)e.err, e.cu_err};
}

static void gds_buffer_deregister(const void *base)
{
    (void)gds()->buf_deregister(base);
}

const struct ds_backend *ds_backend_gds(void)
{
    static const struct ds_backend backend = {
        .name = "gds",
        .probe = gds_probe,
        .attach = gds_attach,
        .detach = gds_detach,
        .blocking_exec = gds_exec,
        .batch_take = ds_gds_batch_take,
        .buffer_register = gds_buffer_register,
        .buffer_deregister = gds_buffer_deregister,
    };
    return &backend;
}
