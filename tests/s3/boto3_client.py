# SPDX-License-Identifier: Apache-2.0
"""boto3 doing what its users do; run with the endpoint as argument."""
import hashlib
import io
import sys

import boto3
import botocore.exceptions
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

endpoint = sys.argv[1]
s3 = boto3.client("s3", endpoint_url=endpoint,
                  config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
B = "boto-bucket"
s3.create_bucket(Bucket=B)
assert B in [b["Name"] for b in s3.list_buckets()["Buckets"]]
body = hashlib.shake_128(b"boto").digest(20 << 20)
s3.upload_fileobj(io.BytesIO(body), B, "big",
                  Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20),
                  ExtraArgs={"Metadata": {"who": "boto"}, "ContentType": "a/b"})
out = io.BytesIO()
s3.download_fileobj(B, "big", out, Config=TransferConfig(multipart_threshold=1 << 20,
                                                         multipart_chunksize=1 << 20))
assert out.getvalue() == body
head = s3.head_object(Bucket=B, Key="big")
assert head["Metadata"] == {"who": "boto"} and head["ETag"].endswith('-4"'), head
assert s3.get_object(Bucket=B, Key="big", Range="bytes=100-199")["Body"].read() == body[100:200]
for algorithm in ("CRC32", "SHA1", "SHA256"):
    s3.put_object(Bucket=B, Key="sum", Body=b"data", ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=B, Key="sum", ChecksumMode="ENABLED")
    assert got["Body"].read() == b"data" and got["Checksum" + algorithm], got
for i in range(25):
    s3.put_object(Bucket=B, Key="p/%02d" % i, Body=b"x")
keys = [o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(
    Bucket=B, Prefix="p/", PaginationConfig={"PageSize": 7}) for o in page["Contents"]]
assert keys == ["p/%02d" % i for i in range(25)]
keys = [o["Key"] for page in s3.get_paginator("list_objects").paginate(
    Bucket=B, PaginationConfig={"PageSize": 7}) for o in page["Contents"]]
assert len(keys) == 27
s3.copy({"Bucket": B, "Key": "big"}, B, "copy",
        Config=TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=6 << 20))
assert s3.get_object(Bucket=B, Key="copy")["Body"].read() == body
url = s3.generate_presigned_url("get_object", Params={"Bucket": B, "Key": "p/00"})
import urllib.request
assert urllib.request.urlopen(url).read() == b"x"
try:
    s3.get_object(Bucket=B, Key="absent")
    raise SystemExit("a missing key was found")
except s3.exceptions.NoSuchKey:
    pass
# With a Date header botocore signs that one, written as in mail ("-0000"), and no x-amz-date.
s3.meta.events.register("before-call.s3.HeadObject",
                        lambda params, **kw: params["headers"].update({"Date": "now"}))
s3.head_object(Bucket=B, Key="sum")
tags = [{"Key": "a", "Value": "1"}, {"Key": "b/c", "Value": "\u00fc x"}]
s3.put_object_tagging(Bucket=B, Key="sum", Tagging={"TagSet": tags})
assert s3.get_object_tagging(Bucket=B, Key="sum")["TagSet"] == tags
s3.delete_object_tagging(Bucket=B, Key="sum")
assert s3.get_object_tagging(Bucket=B, Key="sum")["TagSet"] == []
for call, kw in ((s3.put_bucket_tagging, {"Tagging": {"TagSet": []}}), (s3.put_bucket_policy, {"Policy": "{}"}), (s3.put_bucket_acl, {"ACL": "public-read"})):
    try:
        call(Bucket=B, **kw)
        raise SystemExit("%r is not implemented, but succeeded" % call)
    except botocore.exceptions.ClientError as e:
        assert e.response["Error"]["Code"] == "NotImplemented", e
assert s3.get_object(Bucket=B, Key="sum")["Body"].read() == b"data"
r = s3.delete_objects(Bucket=B, Delete={"Objects": [{"Key": k} for k in keys + ["copy"]]})
assert len(r["Deleted"]) == len(keys) + 1 and "Errors" not in r
s3.delete_bucket(Bucket=B)
