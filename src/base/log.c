// SPDX-License-Identifier: Apache-2.0
// Formatting of log lines. A line that would be longer than LOG_LINE_BYTES_MAX is cut, and says so.
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

#define LOG_LINE_BYTES_MAX 1536
#define LOG_TEXT_BYTES_MAX 640

static struct {
    log_sink_fn sink;
    log_clock_fn clock;
    int level; // read and written with relaxed atomics: SIGHUP may change it
    bool is_json;
} log_state = {.level = LOG_LEVEL_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(log_sink_fn sink, log_clock_fn clock, enum log_level level, bool is_json)
{
    ASSERT(sink != NULL && clock != NULL);
    log_state.sink = sink;
    log_state.clock = clock;
    log_state.is_json = is_json;
    log_set_level(level);
}

void log_set_level(enum log_level level)
{
    __atomic_store_n(&log_state.level, (int)level, __ATOMIC_RELAXED);
}

enum log_level log_level(void)
{
    return (enum log_level)__atomic_load_n(&log_state.level, __ATOMIC_RELAXED);
}

bool log_level_parse(const char *text, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

// Copies `text` with what JSON cannot hold in a string escaped; always terminates `out`.
static size_t json_escape(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (const u8 *p = (const u8 *)text; *p != 0 && n + 7 < cap; p++) {
        if (*p == '"' || *p == '\\') {
            out[n++] = '\\';
            out[n++] = (char)*p;
        } else if (*p < 0x20 || *p >= 0x7f) {
            n += (size_t)snprintf(out + n, cap - n, "\\u%04x", *p);
        } else {
            out[n++] = (char)*p;
        }
    }
    out[n] = 0;
    return n;
}

// In text lines only control characters are replaced, so that one event stays one line.
static void text_clean(char *text)
{
    for (u8 *p = (u8 *)text; *p != 0; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
    if (log_state.sink == NULL || level < log_level()) {
        return;
    }
    char text[LOG_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, fmt);
    int wanted = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (wanted >= (int)sizeof(text)) {
        memcpy(text + sizeof(text) - 5, " ...", 5);
    }
    u64 now_ns = log_state.clock();
    time_t seconds = (time_t)(now_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char stamp[40];
    size_t stamp_len = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(stamp + stamp_len, sizeof(stamp) - stamp_len, ".%06uZ",
             (unsigned)(now_ns % NS_PER_S / NS_PER_US));
    char line[LOG_LINE_BYTES_MAX];
    int n;
    if (log_state.is_json) {
        char escaped[LOG_LINE_BYTES_MAX - 160];
        json_escape(text, escaped, sizeof(escaped));
        n = snprintf(line, sizeof(line),
                     "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"text\":\"%s\"}", stamp,
                     level_names[level], event, escaped);
    } else {
        text_clean(text);
        n = snprintf(line, sizeof(line), "%s %-5s %s %s", stamp, level_names[level], event, text);
    }
    ASSERT(n > 0);
    log_state.sink(level, line, MIN((size_t)n, sizeof(line) - 1));
}
