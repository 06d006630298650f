# SPDX-License-Identifier: Apache-2.0
"""Reads all files of a folder in batches, as a training loader would: python3 loader.py FOLDER."""
import os
import sys

import opends

BATCH = 64


def batches(folder):
    """Yields lists of (name, memory, bytes)."""
    names = sorted(n for n in os.listdir(folder) if os.path.isfile(os.path.join(folder, n)))
    for start in range(0, len(names), BATCH):
        part = names[start:start + BATCH]
        files = [opends.File(os.path.join(folder, n)) for n in part]
        memory = [bytearray(os.path.getsize(os.path.join(folder, n))) for n in part]
        with opends.Batch() as b:
            for i, f in enumerate(files):
                if memory[i]:
                    b.read(f, memory[i], cookie=i)
            b.submit()
            for event in b.wait():
                if not event.ok:
                    raise OSError(f"{part[event.cookie]}: {event}")
        yield list(zip(part, memory))
        for f in files:
            f.close()


def main():
    count = total = 0
    for batch in batches(sys.argv[1]):
        count += len(batch)
        total += sum(len(memory) for _, memory in batch)
    print(f"{count} files, {total} bytes")
    for s in opends.stats():
        print(f"{s.backend}: {s.calls} calls, {s.bytes} bytes, {s.latency_ns_sum / s.calls / 1000:.0f} us each")


if __name__ == "__main__":
    main()
