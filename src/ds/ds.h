// SPDX-License-Identifier: Apache-2.0
// The inside of libopends: one driver struct, and the operation that everything turns into.
//
// Shape. The public calls (io.c, batch.c, stream.c) check their arguments and make a `struct
// ds_op`. The handle's backend says who executes it: a blocking backend (ref, gds) on the caller's
// thread or a pool of workers (pool.c), the ring backends (uring, nvme) on an io_uring owned by the
// calling thread (sync) or by an engine thread (batch and streams, engine.c). plan.c splits an
// operation into pieces; accelerators (accel.h) say what memory is and copy to and from it.
//
// State. The API is process-wide by nature, so there is exactly one mutable object, `ds_driver()`;
// everything hangs off it. Threads: any. Slots of handles and batches are never freed while the
// process lives, and a handle's name carries a generation, so that a stale name is refused.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/types.h"
#include "ds/accel.h"
#include "opends.h"

#define DS_VERSION_MAJOR 0
#define DS_VERSION_MINOR 1
#define DS_VERSION_PATCH 0

#define DS_HANDLES_MAX       (1u << 20)
#define DS_SLOTS_CHUNK       1024u
#define DS_ENGINES_MAX       64u
#define DS_SYNC_QUEUES_MAX   64u // threads past this share their rings
#define DS_WORKERS_MAX       64u
#define DS_DEVICES_MAX       64u // statistics; further devices are counted together
#define DS_CHUNK_BYTES_MIN   (64 * KIB)
#define DS_CHUNK_BYTES_MAX   (16 * MIB)
#define DS_QUEUE_DEPTH_MIN   4u
#define DS_QUEUE_DEPTH_MAX   4096u
#define DS_TRACE_ENTRIES_MAX 65536u
#define DS_IO_TIMEOUT_MS_MAX (24u * 3600 * 1000)
#define DS_REASON_BYTES      192u
#define DS_LAST_ERROR_BYTES  256u
#define DS_FALLBACK_BYTES    128u

enum ds_backend_id { DS_REF, DS_URING, DS_GDS, DS_NVME, DS_BACKEND_COUNT };
enum ds_policy { DS_POLICY_AUTO, DS_POLICY_REQUIRE_DIRECT, DS_POLICY_COMPAT };
enum ds_driver_state { DS_CLOSED, DS_OPENING, DS_OPEN, DS_CLOSING };

// What the environment said, checked. Set at open, constant until close.
struct ds_config {
    int backend; // enum ds_backend_id, or -1 for auto
    enum ds_policy policy;
    int accel; // enum ds_accel_id, or -1 for auto
    u32 engines;
    u32 queue_depth; // pieces in flight per ring
    u32 chunk_bytes; // largest piece
    u32 trace_entries;
    u32 io_timeout_ms;
    bool is_durable;
    char cuda_library[256];
    char cufile_library[256];
    // Fault injection for tests, from OPENDS_FAULT: "read:EIO:3" fails every third read;
    // "read:delay:50" starts every read 50 ms late.
    struct {
        u8 opcode; // 0 read, 1 write, 2 both
        int sys_errno;
        u32 every;
        u32 delay_ms;
    } fault;
};

struct ds_handle;
struct ds_buffer;
struct ds_op;
struct ds_queue;
struct ds_extents;
struct ds_nvme_device;
struct ds_stat_device;

enum ds_cancel { DS_CANCEL_NONE, DS_CANCEL_ASKED, DS_CANCEL_TIMEOUT };

// Where the bytes of an operation went; summed into the handle when it is done.
struct ds_traffic {
    u64 direct;
    u64 bounced;
    u64 buffered;
    u64 passthrough;
    u64 zeroed;
    u64 gds;
};

// One I/O. Whoever submits it owns the memory; `done` is called exactly once, on any thread, after
// which no part of the library touches the operation, its handle's reference or its memory.
struct ds_op {
    struct list link; // owned by whichever queue holds it
    struct ds_handle *handle;
    struct ds_buffer *buffer; // registered buffer that holds `memory`, or NULL
    void (*done)(struct ds_op *op);
    void *owner;
    u8 *memory;
    u64 size;
    u64 offset;
    i64 result; // bytes, or a negated opends_op_error_t
    int dev_err;
    u8 opcode;       // enum opends_opcode
    u8 backend;      // who serves it (enum ds_backend_id)
    u8 path;         // opends_path_t it took
    u8 status;       // enum opends_status once done
    u8 known_memory; // enum ds_memory_kind + 1 when the submitter has looked already, else 0
    bool is_device_memory;
    bool is_durable;
    bool is_batched; // submitted by a batch
    bool fell_back;
    bool is_started;
    _Atomic u8 cancel; // enum ds_cancel
    u64 submit_ns;
    u64 deadline_ns; // 0: none
    struct ds_traffic traffic;
    // Progress inside a ring (ring.c, plan.c, piece.c).
    struct {
        u64 next;     // first byte that no piece covers yet
        u64 limit;    // bytes the current stage covers
        u64 short_at; // bytes from the start that are known to be the end (EOF or failure)
        u64 head_end; // writes: the aligned middle is [head_end, tail_start)
        u64 tail_start;
        u32 inflight;
        u8 stage;
        bool is_planned;         // the stage has no more pieces to give
        bool is_passthrough_off; // this operation's extents changed under it: use the file
        bool is_cut;             // cancelled before all pieces were done
        int sys_errno;
        int fail_code; // an opends_op_error_t that is no errno, with its failed_dev_err
        int failed_dev_err;
        struct ds_extents *extents; // referenced map, nvme only
    } ring;
};

#define DS_HANDLE_MAGIC 0x64736831u

// A registered file. Lives in a slot; found through its name.
struct ds_handle {
    u32 magic;
    u32 slot;
    _Atomic u64 state; // generation << 32 | closed << 31 | references
    int direct_fd;     // O_DIRECT, or -1
    int buffered_fd;   // without O_DIRECT, or -1 until needed (ds_handle_buffered_fd)
    int user_flags;    // F_GETFL of the caller's descriptor
    _Atomic u32 flags; // OPENDS_WRITE_DURABLE
    u8 backend;
    u8 path;
    u32 offset_align;
    u32 memory_align;
    u64 device; // st_dev
    u64 inode;
    pthread_mutex_t lock; // buffered_fd, extents, last_fallback, gds
    struct ds_nvme_device *nvme;
    struct ds_extents *extents;
    void *gds_handle;
    struct ds_stat_device *stats;
    _Atomic u64 registered_rings; // rings that hold a fixed file of this handle
    _Atomic u32 uses;
    _Atomic u64 direct_bytes, bounced_bytes, buffered_bytes, passthrough_bytes, zeroed_bytes;
    _Atomic u64 gds_bytes, fallbacks;
    char reason[DS_REASON_BYTES];
    char last_fallback[DS_FALLBACK_BYTES];
    struct ds_handle *next_free;
};

// A backend: a row of functions. `blocking_exec` NULL means that operations run on a ring.
struct ds_backend {
    const char *name;
    // Is it usable here? On false, `why` says what is missing.
    bool (*probe)(char *why, size_t why_size);
    // Prepares a handle whose file is open; false (and `reason`) when this backend cannot serve it.
    bool (*attach)(struct ds_handle *h, char *reason, size_t reason_size);
    void (*detach)(struct ds_handle *h);
    // Executes the whole operation and fills result, dev_err, path and traffic; NULL for ring
    // backends.
    void (*blocking_exec)(struct ds_op *op);
    // Takes those of a batch's operations that it executes by batches of its own; may be NULL.
    void (*batch_take)(struct list *ops);
    opends_error_t (*buffer_register)(const void *base, size_t size, int flags);
    void (*buffer_deregister)(const void *base);
};

// What a thread keeps: its ring and the text of its last error. Freed when the thread ends.
struct ds_thread {
    struct ds_queue *queue;
    u64 driver_epoch; // queue belongs to this opening of the driver
    char last_error[DS_LAST_ERROR_BYTES];
};

struct ds_driver;
// The process's one driver.
struct ds_driver *ds_driver(void);
const struct ds_config *ds_config(void);
bool ds_is_open(void);
// Largest piece sent to a device at once.
u32 ds_chunk_bytes(void);
const struct ds_accel *ds_accel_current(void);
const struct ds_backend *ds_backend(enum ds_backend_id id);
// Usable in this process? `why` (may be NULL) gets the reason when not.
bool ds_backend_is_present(enum ds_backend_id id, const char **why);
struct ds_thread *ds_thread_self(void);
// The current opening of the driver: rings made under another one are stale.
u64 ds_driver_epoch(void);

// Error helpers (errors.c): keep a sentence for opends_last_error() and build the value.
opends_error_t ds_fail(opends_op_error_t code, int dev_err, const char *fmt, ...) PRINTF_LIKE(3, 4);
opends_error_t ds_ok(void);
opends_op_error_t ds_code_from_errno(int sys_errno);
int ds_errno_from_code(opends_op_error_t code);

// Environment (config.c). DRIVER_INVALID_PROPS with a sentence when a variable is malformed.
opends_error_t ds_config_load(struct ds_config *out);
const char *ds_policy_name(enum ds_policy policy);
// The next injected fault for an operation: an errno, or 0.
int ds_fault_next(u8 opcode);
u32 ds_fault_delay_ms(u8 opcode);

// Handles (handle.c).
void ds_handles_init(void);
// Takes a reference, or NULL when the name is unknown or deregistered.
struct ds_handle *ds_handle_get(opends_handle_t name);
void ds_handle_hold(struct ds_handle *h);
void ds_handle_put(struct ds_handle *h);
void ds_handles_close_all(void);
// In a forked child: closes the copied descriptors (async-signal-safe). Returns the last generation
// that a name of the parent has.
u32 ds_handles_fork_child(void);
long ds_handles_count(void);
// A descriptor without O_DIRECT for the file, opened on first need; -1 with errno.
int ds_handle_buffered_fd(struct ds_handle *h);
// Makes completed writes of the file durable.
opends_error_t ds_handle_flush(struct ds_handle *h);
void ds_handle_note_fallback(struct ds_handle *h, const char *why);
void ds_handle_account(struct ds_handle *h, const struct ds_op *op);

// Buffers (buffer.c).
void ds_buffers_init(void);
void ds_buffers_close_all(void);
void ds_buffer_put(struct ds_buffer *b);
// Finds the registered buffer that holds `base` (referenced) and checks that base+offset+size stays
// inside. *out is NULL for unregistered memory.
opends_op_error_t ds_buffer_find(const void *base, u64 offset, u64 size, struct ds_buffer **out);
// The generation of the opends_alloc() memory that `base` lies in; 0 for any other memory.
u64 ds_buffer_ours(const void *base);

// A registered range; rings keep a fixed-buffer slot for it under (slot, generation).
struct ds_buffer {
    u8 *base;
    size_t size;
    u32 slot;
    u64 generation;
    bool is_device;
    bool is_ours; // came from opends_alloc
    int flags;
    _Atomic u32 references;
    _Atomic u64 registered_rings;
    _Atomic u32 uses;
};

// Operations (io.c).
// Checks and fills an operation; references the handle and the buffer. On failure nothing is held.
opends_op_error_t ds_op_prepare(struct ds_op *op, opends_handle_t fh, enum opends_opcode opcode,
                                void *base, u64 size, i64 offset, i64 base_offset);
// Hands a prepared operation to whoever executes it. `done` may be called before this returns.
void ds_op_submit(struct ds_op *op);
void ds_ops_submit_list(struct list *ops, u32 count);
// Executes on the calling thread: by its backend, or on the thread's ring whatever its backend.
void ds_op_run(struct ds_op *op);
void ds_op_run_on_ring(struct ds_op *op);
// Ends an operation: status, statistics, trace, references, then done().
void ds_op_finish(struct ds_op *op);
// Gives back what ds_op_prepare() took, of an operation that will not be submitted.
void ds_op_release(struct ds_op *op);

// Blocking workers (pool.c) and ring engines (engine.c).
void ds_pool_init(void);
void ds_pool_submit(struct list *ops);
void ds_pool_stop(void);
void ds_engines_init(void);
opends_error_t ds_engines_start(void);
void ds_engines_submit(struct list *ops, u32 count);
void ds_engines_stop(void);
void ds_engines_fork_child(void);
// Wakes all engines, so that they look at cancelled operations.
void ds_engines_kick(void);
// Ends what waits for a worker and was cancelled or is out of time.
void ds_pool_kick(void);
// Starts a thread that takes none of the program's signals. 0 or an errno.
int ds_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);
// Asks every ring in the mask to drop its fixed file or buffer; each does so before its next use.
void ds_rings_forget_file(u64 ring_mask, u32 slot);
void ds_rings_forget_buffer(u64 ring_mask, u32 slot);
void ds_sync_queues_init(void);
void ds_sync_queues_close(void);
void ds_sync_queues_fork_child(void);
// The calling thread's ring, locked; NULL when none can be had (errno says why).
struct ds_queue *ds_sync_queue_get(void);
void ds_sync_queue_put(struct ds_queue *q);

// Batches and streams.
void ds_batches_init(void);
void ds_batches_close_all(void);
// Waits until streams have passed all operations queued on them; false when none moves for long.
bool ds_streams_drain(void);

// Statistics (stats.c) and trace (trace.c).
void ds_stats_init(void);
struct ds_stat_device *ds_stats_device(u64 device);
void ds_stats_record(struct ds_stat_device *d, const struct ds_op *op, u64 latency_ns);
void ds_trace_init(u32 entries);
void ds_trace_deinit(void);
void ds_trace_record(const struct ds_op *op, u64 latency_ns);

u64 ds_now_ns(void);
