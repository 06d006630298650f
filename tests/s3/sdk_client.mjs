// SPDX-License-Identifier: Apache-2.0
// The newest AWS SDK for JavaScript with its default checksums (CRC trailers) and lib-storage.
import assert from 'node:assert';
import crypto from 'node:crypto';
import { Readable } from 'node:stream';
import * as S3 from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';

const client = new S3.S3Client({
  endpoint: process.argv[2], region: 'us-east-1', forcePathStyle: true, maxAttempts: 1,
  credentials: {
    accessKeyId: process.env.AWS_ACCESS_KEY_ID,
    secretAccessKey: process.env.AWS_SECRET_ACCESS_KEY,
  },
});
const Bucket = 'js-bucket';
const send = (name, args) => client.send(new S3[name + 'Command']({ Bucket, ...args }));
const bytes = async (r) => Buffer.from(await r.Body.transformToByteArray());

await send('CreateBucket', {});
const small = crypto.randomBytes(100000);
let r = await send('PutObject', { Key: 'a/b c+d', Body: small, Metadata: { x: 'y' } });
assert(r.ChecksumCRC32, 'the default checksum is told back');
r = await send('GetObject', { Key: 'a/b c+d' });
assert(small.equals(await bytes(r)));
assert.deepStrictEqual(r.Metadata, { x: 'y' });
// A stream of known length goes as aws-chunked with a CRC trailer.
for (const ChecksumAlgorithm of ['CRC32', 'CRC32C', 'SHA1', 'SHA256']) {
  await send('PutObject', {
    Key: 'stream', Body: Readable.from([small.subarray(0, 70000), small.subarray(70000)]),
    ContentLength: small.length, ChecksumAlgorithm,
  });
  r = await send('GetObject', { Key: 'stream', ChecksumMode: 'ENABLED' });
  assert(r['Checksum' + ChecksumAlgorithm], ChecksumAlgorithm);
  assert.strictEqual(r.ContentEncoding, undefined);
  assert(small.equals(await bytes(r)));
}
const big = crypto.randomBytes(17 << 20);
const upload = new Upload({
  client, params: { Bucket, Key: 'big', Body: Readable.from([big]) }, partSize: 5 << 20, queueSize: 3,
});
await upload.done();
r = await send('GetObject', { Key: 'big', ChecksumMode: 'ENABLED' });
assert(big.equals(await bytes(r)));
r = await send('GetObjectAttributes', {
  Key: 'big', ObjectAttributes: ['ObjectParts', 'Checksum', 'ObjectSize'],
});
assert.strictEqual(r.ObjectSize, big.length);
assert.strictEqual(r.ObjectParts.TotalPartsCount, 4);
await assert.rejects(send('PutObject', { Key: 'big', Body: 'x', IfNoneMatch: '*' }),
  { name: 'PreconditionFailed' });
r = await send('ListObjectsV2', { Delimiter: '/' });
assert.deepStrictEqual(r.CommonPrefixes.map((p) => p.Prefix), ['a/']);
await send('CopyObject', { Key: 'copy', CopySource: Bucket + '/a/b%20c%2Bd' });
r = await send('HeadObject', { Key: 'copy' });
assert.strictEqual(r.ContentLength, small.length);
r = await send('DeleteObjects', {
  Delete: { Objects: ['a/b c+d', 'stream', 'big', 'copy'].map((Key) => ({ Key })) },
});
assert.strictEqual(r.Deleted.length, 4);
await send('DeleteBucket', {});
