# SPDX-License-Identifier: Apache-2.0
"""The S3 protocol as AWS speaks it, said by hand: every kind of fault that other servers have had is
a test here. One server for all; every test has a bucket of its own."""

import base64
import datetime
import hashlib
import hmac
import random
import socket
import threading
import time
import urllib.parse
import zlib

import leat

server = None
counter = [0]


def bucket():
    counter[0] += 1
    name = "protocol-%d" % counter[0]
    c = server.client()
    r = c.put("/" + name)
    assert r.status == 200, r.body
    return c, name


def expect(r, status, code=None):
    assert r.status == status, "status %d instead of %d: %s" % (r.status, status, r.body[:500])
    if code:
        assert r.code == code, "code %s instead of %s: %s" % (r.code, code, r.body[:500])
    return r


def md5(b):
    return hashlib.md5(b).hexdigest()


def test_put_get_head_delete():
    c, b = bucket()
    for size in (0, 1, 100, 4096, 65536, 65537, 1 << 20, (1 << 20) + 1, 5_000_000):
        data = leat.random_bytes(size, size)
        r = expect(c.put("/%s/size-%d" % (b, size), data), 200)
        assert r.headers["etag"] == '"%s"' % md5(data)
        assert r.headers["x-amz-request-id"]
        r = expect(c.get("/%s/size-%d" % (b, size)), 200)
        assert r.body == data and r.headers["content-length"] == str(size)
        assert r.headers["content-type"] == "binary/octet-stream"
        r = expect(c.head("/%s/size-%d" % (b, size)), 200)
        assert r.headers["content-length"] == str(size) and r.body == b""
        expect(c.delete("/%s/size-%d" % (b, size)), 204)
        r = expect(c.get("/%s/size-%d" % (b, size)), 404, "NoSuchKey")
        assert r.headers["x-amz-delete-marker"] == "false"
        expect(c.delete("/%s/size-%d" % (b, size)), 204)


def test_keys_are_opaque():
    c, b = bucket()
    keys = [b"a", b"a/", b"/a", b"a//b", b"a/../b", b"..", b".", b"./x", b"a b", b"a+b", b"a%2Bb",
            b"a%20b", b"%2e%2e", b"a&b=c", b"a?b", b"a#b", b"\xc3\xa9", "日本語/ключ".encode(),
            "😀".encode(), b"a\tb", b"a\nb", b"a\rb", b"\x01", b"\x7f", b"q\"'<>&", b"a\\b", b"a;b",
            b"@:!$*(),", b"k" * 1024, b"/" * 1024, "é".encode() * 512]
    for k in keys:
        expect(c.put(b"/" + b.encode() + b"/" + k, b"value of " + k), 200)
    for k in keys:
        assert expect(c.get(b"/" + b.encode() + b"/" + k), 200).body == b"value of " + k, k
    listed, _, _ = c.list_all(b)
    assert listed == sorted(keys), (listed, sorted(keys))
    listed, _, pages = c.list_all(b, page=1)
    assert listed == sorted(keys) and pages >= len(keys)
    expect(c.put("/%s/%s" % (b, "k" * 1025), b""), 400, "KeyTooLongError")
    for k in keys:
        expect(c.delete(b"/" + b.encode() + b"/" + k), 204)
    assert c.list_all(b)[0] == []


def test_ranges():
    c, b = bucket()
    data = leat.random_bytes("range", 3_000_000)
    expect(c.put("/%s/k" % b, data), 200)
    expect(c.put("/%s/empty" % b, b""), 200)
    r = random.Random(7)
    spots = [0, 1, 4095, 4096, 4097, 65535, 65536, 262143, 262144, 262145, 1048575, 1048576,
             1048577, 2097152, 2999999]
    for first in spots:
        for length in (1, 2, 4096, 100000, 1048576, 3000000):
            last = first + length - 1
            got = expect(c.get("/%s/k" % b, range="bytes=%d-%d" % (first, last)), 206)
            want = data[first:last + 1]
            assert got.body == want, (first, last, len(got.body))
            assert got.headers["content-range"] == "bytes %d-%d/3000000" % (
                first, min(last, 2999999))
    for _ in range(100):
        first = r.randrange(3_000_000)
        last = r.randrange(first, 3_000_000)
        assert c.get("/%s/k" % b, range="bytes=%d-%d" % (first, last)).body == data[first:last + 1]
    assert expect(c.get("/%s/k" % b, range="bytes=-10"), 206).body == data[-10:]
    assert expect(c.get("/%s/k" % b, range="bytes=2999990-"), 206).body == data[-10:]
    expect(c.get("/%s/k" % b, range="bytes=3000000-"), 416, "InvalidRange")
    expect(c.get("/%s/k" % b, range="bytes=-0"), 416, "InvalidRange")
    expect(c.get("/%s/empty" % b, range="bytes=0-"), 416, "InvalidRange")
    for bad in ("bytes=5-3", "lines=1-2", "bytes=x", "bytes=0-1,3-4"):
        assert expect(c.get("/%s/k" % b, range=bad), 200).body == data
    r = expect(c.head("/%s/k" % b, range="bytes=5-9"), 206)
    assert r.headers["content-length"] == "5"


def test_conditions():
    c, b = bucket()
    p = "/%s/k" % b
    r = c.put(p, b"one")
    etag = r.headers["etag"]
    modified = c.head(p).headers["last-modified"]
    past = "Mon, 01 Jan 2001 00:00:00 GMT"
    expect(c.get(p, if_match=etag), 200)
    expect(c.get(p, if_match='"x"'), 412, "PreconditionFailed")
    r = expect(c.get(p, if_none_match=etag), 304)
    assert r.body == b"" and r.headers["etag"] == etag
    expect(c.get(p, if_none_match='"x"'), 200)
    expect(c.get(p, if_modified_since=modified), 304)
    expect(c.get(p, if_modified_since=past), 200)
    expect(c.get(p, if_unmodified_since=past), 412)
    expect(c.get(p, if_unmodified_since=modified), 200)
    expect(c.put(p, b"two", if_none_match="*"), 412, "PreconditionFailed")
    assert c.get(p).body == b"one"
    expect(c.put(p, b"two", if_match='"00000000000000000000000000000000"'), 412)
    expect(c.put(p, b"two", if_match='"ABCORZ"'), 412, "PreconditionFailed")
    expect(c.put("/%s/none" % b, b"two", if_match='"ABCORZ"'), 404, "NoSuchKey")
    expect(c.put(p, b"two", if_match=etag), 200)
    expect(c.put("/%s/none" % b, b"", if_match=etag), 404, "NoSuchKey")
    expect(c.put("/%s/new" % b, b"", if_none_match="*"), 200)
    expect(c.delete(p, if_match=etag), 412)
    assert c.get(p).body == b"two"
    expect(c.delete(p, if_match='"ABCORZ"'), 412)
    expect(c.delete(p, if_match='"%s"' % md5(b"two")), 204)
    expect(c.delete(p, if_match='"ABCORZ"'), 204)


def test_racing_creators():
    c, b = bucket()
    for round_ in range(20):
        wins = []

        def create(i):
            r = server.client().put("/%s/race-%d" % (b, round_), b"%d" % i, if_none_match="*")
            assert r.status in (200, 409, 412), r.body
            if r.status == 200:
                wins.append(i)

        leat.run_parallel(8, create)
        assert len(wins) == 1, wins
        assert c.get("/%s/race-%d" % (b, round_)).body == b"%d" % wins[0]


def test_subresources_touch_nothing():
    c, b = bucket()
    p = "/%s/k" % b
    expect(c.put(p, b"precious"), 200)
    names = ["acl", "tagging", "retention", "legal-hold", "torrent", "restore", "select", "policy",
             "append", "renameObject", "annotations", "x-unknown-feature", "website", "cors",
             "lifecycle", "replication", "versioning", "object-lock", "encryption"]
    for name in names:
        for method in ("PUT", "POST", "DELETE"):
            for path in (p, "/" + b):
                if (name, path) == ("tagging", p) and method != "POST":
                    continue  # tags of an object are there
                r = c.request(method, path, [(name, "")], body=b"<x/>" if method != "DELETE" else b"")
                expect(r, 501, "NotImplemented")
    for method, query in (("DELETE", [("uploadId", "x")]),
                          ("PUT", [("uploadId", "x"), ("partNumber", "1")]),
                          ("POST", [("uploadId", "x")])):
        body = b"" if method == "DELETE" else (
            b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"
            b"0123456789abcdef0123456789abcdef</ETag></Part></CompleteMultipartUpload>")
        expect(c.request(method, p, query, body=body), 404, "NoSuchUpload")
    r = c.request("PUT", p, [("uploadId", "x"), ("partNumber", "1")],
                  {"x-amz-copy-source": "/%s/k" % b})
    expect(r, 404, "NoSuchUpload")
    r = expect(c.get(p), 200)
    assert r.body == b"precious"
    for header in ("x-amz-server-side-encryption", "x-amz-object-lock-mode", "x-amz-grant-read"):
        expect(c.request("PUT", p, headers={header: "x"}, body=b"lost"), 501, "NotImplemented")
    assert c.get(p).body == b"precious"


def test_digests_are_verified():
    c, b = bucket()
    p = "/%s/k" % b
    data = b"the bytes"
    good = base64.b64encode(hashlib.md5(data).digest()).decode()
    expect(c.put(p, data, content_md5=good), 200)
    expect(c.put(p, b"other", content_md5=good), 400, "BadDigest")
    expect(c.put(p, data, content_md5="rubbish"), 400, "InvalidDigest")
    crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    r = expect(c.put(p, data, x_amz_checksum_crc32=crc), 200)
    assert r.headers["x-amz-checksum-crc32"] == crc
    expect(c.put(p, b"other", x_amz_checksum_crc32=crc), 400, "BadDigest")
    expect(c.put(p, data, x_amz_checksum_crc32="AAAA"), 400, "BadDigest")
    expect(c.put(p, data, x_amz_checksum_crc32=crc, x_amz_checksum_crc32c="AAAAAA=="), 400,
           "InvalidRequest")
    for name, digest in (("sha1", hashlib.sha1), ("sha256", hashlib.sha256)):
        value = base64.b64encode(digest(data).digest()).decode()
        header = "x-amz-checksum-" + name
        expect(c.request("PUT", p, headers={header: value}, body=data), 200)
        r = c.get(p, x_amz_checksum_mode="ENABLED")
        assert r.headers[header] == value and r.headers["x-amz-checksum-type"] == "FULL_OBJECT"
        assert header not in c.get(p).headers
        expect(c.request("PUT", p, headers={header: value}, body=b"other"), 400, "BadDigest")
    assert c.get(p).body == data
    r = c.request("PUT", p, body=b"other", payload=hashlib.sha256(data).hexdigest())
    expect(r, 400, "XAmzContentSHA256Mismatch")
    assert c.get(p).body == data


def chunked(c, p, chunks, trailer=None, signed=True, break_chunk=None, headers=None,
            trailer_bad=False):
    """A PUT in aws-chunked framing, signed chunk by chunk or with only a trailer."""
    data = b"".join(chunks)
    kind = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")) if signed \
        else "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    h = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(len(data))}
    h.update(headers or {})
    if trailer:
        h["x-amz-trailer"] = trailer[0]
    raw = leat.uri_encode(p)
    date, scope, previous = c.sign("PUT", raw, [], h, kind)
    key = c.signing_key(date[:8])
    body = b""

    def signature(word, *tail):
        text = "\n".join([word, date, scope, previous] + list(tail))
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    empty = hashlib.sha256(b"").hexdigest()
    for i, chunk in enumerate(list(chunks) + [b""]):
        if signed:
            previous = signature("AWS4-HMAC-SHA256-PAYLOAD", empty,
                                 hashlib.sha256(chunk).hexdigest())
            body += b"%x;chunk-signature=%s\r\n" % (len(chunk), previous.encode())
        else:
            body += b"%x\r\n" % len(chunk)
        if chunk:
            body += (bytes([chunk[0] ^ 1]) + chunk[1:] if i == break_chunk else chunk) + b"\r\n"
    if trailer:
        line = "%s:%s" % trailer
        body += line.encode() + b"\r\n"
        if signed:
            previous = signature("AWS4-HMAC-SHA256-TRAILER",
                                 hashlib.sha256((line + "\n").encode()).hexdigest())
            if trailer_bad:
                previous = "0" * 64
            body += b"x-amz-trailer-signature:" + previous.encode() + b"\r\n"
    body += b"\r\n"
    return c.raw("PUT", raw, h, body)


def test_streaming_signatures():
    c, b = bucket()
    p = "/%s/k" % b
    chunks = [leat.random_bytes(i, 65536) for i in range(3)] + [b"tail"]
    data = b"".join(chunks)
    crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    expect(chunked(c, p, chunks), 200)
    r = c.get(p)
    assert r.body == data and "content-encoding" not in r.headers
    expect(chunked(c, p, chunks, headers={"content-encoding": "gzip,aws-chunked"}), 200)
    assert c.get(p).headers["content-encoding"] == "gzip"
    expect(chunked(c, p, chunks, ("x-amz-checksum-crc32", crc)), 200)
    assert c.get(p, x_amz_checksum_mode="ENABLED").headers["x-amz-checksum-crc32"] == crc
    expect(chunked(c, p, chunks, ("x-amz-checksum-crc32", crc), signed=False), 200)
    assert c.get(p).body == data
    expect(chunked(c, p, [], ("x-amz-checksum-crc32", "AAAAAA=="), signed=False), 200)
    assert c.get(p).body == b""
    expect(chunked(c, p, chunks), 200)
    for i in range(4):
        expect(chunked(c, p, chunks, break_chunk=i), 403, "SignatureDoesNotMatch")
    expect(chunked(c, p, chunks, ("x-amz-checksum-crc32", crc), trailer_bad=True), 403,
           "SignatureDoesNotMatch")
    expect(chunked(c, p, chunks, ("x-amz-checksum-crc32", "AAAAAA=="), signed=False), 400,
           "BadDigest")
    expect(chunked(c, p, chunks, ("x-amz-checksum-crc32", "AAAAAA==")), 400, "BadDigest")
    r = chunked(c, p, chunks, headers={"x-amz-decoded-content-length": str(len(data) - 1)})
    expect(r, 400, "IncompleteBody")
    r = chunked(c, p, chunks, headers={"x-amz-decoded-content-length": str(len(data) + 1)})
    expect(r, 400, "IncompleteBody")
    assert c.get(p).body == data


def test_signature_errors():
    c, b = bucket()
    p = "/%s/k" % b
    c.put(p, b"x")
    bad = server.client(secret="wrong")
    r = expect(bad.get(p), 403, "SignatureDoesNotMatch")
    expect(server.client(access="nobody").get(p), 403, "InvalidAccessKeyId")
    expect(server.client(region="eu-west-1").get(p), 400, "AuthorizationHeaderMalformed")
    expect(c.raw("GET", p), 403, "AccessDenied")
    expect(c.raw("GET", p, {"authorization": "AWS a:b"}), 400, "InvalidRequest")
    now = datetime.datetime.now(datetime.timezone.utc)
    for minutes in (-16, 16):
        r = c.request("GET", p, now=now + datetime.timedelta(minutes=minutes))
        expect(r, 403, "RequestTimeTooSkewed")
    expect(c.request("GET", p, now=now - datetime.timedelta(minutes=14)), 200)
    # Nothing is told to who has no key: a missing bucket answers like an existing one.
    expect(c.raw("GET", "/no-such-bucket/k"), 403, "AccessDenied")
    expect(c.raw("OPTIONS", p, {"origin": "http://a", "access-control-request-method": "GET"}), 403)
    del bad


def test_presigned():
    c, b = bucket()
    p = "/%s/a b+c" % b
    c.put(p, b"shared")
    raw = leat.uri_encode(p)
    assert expect(c.raw("GET", c.presign("GET", raw)), 200).body == b"shared"
    now = datetime.datetime.now(datetime.timezone.utc)
    old = c.presign("GET", raw, 7 * 24 * 3600, now - datetime.timedelta(days=6))
    expect(c.raw("GET", old), 200)
    expect(c.raw("GET", c.presign("GET", raw, 60, now - datetime.timedelta(minutes=2))), 403,
           "AccessDenied")
    expect(c.raw("GET", c.presign("GET", raw, 604801)), 400, "AuthorizationQueryParametersError")
    expect(c.raw("PUT", c.presign("GET", raw), body=b"x"), 403, "SignatureDoesNotMatch")
    expect(c.raw("PUT", c.presign("PUT", raw), body=b"new"), 200)
    assert c.get(p).body == b"new"


def test_virtual_host_style():
    with leat.Server(config="domains: [s3.test]\n") as s:
        c = s.client()
        expect(c.put("/with.dots"), 200)
        h = {"host": "with.dots.s3.test:%d" % s.port}
        expect(c.request("PUT", "/key/x", headers=dict(h), body=b"1"), 200)
        assert c.get("/with.dots/key/x").body == b"1"
        expect(c.request("GET", "/", {"list-type": "2"}, dict(h)), 200)
        assert b"key/x" in c.request("GET", "/", {"list-type": "2"}, dict(h)).body
        expect(c.request("GET", "/-/metrics", headers=dict(h)), 404, "NoSuchKey")


def test_metadata_round_trip():
    c, b = bucket()
    p = "/%s/k" % b
    headers = {"cache-control": "max-age=1", "content-disposition": "attachment",
               "content-encoding": "gzip", "content-language": "de", "content-type": "text/x",
               "expires": "Wed, 21 Oct 2025 07:28:00 GMT", "x-amz-meta-a": "1",
               "x-amz-meta-umlaut": "\u00e4\u00f6".encode().decode("latin-1"),
               "x-amz-website-redirect-location": "/other"}
    expect(c.request("PUT", p, headers=headers, body=b"x"), 200)
    for r in (c.get(p), c.head(p)):
        for name, value in headers.items():
            assert r.headers[name] == value, (name, r.headers.get(name))
    r = c.get(p, {"response-content-type": "a/b", "response-cache-control": "no",
                  "response-content-disposition": "x\r\ny: z"})
    assert r.headers["content-type"] == "a/b" and r.headers["cache-control"] == "no"
    assert "y" not in r.headers
    expect(c.put(p, b"", x_amz_meta_big="v" * 2048), 400, "MetadataTooLarge")


def tag_xml(tags):
    return ("<Tagging><TagSet>" + "".join("<Tag><Key>%s</Key><Value>%s</Value></Tag>" % t
                                          for t in tags) + "</TagSet></Tagging>").encode()


def tags_of(c, p):
    root = leat.xml_root(expect(c.get(p, [("tagging", "")]), 200).body)
    return [(t.findtext("Key"), t.findtext("Value")) for t in root.find("TagSet").findall("Tag")]


def test_tagging():
    c, b = bucket()
    p = "/%s/k" % b
    tagging = [("tagging", "")]
    data = leat.random_bytes("tagging", 200_000)
    expect(c.request("PUT", p, headers={"x-amz-meta-a": "1", "x-amz-tagging": "z=1&a+b=%C3%BC&c"},
                     body=data), 200)
    assert tags_of(c, p) == [("a b", "\u00fc"), ("c", ""), ("z", "1")]
    before = c.head(p)
    ten = [("k%d" % i, "v" * 256) for i in range(10)]
    for tags in ([("x", "1")], ten, []):
        r = expect(c.request("PUT", p, tagging, body=tag_xml(tags)), 200)
        assert r.body == b"" and tags_of(c, p) == tags
        r = c.head(p)
        assert r.headers.get("x-amz-tagging-count") == (str(len(tags)) if tags else None)
        for name in ("etag", "last-modified", "x-amz-meta-a", "content-length"):
            assert r.headers[name] == before.headers[name], name
        assert c.get(p).body == data
    expect(c.request("PUT", p, tagging, body=tag_xml([("x", "1")])), 200)
    for body, code in ((tag_xml(ten + [("one", "more")]), "InvalidTag"),
                       (tag_xml([("k" * 129, "")]), "InvalidTag"),
                       (tag_xml([("k", "v" * 257)]), "InvalidTag"),
                       (tag_xml([("k", "1"), ("k", "2")]), "InvalidTag"),
                       (tag_xml([("", "1")]), "InvalidTag"), (tag_xml([("aws:k", "")]), "InvalidTag"),
                       (b"", "MalformedXML"), (b"<Tagging/>", "MalformedXML"),
                       (b"<Tagging><TagSet><Tag><Key>k</Key></Tag></TagSet></Tagging>", "MalformedXML"),
                       (b" " * 70_000, "MaxMessageLengthExceeded")):
        expect(c.request("PUT", p, tagging, body=body), 400, code)
    expect(c.request("PUT", p, headers={"x-amz-tagging": "&".join("k%d=" % i for i in range(11))},
                     body=b"lost"), 400, "InvalidTag")
    expect(c.request("PUT", p, tagging, {"content-md5": base64.b64encode(bytes(16)).decode()},
                     tag_xml([])), 400, "BadDigest")
    assert tags_of(c, p) == [("x", "1")] and c.get(p).body == data
    expect(c.request("DELETE", p, tagging), 204)
    expect(c.request("DELETE", p, tagging), 204)
    assert tags_of(c, p) == [] and c.get(p).body == data
    none = "/%s/none" % b
    expect(c.get(none, tagging), 404, "NoSuchKey")
    expect(c.request("PUT", none, tagging, body=tag_xml([("x", "1")])), 404, "NoSuchKey")
    expect(c.request("DELETE", none, tagging), 404, "NoSuchKey")
    expect(c.get(none), 404, "NoSuchKey")
    expect(c.get("/%s-none/k" % b, tagging), 404, "NoSuchBucket")
    expect(c.get(p, tagging + [("versionId", "x")]), 400, "InvalidArgument")
    upload = create_upload(c, none, x_amz_tagging="m=1")
    etag = expect(c.request("PUT", none, [("partNumber", "1"), ("uploadId", upload)], body=b"x"),
                  200).headers["etag"]
    expect(c.request("POST", none, [("uploadId", upload)], body=complete_xml([(1, etag)])), 200)
    assert tags_of(c, none) == [("m", "1")]


def test_claims_of_small_bodies():
    """Digests that are claimed of an XML body hold, in headers and in trailers."""
    c, b = bucket()
    p = "/%s/k" % b
    expect(c.put(p, b"precious"), 200)
    body = b"<Delete><Object><Key>k</Key></Object></Delete>"
    wrong = base64.b64encode(bytes(16)).decode()
    expect(c.request("POST", "/" + b, [("delete", "")], {"content-md5": wrong}, body), 400, "BadDigest")
    expect(c.request("POST", "/" + b, [("delete", "")], {"x-amz-checksum-crc32": "AAAAAA=="}, body),
           400, "BadDigest")
    framed = b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n" % (len(body), body)
    r = c.request("POST", "/" + b, [("delete", "")],
                  {"x-amz-trailer": "x-amz-checksum-crc32", "content-encoding": "aws-chunked",
                   "x-amz-decoded-content-length": str(len(body))}, framed,
                  payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    expect(r, 400, "BadDigest")
    expect(c.request("PUT", "/" + b, [("acl", "")], {"content-md5": wrong, "x-amz-acl": "private"}),
           400, "BadDigest")
    expect(c.request("PUT", "/%s-2" % b, headers={"content-md5": wrong}), 400, "BadDigest")
    upload = create_upload(c, p)
    etag = expect(c.request("PUT", p, [("partNumber", "1"), ("uploadId", upload)], body=b"x"),
                  200).headers["etag"]
    expect(c.request("POST", p, [("uploadId", upload)], {"content-md5": wrong},
                     complete_xml([(1, etag)])), 400, "BadDigest")
    assert c.get(p).body == b"precious"


def test_copy():
    c, b = bucket()
    data = leat.random_bytes("copy", 2_500_000)
    expect(c.request("PUT", "/%s/a+b c" % b, headers={"x-amz-meta-a": "1", "content-type": "t/x",
                                                      "x-amz-tagging": "k=v"}, body=data), 200)
    src = "/%s/%s" % (b, urllib.parse.quote("a+b c"))
    r = expect(c.put("/%s/copy" % b, x_amz_copy_source=src), 200)
    assert leat.xml_root(r.body).findtext("ETag") == '"%s"' % md5(data)
    r = c.get("/%s/copy" % b)
    assert r.body == data and r.headers["x-amz-meta-a"] == "1"
    assert r.headers["x-amz-tagging-count"] == "1"
    expect(c.put("/%s/copy2" % b, x_amz_copy_source=src, x_amz_metadata_directive="REPLACE",
                 x_amz_meta_b="2", x_amz_tagging_directive="REPLACE"), 200)
    r = c.get("/%s/copy2" % b)
    assert r.headers["x-amz-meta-b"] == "2" and "x-amz-meta-a" not in r.headers
    assert "x-amz-tagging-count" not in r.headers
    p = "/%s/copy" % b
    expect(c.put(p, x_amz_copy_source=p), 400, "InvalidRequest")
    before = c.head(p).headers["last-modified"]
    expect(c.put(p, x_amz_copy_source=p, x_amz_metadata_directive="REPLACE", x_amz_meta_c="3"), 200)
    r = c.get(p)
    assert r.body == data and r.headers["x-amz-meta-c"] == "3" and before
    etag = '"%s"' % md5(data)
    expect(c.put(p, x_amz_copy_source=src, x_amz_copy_source_if_match='"x"'), 412)
    expect(c.put(p, x_amz_copy_source=src, x_amz_copy_source_if_none_match=etag), 412)
    expect(c.put(p, x_amz_copy_source=src, x_amz_copy_source_if_match=etag), 200)
    expect(c.put(p, x_amz_copy_source="/%s/none" % b), 404, "NoSuchKey")
    expect(c.put(p, x_amz_copy_source="/no-such-bucket/k"), 404, "NoSuchBucket")
    for bad in ("nothing", "/%s/%%zz" % b, "/%s/" % b, "", "/"):
        r = c.put(p, x_amz_copy_source=bad)
        assert 400 <= r.status < 500, (bad, r.status, r.body)
    assert c.get(p).body == data


def test_many_copies_with_little_memory():
    """Copies hold what they read and want memory to write: they must not wait for each other."""
    with leat.Server(cores=1, config="store:\n  buffer_bytes: 32MiB\n") as s:
        data = leat.random_bytes(3, 3 << 20)
        c = s.client()
        assert c.put("/copies").status == 200
        expect(c.put("/copies/source", data), 200)

        def copy(i):
            mine = s.client(timeout=60)
            expect(mine.put("/copies/%d" % i, x_amz_copy_source="/copies/source"), 200)
            assert mine.get("/copies/%d" % i).body == data

        leat.run_parallel(100, copy)


def test_many_reads_with_little_memory():
    """What is read ahead gives way where memory is short, also to slow readers."""
    for cores in (1, 2):
        with leat.Server(cores=cores, config="store:\n  buffer_bytes: %dMiB\n" % (32 * cores)) as s:
            data = leat.random_bytes(4, 9_000_000)
            c = s.client()
            assert c.put("/reads").status == 200
            expect(c.put("/reads/source", data), 200)

            def read(i):
                mine = s.client(timeout=60)
                for start in (0, 1_000_000 + i * 77777):
                    r = mine.get("/reads/source", range="bytes=%d-" % start)
                    assert r.status == 206 and r.body == data[start:]

            leat.run_parallel(60, read)


def complete_xml(parts):
    return ("<CompleteMultipartUpload>" + "".join(
        "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>" % p for p in parts) +
        "</CompleteMultipartUpload>").encode()


def create_upload(c, p, **headers):
    r = expect(c.request("POST", p, [("uploads", "")],
                         {k.replace("_", "-"): v for k, v in headers.items()}), 200)
    return leat.xml_root(r.body).findtext("UploadId")


def put_part(c, p, upload, number, data, **headers):
    return c.request("PUT", p, [("partNumber", str(number)), ("uploadId", upload)],
                     {k.replace("_", "-"): v for k, v in headers.items()}, body=data)


def test_multipart():
    c, b = bucket()
    p = "/%s/big" % b
    expect(c.put(p, b"before"), 200)
    upload = create_upload(c, p, x_amz_meta_m="n", content_type="x/y")
    parts = [leat.random_bytes(i, 5 << 20) for i in range(3)] + [b"the end"]
    numbers = [1, 5, 6, 10000]
    etags = []
    for n, data in zip(numbers, parts):
        r = expect(put_part(c, p, upload, n, data), 200)
        assert r.headers["etag"] == '"%s"' % md5(data)
        etags.append(r.headers["etag"])
    assert c.get(p).body == b"before"
    # A part that is sent again replaces the first.
    again = leat.random_bytes("again", 5 << 20)
    etags[1] = put_part(c, p, upload, 5, again).headers["etag"]
    parts[1] = again
    r = c.get(p, [("uploadId", upload), ("max-parts", "3")])
    root = leat.xml_root(expect(r, 200).body)
    assert [e.findtext("PartNumber") for e in root.findall("Part")] == ["1", "5", "6"]
    assert root.findtext("IsTruncated") == "true"
    assert root.findtext("NextPartNumberMarker") == "6"
    good = list(zip(numbers, etags))
    finish = lambda parts_, **h: c.request("POST", p, [("uploadId", upload)],
                                           {k.replace("_", "-"): v for k, v in h.items()},
                                           body=complete_xml(parts_))
    expect(finish([]), 400, "MalformedXML")
    expect(finish([good[1], good[0]]), 400, "InvalidPartOrder")
    expect(finish([good[0], good[1], good[0]]), 400, "InvalidPartOrder")
    expect(finish([good[0], (1, etags[1])]), 400, "InvalidPart")  # of two, the last counts
    expect(finish([good[0], (7, etags[0])]), 400, "InvalidPart")
    expect(finish([good[0], (5, etags[0])]), 400, "InvalidPart")
    expect(finish(good, x_amz_mp_object_size="5"), 400, "InvalidRequest")
    expect(finish(good, if_none_match="*"), 412, "PreconditionFailed")
    assert c.get(p).body == b"before"
    r = expect(finish([(1, etags[1])] + good[:2] + good[1:]), 200)
    want = '"%s-4"' % md5(b"".join(hashlib.md5(d).digest() for d in parts))
    assert leat.xml_root(r.body).findtext("ETag") == want
    # Clients that timed out ask again.
    r = expect(finish(good), 200)
    assert leat.xml_root(r.body).findtext("ETag") == want
    data = b"".join(parts)
    r = c.get(p)
    assert r.body == data and r.headers["etag"] == want and r.headers["x-amz-meta-m"] == "n"
    r = expect(c.get(p, [("partNumber", "5")]), 206)
    assert r.body == again and r.headers["x-amz-mp-parts-count"] == "4"
    r = expect(c.head(p, [("partNumber", "10000")]), 206)
    assert r.headers["content-length"] == "7"
    expect(c.get(p, [("partNumber", "2")]), 400, "InvalidPart")
    expect(c.get(p, [("uploadId", upload)]), 404, "NoSuchUpload")
    first = 5 << 20
    r = c.get(p, range="bytes=%d-%d" % (first - 5, first + 5))
    assert r.body == data[first - 5:first + 6]
    r = c.get(p, range="bytes=%d-" % (len(data) - 12))
    assert r.body == data[-12:]


def test_multipart_limits_and_abort():
    c, b = bucket()
    p = "/%s/k" % b
    upload = create_upload(c, p)
    small = put_part(c, p, upload, 1, b"small").headers["etag"]
    last = put_part(c, p, upload, 2, b"last").headers["etag"]
    r = c.request("POST", p, [("uploadId", upload)], body=complete_xml([(1, small), (2, last)]))
    expect(r, 400, "EntityTooSmall")
    for bad in ("0", "10001", "x", "-1"):
        expect(put_part(c, p, upload, bad, b"x") if bad.isdigit() else
               c.request("PUT", p, [("partNumber", bad), ("uploadId", upload)], body=b"x"), 400,
               "InvalidArgument")
    # The failed Complete can be repeated with what is right.
    expect(c.request("POST", p, [("uploadId", upload)], body=complete_xml([(2, last)])), 200)
    assert c.get(p).body == b"last"
    upload = create_upload(c, p)
    put_part(c, p, upload, 1, b"x" * 100000)
    expect(c.delete(p, [("uploadId", upload)]), 204)
    expect(c.delete(p, [("uploadId", upload)]), 404, "NoSuchUpload")
    expect(put_part(c, p, upload, 1, b"x"), 404, "NoSuchUpload")
    assert c.get(p).body == b"last"
    expect(c.delete(p), 204)
    expect(c.delete("/" + b), 204)


def test_part_copy():
    c, b = bucket()
    src = leat.random_bytes("src", 12_000_000)
    expect(c.put("/%s/src" % b, src), 200)
    p = "/%s/dst" % b
    upload = create_upload(c, p)
    query = lambda n: [("partNumber", str(n)), ("uploadId", upload)]
    h = {"x-amz-copy-source": "/%s/src" % b}
    etags = []
    for n, rng in ((1, "bytes=1000-6000999"), (2, "bytes=6001000-11999999")):
        r = expect(c.request("PUT", p, query(n), dict(h, **{"x-amz-copy-source-range": rng})), 200)
        etags.append((n, leat.xml_root(r.body).findtext("ETag")))
    r = c.request("PUT", p, query(3), dict(h, **{"x-amz-copy-source-range": "bytes=0-12000000"}))
    expect(r, 416, "InvalidRange")
    for bad in ("bytes=5-", "bytes=-5", "0-5", "bytes=7-5"):
        r = c.request("PUT", p, query(3), dict(h, **{"x-amz-copy-source-range": bad}))
        expect(r, 400, "InvalidArgument")
    expect(c.request("POST", p, [("uploadId", upload)], body=complete_xml(etags)), 200)
    assert c.get(p).body == src[1000:]


def test_multipart_checksums():
    c, b = bucket()
    p = "/%s/k" % b
    parts = [leat.random_bytes(i, 5 << 20) for i in range(2)] + [b"end"]
    b64 = lambda raw: base64.b64encode(raw).decode()
    crc = lambda d: zlib.crc32(d).to_bytes(4, "big")
    for kind in ("COMPOSITE", "FULL_OBJECT"):
        upload = create_upload(c, p, x_amz_checksum_algorithm="CRC32", x_amz_checksum_type=kind)
        xml = "<CompleteMultipartUpload>"
        for n, data in enumerate(parts, 1):
            r = expect(put_part(c, p, upload, n, data, x_amz_checksum_crc32=b64(crc(data))), 200)
            xml += ("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><ChecksumCRC32>%s"
                    "</ChecksumCRC32></Part>" % (n, r.headers["etag"], b64(crc(data))))
        xml += "</CompleteMultipartUpload>"
        expect(put_part(c, p, upload, 1, parts[0], x_amz_checksum_sha256=b64(
            hashlib.sha256(parts[0]).digest())), 400, "InvalidRequest")
        r = expect(c.request("POST", p, [("uploadId", upload)], body=xml.encode()), 200)
        whole = b64(crc(b"".join(crc(d) for d in parts))) + "-3" if kind == "COMPOSITE" \
            else b64(crc(b"".join(parts)))
        assert leat.xml_root(r.body).findtext("ChecksumCRC32") == whole
        r = c.head(p, x_amz_checksum_mode="ENABLED")
        assert r.headers["x-amz-checksum-crc32"] == whole
        assert r.headers["x-amz-checksum-type"] == kind
        r = c.get(p, [("attributes", "")], x_amz_object_attributes="Checksum,ObjectParts,ObjectSize,"
                  "ETag,StorageClass")
        root = leat.xml_root(expect(r, 200).body)
        assert root.findtext("Checksum/ChecksumCRC32") == whole
        assert root.findtext("ObjectParts/PartsCount") == "3"
        assert root.findtext("ObjectSize") == str(sum(map(len, parts)))
    for algorithm, kind in (("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), ("MD4", "")):
        h = {"x-amz-checksum-algorithm": algorithm}
        if kind:
            h["x-amz-checksum-type"] = kind
        expect(c.request("POST", p, [("uploads", "")], h), 400, "InvalidRequest")


def test_delete_objects():
    c, b = bucket()
    for i in range(30):
        c.put("/%s/k%d" % (b, i), b"x")
    body = ("<Delete>" + "".join("<Object><Key>k%d</Key></Object>" % i for i in range(20)) +
            "<Object><Key>absent</Key></Object></Delete>").encode()
    r = expect(c.request("POST", "/" + b, [("delete", "")], body=body), 200)
    assert len(leat.xml_root(r.body).findall("Deleted")) == 21
    assert len(c.list_all(b)[0]) == 10
    md5_good = base64.b64encode(hashlib.md5(body).digest()).decode()
    expect(c.request("POST", "/" + b, [("delete", "")], {"content-md5": md5_good}, body=body), 200)
    expect(c.request("POST", "/" + b, [("delete", "")], {"content-md5": md5_good}, body=body[:-1]),
           400, "BadDigest")
    quiet = body.replace(b"<Delete>", b"<Delete><Quiet>true</Quiet>")
    r = expect(c.request("POST", "/" + b, [("delete", "")], body=quiet), 200)
    assert not leat.xml_root(r.body).findall("Deleted")
    many = ("<Delete>" + "<Object><Key>k</Key></Object>" * 1001 + "</Delete>").encode()
    expect(c.request("POST", "/" + b, [("delete", "")], body=many), 400, "MalformedXML")
    for bad in (b"", b"<Delete>", b"<Delete></Delete>", b"<x/>",
                b'<!DOCTYPE a [<!ENTITY b "c">]><Delete><Object><Key>&b;</Key></Object></Delete>'):
        expect(c.request("POST", "/" + b, [("delete", "")], body=bad), 400, "MalformedXML")
    assert len(c.list_all(b)[0]) == 10


def listing(c, b, **q):
    r = expect(c.get("/" + b, q), 200)
    root = leat.xml_root(r.body)
    return ([e.findtext("Key") for e in root.findall("Contents")],
            [e.findtext("Prefix") for e in root.findall("CommonPrefixes")], root)


def test_list_corners():
    c, b = bucket()
    keys = ["a", "a-", "a/", "a/b", "a/b/c", "a.", "a.b", "b/1", "b/2", "c", "data-1", "data/1",
            "data.v2/1", "zz"]
    for k in keys:
        c.put("/%s/%s" % (b, k), b"x")
    assert listing(c, b)[0] == sorted(keys)
    got = listing(c, b, delimiter="/")
    assert got[0] == ["a", "a-", "a.", "a.b", "c", "data-1", "zz"], got
    assert got[1] == ["a/", "b/", "data.v2/", "data/"], got
    # Page by page, with and without a delimiter: every name once, in order.
    for page in (1, 2, 3, 5):
        assert [k.decode() for k in c.list_all(b, page)[0]] == sorted(keys)
        k, p, _ = c.list_all(b, page, delimiter="/")
        assert [x.decode() for x in k] == got[0] and [x.decode() for x in p] == got[1]
    keys_, prefixes, root = listing(c, b, **{"max-keys": "0"})
    assert not keys_ and root.findtext("IsTruncated") == "false"
    keys_, _, root = listing(c, b, **{"list-type": "2", "start-after": "c"})
    assert keys_[0] == "data-1" and root.findtext("StartAfter") == "c"
    keys_, _, root = listing(c, b, marker="b/1", delimiter="/")
    assert root.findall("CommonPrefixes")[0].findtext("Prefix") == "b/"
    keys_, prefixes, root = listing(c, b, **{"delimiter": "/", "max-keys": "2", "marker": "a."})
    assert root.findtext("NextMarker") == "b/" or root.findtext("NextMarker") == "a/", prefixes
    assert listing(c, b, prefix="a/")[0] == ["a/", "a/b", "a/b/c"]
    assert listing(c, b, prefix="a/", delimiter="/")[:2] == (["a/", "a/b"], ["a/b/"])
    assert listing(c, b, prefix="nothing")[0] == []
    assert listing(c, b, delimiter="ta")[1] == ["data"]
    # Decoding gives the prefix, and where a client does not decode it in V1 most are as they were.
    for prefix in ("a b/\n\t\r\\<&", "a+b%41", "\x01\x7f\u00fc", "%" * 1024):
        for version in ("1", "2"):
            query = {"prefix": prefix, "encoding-type": "url"}
            if version == "2":
                query["list-type"] = "2"
            root = leat.xml_root(expect(c.get("/" + b, query), 200).body)
            assert urllib.parse.unquote_plus(root.findtext("Prefix")) == prefix, prefix
            if version == "1" and not set(prefix) & set("+%\x01"):
                assert root.findtext("Prefix") == prefix
    for bad in ("x", "-1"):
        expect(c.get("/" + b, {"max-keys": bad}), 400, "InvalidArgument")
    expect(c.get("/" + b, {"encoding-type": "x"}), 400, "InvalidArgument")
    expect(c.get("/" + b, {"list-type": "2", "continuation-token": "%%%"}), 400, "InvalidArgument")
    expect(c.get("/" + b, {"list-type": "3"}), 400, "InvalidArgument")
    r = expect(c.get("/" + b, {"list-type": "2", "fetch-owner": "true"}), 200)
    assert b"<Owner>" in r.body
    expect(c.get("/no-such-bucket"), 404, "NoSuchBucket")
    r = expect(c.get("/" + b, {"versions": ""}), 200)
    assert len(leat.xml_root(r.body).findall("Version")) == len(keys)


def test_buckets():
    c = server.client()
    for bad in ("ab", "A" * 5, "a" * 64, "-abc", "abc-", "a..b", "192.168.1.1", "xn--abc", "a_b",
                "abc-s3alias", "sthree-x"):
        expect(c.put("/" + bad), 400, "InvalidBucketName")
    for good in ("abc", "a.b-c", "1-2", "a" * 63):
        expect(c.put("/" + good), 200)
        expect(c.head("/" + good), 200)
        expect(c.put("/" + good), 200)
        r = expect(c.get("/" + good, [("location", "")]), 200)
        assert leat.xml_root(r.body).tag == "LocationConstraint"
    r = expect(c.get("/", {"prefix": "a", "max-buckets": "2"}), 200)
    root = leat.xml_root(r.body)
    names = [e.findtext("Name") for e in root.findall("Buckets/Bucket")]
    assert len(names) == 2
    token = root.findtext("ContinuationToken")
    r = c.get("/", {"prefix": "a", "continuation-token": token})
    names += [e.findtext("Name") for e in leat.xml_root(r.body).findall("Buckets/Bucket")]
    assert names == sorted(["abc", "a.b-c", "a" * 63]), names
    c.put("/abc/k", b"x")
    expect(c.delete("/abc"), 409, "BucketNotEmpty")
    c.delete("/abc/k")
    for good in ("abc", "a.b-c", "1-2", "a" * 63):
        expect(c.delete("/" + good), 204)
        expect(c.head("/" + good), 404)
    expect(c.delete("/abc"), 404, "NoSuchBucket")
    expect(c.put("/abc/k", b"x"), 404, "NoSuchBucket")
    config = lambda region: ("<CreateBucketConfiguration><LocationConstraint>%s"
                             "</LocationConstraint></CreateBucketConfiguration>" % region).encode()
    expect(c.put("/located", config("us-east-1")), 200)
    expect(c.put("/located2", config("mars")), 400, "InvalidLocationConstraint")
    expect(c.put("/located2", b"<rubbish"), 400, "MalformedXML")
    c.delete("/located")


def test_owner():
    c, b = bucket()
    c.put("/%s/k" % b, b"x")
    for path in ("/" + b, "/%s/k" % b):
        r = expect(c.get(path, [("acl", "")]), 200)
        assert b"<Permission>FULL_CONTROL</Permission>" in r.body
        expect(c.request("PUT", path, [("acl", "")], {"x-amz-acl": "private"}), 200)
        expect(c.request("PUT", path, [("acl", "")], {"x-amz-acl": "public-read"}), 501)
        expect(c.request("PUT", path, [("acl", "")], body=b"<AccessControlPolicy/>"), 501)
    assert c.get("/%s/k" % b).body == b"x"
    expect(c.get("/%s/absent" % b, [("acl", "")]), 404, "NoSuchKey")
    expect(c.get("/%s/k" % b, x_amz_expected_bucket_owner="somebody"), 403, "AccessDenied")
    expect(c.put("/%s/k" % b, b"y", x_amz_expected_bucket_owner="somebody"), 403, "AccessDenied")
    assert c.get("/%s/k" % b, x_amz_expected_bucket_owner="leat").body == b"x"


def test_bucket_delete_races_with_puts():
    c = server.client()
    for round_ in range(10):
        name = "racing-%d" % round_
        expect(c.put("/" + name), 200)
        acknowledged = []
        stop = threading.Event()

        def writer(i):
            mine = server.client()
            n = 0
            while not stop.is_set() and n < 200:
                r = mine.put("/%s/%d-%d" % (name, i, n), b"x")
                if r.status == 200:
                    acknowledged.append("%d-%d" % (i, n))
                elif r.status == 404:
                    return
                else:
                    assert r.status in (409, 503), r.body
                n += 1

        def deleter(_):
            mine = server.client()
            for _ in range(20):
                r = mine.delete("/" + name)
                assert r.status in (204, 404, 409, 503), r.body
                if r.status == 204:
                    break
            stop.set()

        leat.run_parallel(4, lambda i: writer(i) if i < 3 else deleter(i))
        if c.head("/" + name).status == 200:
            listed = {k.decode() for k in c.list_all(name)[0]}
            assert listed == set(acknowledged), (len(listed), len(acknowledged))
            for k in listed:
                c.delete("/%s/%s" % (name, k))
            expect(c.delete("/" + name), 204)
        else:
            assert not acknowledged


def raw_exchange(data, timeout=10):
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                return out
            out += piece


def test_http_corners():
    c, b = bucket()
    host = b"Host: 127.0.0.1:%d\r\n" % server.port
    both = (b"PUT /%s/k HTTP/1.1\r\n" % b.encode() + host +
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert raw_exchange(both).startswith(b"HTTP/1.1 400")
    two = b"PUT / HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"
    assert raw_exchange(two).startswith(b"HTTP/1.1 400")
    assert raw_exchange(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw_exchange(b"rubbish\r\n\r\n").startswith(b"HTTP/1.1 400")
    # 100 Continue only after the head was checked: a refused request gets its answer at once.
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(b"PUT /%s/k HTTP/1.1\r\n" % b.encode() + host +
                  b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 403")
    h = {"expect": "100-continue"}
    p = "/%s/k" % b
    c.sign("PUT", p, [], h, "UNSIGNED-PAYLOAD")
    head = "PUT %s HTTP/1.1\r\ncontent-length: 5\r\n" % p + "".join(
        "%s: %s\r\n" % kv for kv in h.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(head.encode())
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"12345")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    assert c.get(p).body == b"12345"
    # An empty body gets its 100 Continue too: botocore waits for ever otherwise, one request later.
    h = {"expect": "100-continue"}
    c.sign("PUT", p, [], h, "UNSIGNED-PAYLOAD")
    head = "PUT %s HTTP/1.1\r\ncontent-length: 0\r\n" % p + "".join(
        "%s: %s\r\n" % kv for kv in h.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(head.encode())
        got = b""
        while got.count(b"\r\n\r\n") < 2:
            got += s.recv(1000)
        assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), got
    expect(c.put(p, b"12345"), 200)
    # A refused body does not desynchronise the connection.
    r = c.request("PUT", "/no-such-bucket/k", body=b"GET / HTTP/1.1\r\n\r\n" * 10)
    expect(r, 404, "NoSuchBucket")
    expect(c.get(p), 200)
    # A client that goes away in the middle leaves the old object.
    h = {}
    c.sign("PUT", p, [], h, "UNSIGNED-PAYLOAD")
    head = "PUT %s HTTP/1.1\r\ncontent-length: 5000000\r\n" % p + "".join(
        "%s: %s\r\n" % kv for kv in h.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
        s.sendall(head.encode() + b"x" * 2_000_000)
    assert c.get(p).body == b"12345"


def test_last_modified_and_overwrite():
    c, b = bucket()
    p = "/%s/k" % b
    for i in range(50):
        expect(c.put(p, b"%d" % i * (i * 700 + 1)), 200)
        assert c.get(p).body == b"%d" % i * (i * 700 + 1)
    assert len(c.list_all(b)[0]) == 1


TESTS = [(n, f) for n, f in sorted(globals().items()) if n.startswith("test_")]
