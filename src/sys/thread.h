// SPDX-License-Identifier: Apache-2.0
// Threads and CPUs, for core/ alone: everybody else has fibers. Threads start with all signals
// blocked, so that the process's signals reach the thread that waits for them.
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <sched.h>

// Starts a thread named `name` (at most 15 characters), allowed on the CPUs of `cpus` (NULL: as the
// caller). ERR_LIMIT_REACHED when the process may have no more threads.
enum err sys_thread_start(pthread_t *out, const char *name, const cpu_set_t *cpus,
                          void *(*fn)(void *arg), void *arg) NODISCARD;
void sys_thread_join(pthread_t thread);
// The CPUs that the calling thread may use.
void sys_thread_cpus(cpu_set_t *out);
// Restricts the calling thread; false if the kernel refuses (the caller goes on unpinned).
bool sys_thread_set_cpus(const cpu_set_t *cpus);
// The `index`-th CPU of `allowed`, counted round: more threads than CPUs share them.
void sys_cpu_pick(const cpu_set_t *allowed, u32 index, cpu_set_t *out);
