// SPDX-License-Identifier: Apache-2.0
// The trace of a run (see trace.h). A test program may have globals: one process runs one seed.
#include "trace.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES      120
#define LINE_BYTES 240

static struct {
    u64 seed;
    bool is_verbose;
    u64 count;
    u64 warnings;
    char lines[LINES][LINE_BYTES];
} run;

static void line_add(const char *text)
{
    snprintf(run.lines[run.count % LINES], LINE_BYTES, "%s", text);
    run.count++;
    if (run.is_verbose) {
        printf("%s\n", text);
    }
}

static void sink(enum log_level level, const char *line, size_t len)
{
    char text[LINE_BYTES];
    snprintf(text, sizeof(text), "    log: %.*s", (int)len, line);
    line_add(text);
    // What a crash makes fail says nothing about damage. The last commit of a log that was not
    // sealed looks unfinished when it is damaged.
    bool is_told = level >= LOG_LEVEL_WARN || strstr(text, "log_tail_unfinished") != NULL;
    run.warnings += is_told && strstr(text, "error=IO") == NULL;
}

static u64 no_clock(void)
{
    return 0;
}

static void ring_print(void)
{
    for (u64 i = run.count > LINES ? run.count - LINES : 0; i < run.count && !run.is_verbose; i++) {
        printf("  %s\n", run.lines[i % LINES]);
    }
    fflush(stdout);
}

// The program under test asserted or hung: shows how it came there. Not async-signal-safe, which
// at worst costs the trace.
static void on_signal(int number)
{
    const char *what = number == SIGALRM ? "did not end in time" : "aborted";
    printf("seed %llu FAILED: %s\n", (unsigned long long)run.seed, what);
    ring_print();
    signal(number, SIG_DFL);
    raise(number);
}

void trace_start(u64 seed, bool is_verbose)
{
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    memset(&run, 0, sizeof(run));
    run.seed = seed;
    run.is_verbose = is_verbose;
    log_init(sink, no_clock, LOG_LEVEL_DEBUG, false);
}

void trace(const char *fmt, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    line_add(text);
}

void trace_fail(const char *fmt, ...)
{
    printf("seed %llu FAILED: ", (unsigned long long)run.seed);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    ring_print();
    _Exit(1);
}

u64 trace_warnings(void)
{
    return run.warnings;
}
