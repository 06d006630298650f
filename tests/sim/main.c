// SPDX-License-Identifier: Apache-2.0
// sim-store: the store in the simulator, compared with a model. Each seed runs in a process of its
// own, so that one that aborts or hangs is named like one that fails.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "scenario.h"

#define JOBS_MAX       64
#define FAILURES_SHOWN 10

struct args {
    struct run_options run;
    u64 first;
    u64 last;
    u32 jobs;
    u32 timeout_s;
    bool is_failure_expected;
    bool is_every_flush;
};

struct job {
    pid_t pid;
    u64 seed;
    u64 flush;
    bool is_after;
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

static pid_t job_start(const struct args *a, const struct job *job)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    alarm(a->timeout_s);
    struct run_options run = a->run;
    if (job->flush != 0) {
        run.lives = 2;
        run.crash_at_flush = job->flush;
        run.is_crash_after = job->is_after;
    }
    scenario_run(job->seed, &run);
    fflush(stdout);
    exit(0); // not _exit: the leak check runs at exit
}

// Waits for one child and counts it.
static void job_reap(struct job *jobs, u32 *running, struct tally *t)
{
    int status;
    pid_t pid = wait(&status);
    if (pid < 0) {
        perror("wait");
        exit(2);
    }
    for (u32 i = 0; i < *running; i++) {
        struct job job = jobs[i];
        if (job.pid != pid) {
            continue;
        }
        jobs[i] = jobs[--*running];
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            t->passed++;
            return;
        }
        t->first_failed = t->failed++ == 0 ? job.seed : MIN(t->first_failed, job.seed);
        const char *how = "failed";
        if (WIFSIGNALED(status)) {
            how = WTERMSIG(status) == SIGALRM ? "did not end in time" : "crashed";
        }
        printf("seed %llu %s", (unsigned long long)job.seed, how);
        if (job.flush != 0) {
            printf(" with a crash %s flush %llu", job.is_after ? "after" : "before",
                   (unsigned long long)job.flush);
        }
        printf("\n");
        return;
    }
}

// Runs a job as soon as there is room.
static void job_add(const struct args *a, struct job *jobs, u32 *running, struct tally *t,
                    struct job job)
{
    if (*running == a->jobs) {
        job_reap(jobs, running, t);
    }
    job.pid = job_start(a, &job);
    if (job.pid < 0) {
        perror("fork");
        exit(2);
    }
    jobs[(*running)++] = job;
}

static void run_all(const struct args *a, struct tally *t)
{
    struct job jobs[JOBS_MAX];
    u32 running = 0;
    for (u64 seed = a->first;; seed++) {
        u64 flushes = a->is_every_flush ? scenario_count_flushes(seed) : 0;
        if (!a->is_every_flush) {
            job_add(a, jobs, &running, t, (struct job){.seed = seed});
        }
        for (u64 flush = 1; flush <= flushes && t->failed < FAILURES_SHOWN; flush++) {
            job_add(a, jobs, &running, t, (struct job){.seed = seed, .flush = flush});
            job_add(a, jobs, &running, t,
                    (struct job){.seed = seed, .flush = flush, .is_after = true});
        }
        if (seed == a->last || (t->failed >= FAILURES_SHOWN && !a->is_failure_expected) ||
            (t->failed > 0 && a->is_failure_expected)) {
            break;
        }
    }
    while (running > 0) {
        job_reap(jobs, &running, t);
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
