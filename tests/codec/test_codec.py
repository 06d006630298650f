# SPDX-License-Identifier: Apache-2.0
"""The Python binding, the command and real tensors. Started by tests/codec/run."""

import concurrent.futures
import glob
import json
import math
import os
import random
import struct
import subprocess
import sys
import tarfile
import unittest
import zlib

import leatcodec
import onnx_tensors
import page_decoder

COMMAND = os.environ["LEAT_CODEC_COMMAND"]
WORK = os.environ["LEAT_CODEC_WORK"]
MODELS = os.environ["LEAT_CODEC_MODELS"]
HOSTS = [c for c in ("c", "avx2", "avx512") if leatcodec.cpu_name(c)]


def gaussian_bf16(n, seed, scale=0.02):
    r = random.Random(seed)
    raw = struct.pack("<%df" % n, *(r.gauss(0, scale) for _ in range(n)))
    return onnx_tensors.fp32_to_bf16(raw)


def entropy_ratio_16(raw, exponent_bits):
    """The floor: sign and mantissa raw, exponents at their entropy."""
    counts = {}
    for (x,) in struct.iter_unpack("<H", raw):
        e = x >> (15 - exponent_bits) & (1 << exponent_bits) - 1
        counts[e] = counts.get(e, 0) + 1
    n = len(raw) // 2
    h = -sum(c / n * math.log2(c / n) for c in counts.values())
    return 16 / (16 - exponent_bits + h)


def run(*arguments, status=0):
    done = subprocess.run([COMMAND, "codec", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def path(name):
    return os.path.join(WORK, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)
    return path(name)


def read(name):
    with open(path(name), "rb") as f:
        return f.read()


class Binding(unittest.TestCase):
    def test_round_trip_of_every_type_and_mode(self):
        data = gaussian_bf16(70001, 1) + b"x"
        for kind in leatcodec.TYPES:
            for mode in leatcodec.MODES:
                c = leatcodec.encode(data, type=kind, mode=mode, block_bytes=65536)
                self.assertEqual(leatcodec.decode(c), data)

    def test_loops_agree(self):
        data = gaussian_bf16(50000, 2)
        for mode in leatcodec.MODES:
            made = {leatcodec.encode(data, type="bf16", mode=mode, cpu=h) for h in HOSTS}
            self.assertEqual(len(made), 1)
            c = made.pop()
            for h in HOSTS:
                self.assertEqual(leatcodec.decode(c, cpu=h), data)

    def test_buffers_of_every_kind(self):
        data = gaussian_bf16(3000, 3)
        wanted = leatcodec.encode(data, type="bf16")
        for given in (bytearray(data), memoryview(data), memoryview(bytearray(data))):
            self.assertEqual(leatcodec.encode(given, type="bf16"), wanted)
        self.assertEqual(leatcodec.decode(leatcodec.encode(b"")), b"")

    def test_ranges(self):
        data = gaussian_bf16(40000, 4)
        c = leatcodec.encode(data, type="bf16", block_bytes=4096)
        r = random.Random(5)
        for _ in range(200):
            at = r.randrange(len(data))
            n = r.randrange(len(data) - at + 1)
            self.assertEqual(leatcodec.decode_range(c, at, n), data[at:at + n])
        out = bytearray(100)
        self.assertIs(leatcodec.decode_range(c, 7, 100, out=out), out)
        self.assertEqual(bytes(out), data[7:107])
        with self.assertRaises(ValueError):
            leatcodec.decode_range(c, 7, 100, out=bytearray(99))
        with self.assertRaises(leatcodec.Error) as e:
            leatcodec.decode_range(c, len(data), 1)
        self.assertEqual(e.exception.code, 6)

    def test_numbers_that_do_not_fit(self):
        # ctypes cuts integers silently: an offset of 1 << 64 would have read the start.
        c = leatcodec.encode(bytes(1000))
        for offset in (1 << 64, (1 << 64) + 5, -1):
            with self.assertRaises(ValueError):
                leatcodec.decode_range(c, offset, 10)
        for call in (lambda: leatcodec.encode(b"x", block_bytes=1 << 32),
                     lambda: leatcodec.encode(b"x", block_bytes=-1),
                     lambda: leatcodec.Encoder(1 << 64), lambda: leatcodec.Encoder(-1),
                     lambda: leatcodec.Encoder(10, regions_max=1 << 64),
                     lambda: leatcodec.regions(bytes(16), file_bytes=1 << 64),
                     lambda: leatcodec.calibrate(bytes(4096), "bf16", round_s=-1)):
            with self.assertRaises(ValueError):
                call()

    def test_library_that_is_not_there(self):
        done = subprocess.run([sys.executable, "-c", "import leatcodec"], capture_output=True, text=True,
                              env={**os.environ, "LEAT_CODEC_LIBRARY": "/nowhere.so"})
        self.assertIn("ImportError", done.stderr)
        self.assertIn("LEAT_CODEC_LIBRARY", done.stderr)

    def test_info_and_blocks(self):
        data = gaussian_bf16(65536, 6)
        c = leatcodec.encode(data, type="bf16", mode="dense", block_bytes=65536)
        i = leatcodec.info(c)
        self.assertEqual((i.plain_bytes, i.container_bytes, i.block_count), (131072, len(c), 2))
        b = leatcodec.blocks(c)
        self.assertEqual([x.mode for x in b], ["dense", "dense"])
        self.assertTrue(all(x.stored_bytes < x.plain_bytes for x in b))

    def test_damage_raises(self):
        data = gaussian_bf16(4096, 7)
        c = bytearray(leatcodec.encode(data, type="bf16", mode="fast"))
        for at in range(0, len(c), 37):
            c[at] ^= 16
            try:
                self.assertEqual(leatcodec.decode(c), data)
            except leatcodec.Error:
                pass
            c[at] ^= 16
        with self.assertRaises(leatcodec.Error):
            leatcodec.decode(c[:-1])
        with self.assertRaises(ValueError):
            leatcodec.encode(data, type="bf17")
        with self.assertRaises(leatcodec.Error):
            leatcodec.encode(data, block_bytes=1000)

    def test_stream(self):
        data = gaussian_bf16(100000, 8)
        e = leatcodec.Encoder(len(data), type="bf16", block_bytes=16384)
        out = b"".join(e.write(data[i:i + 7777]) for i in range(0, len(data), 7777)) + e.finish()
        self.assertEqual(out, leatcodec.encode(data, type="bf16", block_bytes=16384))
        with self.assertRaises(ValueError):
            e.write(b"1")
        with self.assertRaises(leatcodec.Error):
            leatcodec.Encoder(3).write(b"1234")

    def test_threads(self):
        data = gaussian_bf16(200000, 9)
        c = leatcodec.encode(data, type="bf16")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(lambda _: leatcodec.decode(c) == data, range(64))))

    def test_estimate_detect_plan(self):
        data = gaussian_bf16(300000, 10)
        self.assertEqual(leatcodec.detect(data), "bf16")
        self.assertEqual(leatcodec.detect(random.Random(1).randbytes(100000)), "bytes")
        ratio = leatcodec.estimate(data, "bf16")
        self.assertAlmostEqual(ratio[0], 1.333, delta=0.01)
        self.assertAlmostEqual(ratio[1], 1.50, delta=0.02)
        rates = leatcodec.calibrate(data, "bf16", round_s=0.01)
        self.assertTrue(all(1e6 < x < 1e12 for pair in rates for x in pair))
        self.assertEqual(leatcodec.plan(1e9, 1e6, ratio, *rates).mode, "dense")
        self.assertEqual(leatcodec.plan(1e9, 1e13, ratio, *rates).mode, "raw")


class Command(unittest.TestCase):
    def safetensors(self):
        tensors = {"layer.weight": ("BF16", gaussian_bf16(60000, 20)),
                   "layer.bias": ("F16", onnx_tensors.fp32_to_fp16(
                       struct.pack("<999f", *(random.Random(3).gauss(0, 1) for _ in range(999))))),
                   "steps": ("I64", struct.pack("<q", 7))}
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, (kind, raw) in tensors.items():
            header[name] = {"dtype": kind, "shape": [len(raw)], "data_offsets": [at, at + len(raw)]}
            at += len(raw)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + b"".join(raw for _, raw in tensors.values())

    def test_safetensors_file(self):
        data = self.safetensors()
        f = write("model.safetensors", data)
        shown = run("encode", f, "--force").stdout
        self.assertRegex(shown, r"layer\.weight +bf16 +120000 -> +\d+ +1\.[45]")
        self.assertRegex(shown, r"layer\.bias +fp16")
        run("decode", f + ".ltc", "-o", path("back"), "--force")
        self.assertEqual(read("back"), data)
        self.assertIn("layer.weight", run("inspect", f + ".ltc").stdout)
        self.assertIn("layer.weight", run("inspect", f).stdout)
        kinds = {b.type for b in leatcodec.blocks(read("model.safetensors.ltc"))}
        self.assertLessEqual({"bf16", "fp16", "bytes"}, kinds)
        self.assertEqual([r.name for r in leatcodec.regions(data)][1:],
                         ["layer.weight", "layer.bias", "steps"])

    def test_gguf_file(self):
        weights = gaussian_bf16(50000, 21)
        name = b"blk.0.w"
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
        head += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 50000, 30, 0)
        head += b"\0" * (-len(head) % 32)
        f = write("model.gguf", head + weights)
        self.assertRegex(run("encode", f, "--force").stdout, r"blk\.0\.w +bf16 +100000 -> +\d+ +1\.[45]")
        run("decode", f + ".ltc", "-o", path("back.gguf"), "--force")
        self.assertEqual(read("back.gguf"), head + weights)

    def test_plain_file_and_range(self):
        data = gaussian_bf16(200000, 22)
        f = write("plain.bin", data)
        run("encode", f, "-o", path("plain.ltc"), "--force", "--quiet")
        self.assertIn("dense", run("inspect", path("plain.ltc")).stdout)
        run("decode", path("plain.ltc"), "-o", path("part"), "--force", "--range", "100001:5000")
        self.assertEqual(read("part"), data[100001:105001])
        run("decode", path("plain.ltc"), "-o", path("part"), "--force", "--range", "399999:2",
            status=1)
        for mode in ("raw", "fast", "dense"):
            run("encode", f, "-o", path("m.ltc"), "--force", "--quiet", "--mode", mode, "--type",
                "bf16", "--block", "65536")
            run("decode", path("m.ltc"), "-o", path("m"), "--force")
            self.assertEqual(read("m"), data)

    def test_empty_file(self):
        f = write("empty", b"")
        run("encode", f, "--force", "--quiet")
        run("decode", f + ".ltc", "-o", path("empty.back"), "--force")
        self.assertEqual(read("empty.back"), b"")
        run("inspect", f + ".ltc")

    def test_wrong_use(self):
        f = write("use.bin", b"1234")
        self.assertIn("usage", run(status=2).stderr)
        run("encode", status=2)
        run("encode", f, "--type", "float", status=2)
        run("encode", f, "--block", "1000", status=2)
        run("encode", f, "--mode", "best", status=2)
        run("decode", f, "-o", path("no"), "--range", "5", status=2)
        run("plan", f, status=2)
        run("encode", path("absent"), status=1)
        self.assertIn("malformed", run("decode", f, "-o", path("no"), status=1).stderr)
        self.assertFalse(os.path.exists(path("no")) or os.path.exists(path("no.part")))
        run("encode", f, "-o", path("twice.ltc"), "--force", "--quiet")
        self.assertIn("exists", run("encode", f, "-o", path("twice.ltc"), status=1).stderr)
        self.assertIn("usage", run("--help").stdout)

    def test_damaged_file_leaves_nothing(self):
        f = write("damage.bin", gaussian_bf16(100000, 23))
        run("encode", f, "--force", "--quiet", "--type", "bf16")
        c = bytearray(read("damage.bin.ltc"))
        c[5000] ^= 1
        write("damage.ltc", c)
        done = run("decode", path("damage.ltc"), "-o", path("damaged"), status=1)
        self.assertIn("checksum", done.stderr)
        self.assertFalse(os.path.exists(path("damaged")) or os.path.exists(path("damaged.part")))

    def test_plan(self):
        f = write("plan.bin", gaussian_bf16(200000, 24))
        slow = run("plan", f, "--link", "1e6", "--seconds", "0.01").stdout
        self.assertIn("decision: dense", slow)
        self.assertIn("decision: raw", run("plan", f, "--link", "1e14", "--seconds", "0.01").stdout)

    def test_bench(self):
        done = run("bench", "--cached", "--seconds", "0.001", "--csv", path("bench.csv"))
        rows = read("bench.csv").decode().split("\n")[1:-1]
        table = {tuple(r.split(",")[:3]): r.split(",")[3:] for r in rows}
        for codec in ("copy", "raw", "zstd-1", "lz4", "planes+zstd-1", "fast-c", "dense-c"):
            self.assertIn(("weights", "cached", codec), table)
        for h in HOSTS:
            self.assertGreaterEqual(float(table["weights", "cached", "dense-" + h][0]), 1.49)
            self.assertGreaterEqual(float(table["weights", "cached", "fast-" + h][0]), 1.33)
        floor = float(done.stdout.split("# kv")[1].split("floor ")[1].split()[0])
        self.assertGreaterEqual(float(table["kv", "cached", "dense-c"][0]), floor * 0.97)


class RealTensors(unittest.TestCase):
    """Trained weights, converted here from what packages carry. Ratios are printed for the page."""

    def models(self):
        found = {}
        for name in sorted(glob.glob(os.path.join(MODELS, "*.tgz"))):
            with tarfile.open(name) as t:
                for member in t.getmembers():
                    base = os.path.basename(member.name)
                    if base.endswith(".onnx"):
                        found[base] = onnx_tensors.onnx_floats(t.extractfile(member).read())
                    elif "basic-pitch" in name and base == "group1-shard1of1.bin":
                        found["basic-pitch"] = t.extractfile(member).read()
        for name in glob.glob(os.path.join(MODELS, "testdata", "**", "input_0.pb"), recursive=True):
            with open(name, "rb") as f:
                raw = onnx_tensors.tensor_floats(memoryview(f.read()))
            if raw is not None and len(raw) > 1 << 20:
                found[os.path.basename(os.path.dirname(os.path.dirname(name)))] = raw
        return found

    def test_trained_networks(self):
        if os.environ.get("LEAT_TEST_OFFLINE") == "1":
            self.skipTest("LEAT_TEST_OFFLINE=1: no models were fetched")
        models = self.models()
        self.assertGreaterEqual(len(models), 4, "models are missing: " + MODELS)
        for name, fp32 in models.items():
            self.assertGreater(len(fp32), 100000, name)
            forms = {"fp32": fp32, "bf16": onnx_tensors.fp32_to_bf16(fp32),
                     "fp16": onnx_tensors.fp32_to_fp16(fp32)}
            for kind, raw in forms.items():
                ratios = []
                for mode in ("fast", "dense", "auto"):
                    made = {leatcodec.encode(raw, type=kind, mode=mode, cpu=h) for h in HOSTS}
                    self.assertEqual(len(made), 1)
                    c = made.pop()
                    self.assertEqual(leatcodec.decode(c), raw)
                    ratios.append(len(raw) / len(c))
                floor = entropy_ratio_16(raw, 8 if kind == "bf16" else 5) if kind != "fp32" else 0
                zlib_ratio = len(raw) / len(zlib.compress(raw, 1))
                print("# %-28s %-5s %8d bytes  fast %.3f  dense %.3f  auto %.3f  floor %s  zlib-1 "
                      "%.3f" % (name, kind, len(raw), *ratios, "%.3f" % floor if floor else "-",
                                zlib_ratio))
                self.assertGreaterEqual(ratios[2], max(ratios[:2]) * 0.97)
                # Constants of operator tests have one exponent, which no code of whole bits can use.
                if kind == "bf16" and not name.startswith("test_"):
                    self.assertGreaterEqual(ratios[1], floor * 0.97)


class Page(unittest.TestCase):
    def test_golden_containers_from_the_page_alone(self):
        folder = os.path.join(os.path.dirname(__file__), "..", "unit", "codec", "tensor", "golden")
        names = sorted(glob.glob(os.path.join(folder, "*.ltc")))
        self.assertEqual(len(names), 21)
        modes = set()
        for name in names:
            with open(name, "rb") as f:
                data = f.read()
            self.assertEqual(page_decoder.container(data), leatcodec.decode(data), name)
            modes |= {(b.type, b.mode, b.patch_count > 0) for b in leatcodec.blocks(data)}
        self.assertIn(("bf16", "fast", True), modes)
        self.assertIn(("fp16", "fast", True), modes)
        self.assertIn(("fp32", "dense", False), modes)

    def test_long_lanes(self):
        data = gaussian_bf16(70001, 30)
        for mode in ("fast", "dense"):
            c = leatcodec.encode(data, type="bf16", mode=mode)
            self.assertEqual(page_decoder.container(c), data)


class Gpu(unittest.TestCase):
    def test_kernels(self):
        if not any(os.path.exists(os.path.join(d, "nvcc"))
                   for d in os.environ["PATH"].split(":") + ["/usr/local/cuda/bin"]):
            self.skipTest("no nvcc")
        script = os.path.join(os.path.dirname(__file__), "..", "gpu", "codec", "run")
        done = subprocess.run([script], capture_output=True, text=True, timeout=360)
        if done.returncode == 77:
            self.skipTest("built; there is no GPU to run it")
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Lines(unittest.TextTestResult):
    """A line a test."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)

    def line(self, word, test, more=""):
        print(f"{word:4} codec.{type(test).__name__}.{test._testMethodName}{more}", flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def addFailure(self, test, err):
        unittest.TestResult.addFailure(self, test, err)
        self.line("FAIL", test)

    def addError(self, test, err):
        unittest.TestResult.addError(self, test, err)
        self.line("FAIL", test)

    def addSkip(self, test, reason):
        unittest.TestResult.addSkip(self, test, reason)
        self.line("skip", test, ": " + reason)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    total = suite.countTestCases()
    result = unittest.TextTestRunner(stream=open(os.devnull, "w"), resultclass=Lines).run(suite)
    for test, trace in result.failures + result.errors:
        print(trace, file=sys.stderr)
    failed = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
