// SPDX-License-Identifier: Apache-2.0
// sim-store: the store in the simulator, compared with a model. Seeds run in child processes, some
// after each other in one; a child that aborts or hangs is named by the seed that it was at, and
// another one goes on behind it.
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "scenario.h"

#define JOBS_MAX       64
#define FAILURES_SHOWN 10
#define CHUNK_SEEDS    25 // that a child runs before it ends

struct args {
    struct run_options run;
    u64 first;
    u64 last;
    u32 jobs;
    u32 timeout_s;
    bool is_failure_expected;
    bool is_every_flush;
};

// What one child is to do: seeds, or one life of one seed that crashes at a flush.
struct job {
    pid_t pid;
    u64 first;
    u64 last;
    u64 flush;
    bool is_after;
    u64 *at; // shared with the child: the seed that it is at
};

struct pool {
    const struct args *args;
    struct job jobs[JOBS_MAX];
    u32 running;
    u64 *at; // JOBS_MAX of them
    bool is_taken[JOBS_MAX];
};

struct tally {
    u64 passed;
    u64 failed;
    u64 first_failed;
};

static void usage(FILE *to)
{
    fputs("usage: sim-store [--seed N | --seeds A..B] [-j JOBS] [--verbose] [--timeout SECONDS]\n"
          "  --seed N          one seed (with its trace when it fails)\n"
          "  --seeds A..B      all seeds from A to B\n"
          "  --model           the plain model test: one client, no faults, clean restarts\n"
          "  --every-flush     one life a run, crashing at each of its flushes, before and after\n"
          "  --break WHAT      the simulated drives lie: no-flush, ack-early, no-dir-flush,\n"
          "                    wrong-read\n"
          "  --expect-failure  succeed only if some seed fails\n"
          "  --verbose         print every step\n",
          to);
}

static bool break_parse(const char *text, enum sim_break *out)
{
    static const char *const names[] = {"none", "no-flush", "ack-early", "no-dir-flush",
                                        "wrong-read"};
    for (u32 i = 1; i < ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum sim_break)i;
            return true;
        }
    }
    return false;
}

// "A..B" or "N".
static bool range_parse(const char *text, u64 *first, u64 *last)
{
    const char *dots = strstr(text, "..");
    if (dots == NULL) {
        bool is_ok = u64_parse(bytes_from_string(text), UINT64_MAX, first);
        *last = *first;
        return is_ok;
    }
    return u64_parse(BYTES(text, (size_t)(dots - text)), UINT64_MAX, first) &&
           u64_parse(bytes_from_string(dots + 2), UINT64_MAX, last) && *first <= *last;
}

static bool u32_parse(const char *text, u32 max, u32 *out)
{
    u64 value;
    if (!u64_parse(bytes_from_string(text), max, &value)) {
        return false;
    }
    *out = (u32)value;
    return true;
}

// One option; false if its value is not valid.
static bool option_take(struct args *a, int option)
{
    switch (option) {
    case 's':
    case 'S':
        return range_parse(optarg, &a->first, &a->last);
    case 'j':
        return u32_parse(optarg, JOBS_MAX, &a->jobs) && a->jobs > 0;
    case 't':
        return u32_parse(optarg, 3600, &a->timeout_s) && a->timeout_s > 0;
    case 'b':
        return break_parse(optarg, &a->run.sabotage);
    case 'v':
        a->run.is_verbose = true;
        return true;
    case 'm':
        a->run.is_plain = true;
        return true;
    case 'e':
        a->is_every_flush = true;
        return true;
    case 'x':
        a->is_failure_expected = true;
        return true;
    default:
        return false;
    }
}

static bool args_parse(int argc, char **argv, struct args *a)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},     {"seeds", required_argument, NULL, 'S'},
        {"jobs", required_argument, NULL, 'j'},     {"timeout", required_argument, NULL, 't'},
        {"break", required_argument, NULL, 'b'},    {"verbose", no_argument, NULL, 'v'},
        {"model", no_argument, NULL, 'm'},          {"every-flush", no_argument, NULL, 'e'},
        {"expect-failure", no_argument, NULL, 'x'}, {NULL, 0, NULL, 0},
    };
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *a = (struct args){.first = 1, .last = 100, .timeout_s = 120};
    a->jobs = (u32)MAX(1l, MIN(cpus, (long)JOBS_MAX));
    int option;
    while ((option = getopt_long(argc, argv, "j:v", options, NULL)) != -1) {
        if (!option_take(a, option)) {
            return false;
        }
    }
    return optind == argc;
}

_Noreturn static void child_run(const struct args *a, const struct job *job)
{
    // Memory that was given back stays: page faults are most of what a short run costs.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    struct run_options run = a->run;
    if (job->flush != 0) {
        run.lives = 2;
        run.crash_at_flush = job->flush;
        run.is_crash_after = job->is_after;
    }
    for (u64 seed = job->first;; seed++) {
        *job->at = seed;
        alarm(a->timeout_s);
        scenario_run(seed, &run);
        if (seed == job->last) {
            break;
        }
    }
    alarm(0);
    fflush(stdout);
    exit(0); // not _exit: the leak check runs at exit
}

static void job_start(struct pool *p, struct job job)
{
    u32 slot = 0;
    while (p->is_taken[slot]) {
        slot++;
    }
    p->is_taken[slot] = true;
    job.at = &p->at[slot];
    *job.at = job.first;
    fflush(stdout);
    job.pid = fork();
    if (job.pid < 0) {
        perror("fork");
        exit(2);
    }
    if (job.pid == 0) {
        child_run(p->args, &job);
    }
    p->jobs[p->running++] = job;
}

// Says how a child failed, and lets another one go on with the seeds behind.
static void job_failed(struct pool *p, struct tally *t, const struct job *job, u64 seed, int status)
{
    t->first_failed = t->failed++ == 0 ? seed : MIN(t->first_failed, seed);
    const char *how = "failed";
    if (WIFSIGNALED(status)) {
        how = WTERMSIG(status) == SIGALRM ? "did not end in time" : "crashed";
    }
    printf("seed %llu %s", (unsigned long long)seed, how);
    if (job->flush != 0) {
        printf(" with a crash %s flush %llu", job->is_after ? "after" : "before",
               (unsigned long long)job->flush);
    }
    printf("\n");
    if (seed < job->last && t->failed < FAILURES_SHOWN && !p->args->is_failure_expected) {
        struct job rest = *job;
        rest.first = seed + 1;
        job_start(p, rest);
    }
}

// Waits for one child and counts its seeds.
static void job_reap(struct pool *p, struct tally *t)
{
    int status;
    pid_t pid = wait(&status);
    if (pid < 0) {
        perror("wait");
        exit(2);
    }
    for (u32 i = 0; i < p->running; i++) {
        struct job job = p->jobs[i];
        if (job.pid != pid) {
            continue;
        }
        p->jobs[i] = p->jobs[--p->running];
        p->is_taken[job.at - p->at] = false;
        u64 seed = *job.at;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            t->passed += job.last - job.first + 1;
        } else {
            t->passed += seed - job.first;
            job_failed(p, t, &job, seed, status);
        }
        return;
    }
}

// Starts a job as soon as there is room.
static void job_add(struct pool *p, struct tally *t, struct job job)
{
    while (p->running == p->args->jobs) {
        job_reap(p, t);
    }
    job_start(p, job);
}

static bool is_enough(const struct args *a, const struct tally *t)
{
    return t->failed >= (a->is_failure_expected ? 1u : (u64)FAILURES_SHOWN);
}

// All crash points of the first life of each seed.
static void run_flushes(struct pool *p, struct tally *t)
{
    const struct args *a = p->args;
    for (u64 seed = a->first; !is_enough(a, t); seed++) {
        u64 flushes = scenario_count_flushes(seed);
        for (u64 flush = 1; flush <= flushes && !is_enough(a, t); flush++) {
            struct job job = {.first = seed, .last = seed, .flush = flush};
            job_add(p, t, job);
            job.is_after = true;
            job_add(p, t, job);
        }
        if (seed == a->last) {
            break;
        }
    }
}

static void run_seeds(struct pool *p, struct tally *t)
{
    const struct args *a = p->args;
    for (u64 seed = a->first; !is_enough(a, t);) {
        u64 last = MIN(a->last, seed + CHUNK_SEEDS - 1);
        job_add(p, t, (struct job){.first = seed, .last = last});
        if (last == a->last) {
            break;
        }
        seed = last + 1;
    }
}

static void run_all(const struct args *a, struct tally *t)
{
    struct pool p = {.args = a};
    p.at = mmap(NULL, JOBS_MAX * sizeof(u64), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (p.at == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    if (a->is_every_flush) {
        run_flushes(&p, t);
    } else {
        run_seeds(&p, t);
    }
    while (p.running > 0) {
        job_reap(&p, t);
    }
}

int main(int argc, char **argv)
{
    struct args a;
    if (!args_parse(argc, argv, &a)) {
        usage(stderr);
        return 2;
    }
    struct tally t = {0};
    struct timespec start;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    run_all(&a, &t);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    printf("sim-store: %llu runs passed, %llu failed in %.1f s\n", (unsigned long long)t.passed,
           (unsigned long long)t.failed, seconds);
    if (t.failed > 0) {
        printf("first failing seed: %llu (rerun with --seed %llu --verbose)\n",
               (unsigned long long)t.first_failed, (unsigned long long)t.first_failed);
    }
    return (t.failed > 0) == a.is_failure_expected ? 0 : 1;
}
