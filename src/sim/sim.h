// SPDX-License-Identifier: Apache-2.0
// The deterministic double of sys/: virtual time, and drives that reorder, tear, lose, misdirect
// and corrupt. Everything follows from the seed.
//
// A `struct sim_disk` is what survives a crash: directories and files. A `struct sys` made by
// sim_create is one life of a process on it; all reactors of the runtime run on one thread
// (is_single_thread), and the sys and its engines belong to that thread.
//
// What a drive promises, and no more:
//  - A completed write is visible to reads, and durable only once a flush of that file which was
//    issued after its completion has completed. Until then a power loss keeps it, loses it or tears
//    it, each write on its own: a prefix, any set of its 4 KiB or 512 B sectors, garbage in one.
//  - A write with IO_FLAG_DURABLE is durable when it completed; those before it are no more than
//    they were.
//  - A change of a directory is durable once the directory was flushed. A power loss keeps the
//    unflushed changes of each directory up to some point (a journal keeps their order).
//  - A file's size after file_allocate is durable with the next flush of the file.
//
// A crash ends nothing by force: the outcome on the disk is settled at that moment, and from then
// on every operation fails with EIO, so that the program above unwinds by its own error paths and
// its memory can be checked for leaks. What it believes after that moment does not count.
#pragma once

#include "base/err.h"
#include "base/types.h"
#include "sys/sys.h"

#define SIM_SECTOR_BYTES   512
#define SIM_PAGE_BYTES     4096
#define SIM_NAME_MAX       127
#define SIM_UNREADABLE_MAX 8 // pages of one file

struct sim_disk;

// drive_bytes: the capacity of each top-level directory; 0: no limit. NULL without memory.
struct sim_disk *sim_disk_create(u64 drive_bytes);
void sim_disk_destroy(struct sim_disk *d);
// Flips one bit of what is durable in a file (also in what is visible), somewhere that was written.
// False if nothing was ever written. `place` receives "path offset" for the trace.
bool sim_disk_flip_bit(struct sim_disk *d, u64 *random, char *place, size_t place_bytes);
// A page of a file fails to be read, from now on until it is written whole. Otherwise as above;
// false also if the file has SIM_UNREADABLE_MAX of them.
bool sim_disk_fail_page(struct sim_disk *d, u64 *random, char *place, size_t place_bytes);

enum sim_break {
    SIM_BREAK_NONE = 0,
    SIM_BREAK_NO_FLUSH,  // flushes succeed and do nothing
    SIM_BREAK_ACK_EARLY, // flushes succeed at once and take effect later, if at all
    SIM_BREAK_NO_DIR_FLUSH,
    SIM_BREAK_WRONG_READ, // now and then a read returns what another place holds
};

struct sim_options {
    u64 seed;
    u64 crash_at_flush;  // the crash comes with this flush, counted from 1; 0: not so
    bool is_crash_after; // right after that flush took effect, before anyone knows; else before
    u64 crash_at_event;  // or with this completion or blocking call, counted from 1; 0: not so
    bool is_kill;        // the crash is the process's end only: completed writes stay
    u32 read_error_ppm;  // EIO, in parts per million
    u32 write_error_ppm;
    u32 flush_error_ppm;
    u32 short_ppm;           // transfers that stop half-way, which POSIX allows
    u32 misdirect_ppm;       // writes that land elsewhere in the same drive
    enum sim_break sabotage; // lies that a test must notice
};

struct sim_stats {
    u64 events; // completions and blocking calls
    u64 flushes;
    u64 writes;
    u64 reads;
    u64 misdirected;
    bool is_crashed;
};

enum err sim_create(struct sim_disk *disk, const struct sim_options *options,
                    struct sys **out) NODISCARD;
void sim_stats(struct sys *s, struct sim_stats *out);
// Crashes now.
void sim_crash(struct sys *s);
// Lets it crash with the n-th flush (completion) from now, counted from 1; 0: not so. Replaces what
// the options said.
void sim_crash_arm(struct sys *s, u64 flushes, bool is_after, u64 events);
// From now on operations fail this often.
void sim_errors_set(struct sys *s, u32 read_ppm, u32 write_ppm, u32 flush_ppm);
