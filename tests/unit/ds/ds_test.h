// SPDX-License-Identifier: Apache-2.0
// What the libopends tests share: files with known bytes, memory of the accelerator in use, and
// short checks. A file's byte at an offset is a function of its seed, so any range can be checked
// anywhere.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <sys/types.h>

#include "opends.h"

uint8_t pattern_byte(uint64_t seed, uint64_t offset);
void pattern_fill(uint8_t *out, uint64_t seed, uint64_t offset, size_t bytes);
// Fails the test at the first wrong byte.
void pattern_check(const uint8_t *bytes, uint64_t seed, uint64_t offset, size_t count);

// A new file of the pattern, already unlinked; `flags` beside O_RDWR. The caller closes it.
int file_make(uint64_t seed, size_t bytes, int flags);
// The same with its name kept, in `path` (64 bytes).
int file_make_named(char *path, uint64_t seed, size_t bytes, int flags);

// Memory of the kind under test: the accelerator's (opends_alloc) or plain, by DS_TEST_MEMORY.
bool memory_is_device(void);
uint8_t *memory_new(size_t bytes);
void memory_delete(uint8_t *memory);
void memory_put(uint8_t *memory, const uint8_t *from, size_t bytes);
void memory_get(uint8_t *to, const uint8_t *memory, size_t bytes);
void memory_set(uint8_t *memory, uint8_t value, size_t bytes);

void assert_ok(opends_error_t e);
void assert_err(opends_error_t e, opends_op_error_t code);
opends_handle_t handle_new(int fd);
const char *backend_name(void); // OPENDS_BACKEND, or "auto"

// Opens the driver before each test and closes it after.
int driver_setup(void **state);
int driver_teardown(void **state);
// Sets a variable and opens the driver again.
void driver_reopen(const char *variable, const char *value);

// Deterministic randomness.
uint64_t random_next(uint64_t *state);
