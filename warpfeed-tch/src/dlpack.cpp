// The call of libtorch that tch lacks: a tensor that owns memory of others.
#include <ATen/DLConvertor.h>
#include <ATen/core/Tensor.h>

// A new tensor over the managed tensor's memory, whose deleter libtorch calls when the last one that shares it is gone.
// Null if libtorch refuses it; then nothing is freed, since libtorch may have called the deleter or not.
extern "C" at::Tensor *warpfeed_tch_from_dlpack(DLManagedTensor *managed) {
    try {
        return new at::Tensor(at::fromDLPack(managed));
    } catch (...) {
        return nullptr;
    }
}
