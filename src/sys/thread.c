// SPDX-License-Identifier: Apache-2.0
// Threads of the process: reactors and blocking helpers.
#include "sys/thread.h"

#include "base/assert.h"

#include <signal.h>
#include <string.h>

enum err sys_thread_start(pthread_t *out, const char *name, const cpu_set_t *cpus,
                          void *(*fn)(void *arg), void *arg)
{
    ASSERT(strlen(name) <= 15);
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    ASSERT(rc == 0);
    if (cpus != NULL) {
        rc = pthread_attr_setaffinity_np(&attr, sizeof(*cpus), cpus);
        ASSERT(rc == 0);
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(out, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        return ERR_LIMIT_REACHED;
    }
    pthread_setname_np(*out, name);
    return OK;
}

void sys_thread_join(pthread_t thread)
{
    int rc = pthread_join(thread, NULL);
    ASSERT(rc == 0);
}

void sys_thread_cpus(cpu_set_t *out)
{
    CPU_ZERO(out);
    if (sched_getaffinity(0, sizeof(*out), out) != 0) {
        CPU_SET(0, out); // more CPUs than a cpu_set_t holds: unpinned is what remains
    }
}

bool sys_thread_set_cpus(const cpu_set_t *cpus)
{
    return sched_setaffinity(0, sizeof(*cpus), cpus) == 0;
}

void sys_cpu_pick(const cpu_set_t *allowed, u32 index, cpu_set_t *out)
{
    u32 count = (u32)CPU_COUNT(allowed);
    ASSERT(count > 0);
    u32 wanted = index % count;
    CPU_ZERO(out);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed) && wanted-- == 0) {
            CPU_SET(cpu, out);
            return;
        }
    }
    assert_fail(__FILE__, __LINE__, "the set has as many CPUs as it counts");
}
