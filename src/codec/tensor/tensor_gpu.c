// SPDX-License-Identifier: Apache-2.0
// Finds the CUDA kernels at run time. Nothing of CUDA is linked; where the library, the driver or
// the device is missing, the codec runs on the processor.
#include "codec/tensor/tensor_block.h"

#include <dlfcn.h>

#define GPU_LIBRARY "libleatcodec-cuda.so"

// dlsym hands out an object pointer; copying its bits is how POSIX says to get the function.
static bool symbol_get(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

enum leat_codec_err leat_codec_gpu_open(const char *path, struct leat_codec_gpu *gpu)
{
    int (*probe)(void) = NULL;
    struct leat_codec_gpu found = {0};
    found.library = dlopen(path == NULL ? GPU_LIBRARY : path, RTLD_NOW | RTLD_LOCAL);
    if (found.library == NULL) {
        return LEAT_CODEC_ERR_UNAVAILABLE;
    }
    if (!symbol_get(found.library, "leat_codec_cuda_probe", &probe) ||
        !symbol_get(found.library, "leat_codec_cuda_workspace_bytes", &found.workspace_bytes) ||
        !symbol_get(found.library, "leat_codec_cuda_encode", &found.encode) ||
        !symbol_get(found.library, "leat_codec_cuda_decode", &found.decode) || probe() != 0) {
        dlclose(found.library);
        return LEAT_CODEC_ERR_UNAVAILABLE;
    }
    *gpu = found;
    return LEAT_CODEC_OK;
}

void leat_codec_gpu_close(struct leat_codec_gpu *gpu)
{
    if (gpu->library != NULL) {
        dlclose(gpu->library);
    }
    *gpu = (struct leat_codec_gpu){0};
}
