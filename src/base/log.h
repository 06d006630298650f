// SPDX-License-Identifier: Apache-2.0
// One line an event, in text or JSON, to whatever sink the process installed. Thread-safe: a line
// is formatted on the caller's stack and handed over whole. The sink and the level are the
// process's only mutable globals: they are set by cli/ at start (and the level again on SIGHUP).
//
//   LOG_WARN("drive_slow", "drive=%s latency_ms=%llu", path, ms);
//
// The first argument is the event's stable name; the text that follows is `name=value` pairs,
// values with blanks quoted by the caller with "%s" in double quotes.
#pragma once

#include "base/types.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

// Receives one finished line of `len` bytes, without a newline. Called on any thread.
typedef void (*log_sink_fn)(enum log_level level, const char *line, size_t len);
// Gives the wall clock in nanoseconds since 1970 (base has no clock of its own).
typedef u64 (*log_clock_fn)(void);

void log_init(log_sink_fn sink, log_clock_fn clock, enum log_level level, bool is_json);
void log_set_level(enum log_level level);
enum log_level log_level(void);
// Parses "debug", "info", "warn" or "error"; false if it is none of them.
bool log_level_parse(const char *text, enum log_level *out);

void log_write(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define LOG_AT(level, event, ...)                                                                  \
    do {                                                                                           \
        if (UNLIKELY((level) >= log_level())) {                                                    \
            log_write(level, event, __VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)
#define LOG_DEBUG(event, ...) LOG_AT(LOG_LEVEL_DEBUG, event, __VA_ARGS__)
#define LOG_INFO(event, ...)  LOG_AT(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define LOG_WARN(event, ...)  LOG_AT(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define LOG_ERROR(event, ...) LOG_AT(LOG_LEVEL_ERROR, event, __VA_ARGS__)
