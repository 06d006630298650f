#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the parts of dev/test, and adds up what they count.

Three builds, each with its own `meson test`:
  gcc    build/        gcc, release, warnings are errors: suites unit, checks, sim, fuzz
  asan   build-asan/   clang, AddressSanitizer and UndefinedBehaviorSanitizer: the same suites
  tsan   build-tsan/   clang, ThreadSanitizer: what crosses cores (TSAN_TESTS)
Then every executable tests/NAME/run is the part NAME (tests/perf is dev/bench's), and those of
ASAN_SCRIPTS run once more against the server of build-asan as the part NAME-asan. A script gets
  LEAT        the release server          LEAT_ASAN   the one with AddressSanitizer
  LEAT_TSAN   the one with ThreadSanitizer LEAT_BUILD  the folder of the release build
and prints, as its last line, "N passed, N failed[, N skipped]". Lines that begin with
"skip " or hold SKIPPED say why.
The builds come one after the other; of the scripts LANES run side by side, because most of them wait
for a client that uses one core, or for the drive.
"""
import concurrent.futures
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

BUILDS = {
    "gcc": ("build", "gcc", ["--buildtype=release"]),
    "asan": ("build-asan", "clang",
             ["--buildtype=debugoptimized", "-Db_sanitize=address,undefined", "-Db_lundef=false"]),
    "tsan": ("build-tsan", "clang",
             ["--buildtype=debugoptimized", "-Db_sanitize=thread", "-Db_lundef=false"]),
}
# Of the tsan build only tests that start threads are of interest; names of meson tests.
TSAN_TESTS = re.compile(r"^(sys-uring|core-|net-|store-|meta-|admin-endpoints|ds-(threads|hostile)-|tensor-(roundtrip|container))")
ASAN_SCRIPTS = ("cli",)
# meson's own limits are for an idle machine.
TIMEOUT_MULTIPLIER = "4"
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:strict_string_checks=1:abort_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
LANES = 2
FIRST_SCRIPTS = ("s3",)  # the longest: the others pass by beside it
NOT_PARTS = {"perf", "gpu", "vm"}  # dev/bench's; for a GPU; run by tests/ds/run
PART_SECONDS_MAX = 40 * 60
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
SKIP_LINE = re.compile(r"^skip |SKIPPED")
LOGS = "build/test-logs"
BUILDING = threading.Lock()


class Count:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


def run_logged(command, log_path, seconds, env=None, mode="w"):
    """Runs it with its output in the log and in a process group that ends with it."""
    with open(log_path, mode) as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            log.write(f"\ntimed out after {seconds} s\n")
            return 124
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def tail(out, log_path, lines=60):
    with open(log_path, errors="replace") as f:
        out += ["    " + line for line in f.read().splitlines()[-lines:]]


def build(out, name, targets=()):
    folder, compiler, options = BUILDS[name]
    log = f"{LOGS}/{name}-build.log"
    if os.path.exists(f"{folder}/build.ninja"):
        setup = ["meson", "configure", folder, "-Dtests=true"]
    else:
        setup = ["meson", "setup", folder, "-Dtests=true", *options]
    code = run_logged(setup, log, 300, dict(os.environ, CC=compiler))
    if code == 0:
        jobs = str(len(os.sched_getaffinity(0)))
        code = run_logged(["ninja", "-C", folder, "-j", jobs, *targets], log, PART_SECONDS_MAX,
                          mode="a")
    if code != 0:
        tail(out, log)
    return code == 0


def meson_tests(name, folder):
    """Names of the build's tests: all, or for tsan those that start threads."""
    listed = json.loads(subprocess.run(["meson", "introspect", "--tests", folder], check=True,
                                       capture_output=True, text=True).stdout)
    names = [t["name"] for t in listed if name == "gcc" or "checks" not in
             "".join(t["suite"])]
    return [n for n in names if name != "tsan" or TSAN_TESTS.search(n)]


def count_meson(out, folder):
    count = Count()
    with open(f"{folder}/meson-logs/testlog.json") as f:
        for line in f:
            test = json.loads(line)
            if test["result"] in ("OK", "EXPECTEDFAIL"):
                count.passed += 1
            elif test["result"] == "SKIP":
                count.skipped += 1
                out.append(f"    SKIPPED {test['name']}: {test.get('stdout', '').strip()[-200:]}")
            else:
                count.failed += 1
                out.append(f"    {test['result']} {test['name']}: {' '.join(test['command'])}")
                text = test.get("stdout", "") + test.get("stderr", "")
                out += ["        " + line for line in text.splitlines()[-40:]]
    return count


def run_build(out, name):
    folder = BUILDS[name][0]
    if not build(out, name):
        out.append(f"    the build failed: {LOGS}/{name}-build.log")
        return Count(failed=1)
    names = meson_tests(name, folder)
    if not names:
        return Count()
    log_json = f"{folder}/meson-logs/testlog.json"
    if os.path.exists(log_json):
        os.unlink(log_json)
    run_logged(["meson", "test", "-C", folder, "--no-rebuild", "--timeout-multiplier",
                TIMEOUT_MULTIPLIER, "--num-processes", str(len(os.sched_getaffinity(0))), *names],
               f"{LOGS}/{name}.log", PART_SECONDS_MAX, dict(os.environ, **SANITIZER_ENV))
    if not os.path.exists(log_json):
        tail(out, f"{LOGS}/{name}.log")
        return Count(failed=1)
    count = count_meson(out, folder)
    missing = len(names) - count.passed - count.failed - count.skipped
    if missing > 0:
        out.append(f"    {missing} of {len(names)} tests did not end: {LOGS}/{name}.log")
        count.failed += missing
    return count


def run_script(out, name, script, server="gcc"):
    log = f"{LOGS}/{name}.log"
    env = dict(os.environ, LEAT_BUILD=os.path.abspath("build"), **SANITIZER_ENV)
    for variable, key in (("LEAT", "gcc"), ("LEAT_ASAN", "asan"), ("LEAT_TSAN", "tsan")):
        env[variable] = os.path.abspath(f"{BUILDS[key][0]}/leat")
    with BUILDING:
        is_built = (os.path.exists(f"{BUILDS[server][0]}/leat") or
                    build(out, server, ["src/cli/leat"]))
    if not is_built:
        return Count(failed=1)
    env["LEAT"] = os.path.abspath(f"{BUILDS[server][0]}/leat")
    code = run_logged([script], log, PART_SECONDS_MAX, env)
    with open(log, errors="replace") as f:
        lines = f.read().splitlines()
    out += ["    " + line.strip() for line in lines if SKIP_LINE.search(line)]
    closing = CLOSING.match(lines[-1].strip()) if lines else None
    if closing is None:
        tail(out, log)
        out.append(f"    {script} ended with {code} and no closing line")
        return Count(failed=1)
    count = Count(*(int(n or 0) for n in closing.groups()))
    if code != 0 and count.failed == 0:
        out.append(f"    {script} ended with {code}")
        count.failed = 1
    if count.failed > 0:
        tail(out, log, 120)
    return count


def builds():
    return [(name, lambda out, n=name: run_build(out, n)) for name in BUILDS]


def scripts():
    found = []
    for script in glob.glob("tests/*/run"):
        name = script.split("/")[1]
        if name in NOT_PARTS or not os.access(script, os.X_OK):
            continue
        found.append((name, lambda out, n=name, s=script: run_script(out, n, s)))
        if name in ASAN_SCRIPTS:
            found.append((name + "-asan",
                          lambda out, n=name, s=script: run_script(out, n + "-asan", s, "asan")))
    return sorted(found, key=lambda part: (part[0] not in FIRST_SCRIPTS, part[0]))


def run_part(name, function):
    start = time.monotonic()
    out = []
    count = function(out)
    out.append(f"   {name}: {count} in {time.monotonic() - start:.0f} s")
    print("\n".join([f"== {name}"] + out), flush=True)
    return count


def main(argv):
    names = [name for name, _ in builds() + scripts()]
    if argv[1:] == ["--list"]:
        print("\n".join(names))
        return 0
    for wanted in argv[1:]:
        if wanted not in names:
            print(f"unknown part '{wanted}'; there are: {' '.join(names)}", file=sys.stderr)
            return 2
    os.makedirs(LOGS, exist_ok=True)
    total = Count()
    start = time.monotonic()
    for found, lanes in ((builds(), 1), (scripts(), LANES)):
        wanted = [part for part in found if not argv[1:] or part[0] in argv[1:]]
        with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
            for count in pool.map(lambda part: run_part(*part), wanted):
                total.add(count)
    print(f"   all: {time.monotonic() - start:.0f} s")
    if total.passed + total.failed == 0:
        print("no test ran")
        total.failed = 1
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
