// SPDX-License-Identifier: Apache-2.0
// `leat serve` as a whole, shared by serve.c (before and after the reactors run) and serve_run.c
// (while they do). Private to cli/.
#pragma once

#include "admin/admin.h"
#include "cli/cli.h"
#include "cli/serve_options.h"
#include "core/fiber.h"
#include "core/mailbox.h"

#define SERVE_MAGIC 0x53657276u

#define SERVE_STOP_NS_MAX  (9500 * NS_PER_MS) // from SIGTERM until the process ends, come what may
#define SERVE_DRAIN_NS_MAX (7 * NS_PER_S)     // of it, for requests under way
#define SERVE_FILES_MIN    1024               // file descriptors without which nothing starts
#define SERVE_FILES_BASE   128                // for libraries, helpers, drives
#define SERVE_FILES_CORE   8
#define SERVE_DOORS_MAX    2

// One address that is listened on, by every core.
struct door {
    const char *address; // as configured
    u16 port;            // as bound
    bool is_tls;
    int fd[CORES_MAX]; // -1: none, or taken over by the server
    struct http_server *server[CORES_MAX];
};

struct serve {
    u32 magic;
    struct serve_options options;
    struct config config;
    struct sys *sys;
    struct runtime *rt;
    u32 cores;
    u32 connections_max; // a core
    u64 started_ns;
    struct door doors[SERVE_DOORS_MAX];
    u32 door_count;
    struct http_tls *tls;

    // Core 0, from here on.
    struct admin *admin;
    struct store *store;
    struct meta *meta;
    struct s3 *s3;
    enum exit_code code;
    enum err core_result[CORES_MAX]; // each written by its core, read after core_call
    enum admin_state state;          // what cores are told to take over
    struct group boot;
    int signal_fd;
    struct io_op signal_op;
    bool is_stopping; // SIGTERM or SIGINT arrived
    bool is_over;     // the signal fiber is to end
    struct event stop;
    struct timer watchdog;
    u64 drain_deadline_ns;
};

// The main fiber: recovers, serves until told to stop, drains. Leaves s->code. arg: struct serve.
MAY_WAIT void serve_fiber(void *arg);
