// SPDX-License-Identifier: Apache-2.0
// The stub CUDA driver's exports: the symbols that libopends loads, and two for tests.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define STUB_API __attribute__((visibility("default")))

// The accessible address of device memory; NULL when [device, device + bytes) is not within one
// region.
STUB_API void *stub_cuda_alias(uint64_t device, size_t bytes);

STUB_API int cuInit(unsigned flags);
STUB_API int cuDeviceGetCount(int *count);
STUB_API int cuDeviceGet(int *device, int ordinal);
STUB_API int cuDevicePrimaryCtxRetain(void **context, int device);
STUB_API int cuDevicePrimaryCtxRelease_v2(int device);
STUB_API int cuCtxGetCurrent(void **context);
STUB_API int cuCtxPushCurrent_v2(void *context);
STUB_API int cuCtxPopCurrent_v2(void **context);
STUB_API int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer);
STUB_API int cuMemAlloc_v2(uint64_t *device, size_t bytes);
STUB_API int cuMemFree_v2(uint64_t device);
STUB_API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
STUB_API int cuMemFreeHost(void *memory);
STUB_API int cuMemHostGetDevicePointer_v2(uint64_t *device, void *memory, unsigned flags);
STUB_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
STUB_API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream);
STUB_API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
STUB_API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
STUB_API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream);
STUB_API int cuEventCreate(void **event, unsigned flags);
STUB_API int cuEventRecord(void *event, void *stream);
STUB_API int cuEventQuery(void *event);
STUB_API int cuEventSynchronize(void *event);
STUB_API int cuEventDestroy_v2(void *event);
STUB_API int cuStreamCreate(void **stream, unsigned flags);
STUB_API int cuStreamDestroy_v2(void *stream);
STUB_API int cuStreamSynchronize(void *stream);
STUB_API int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg);
STUB_API int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags);
