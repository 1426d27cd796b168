// Mixed precision for one kind of device. tch has it for CUDA alone, and there in half precision, whose gradients
// vanish unless the loss is scaled; bfloat16 has float's range.
#include <ATen/autocast_mode.h>

// Turns it on or off for this thread. Returns 0, or -1 if libtorch refuses.
extern "C" int warpfeed_tch_autocast(int cuda, int on) {
    const auto device = cuda ? at::kCUDA : at::kCPU;
    try {
        if (on) {
            at::autocast::set_autocast_dtype(device, at::kBFloat16);
            at::autocast::increment_nesting();
        } else if (at::autocast::decrement_nesting() == 0) {
            at::autocast::clear_cache();
        }
        at::autocast::set_autocast_enabled(device, on);
        return 0;
    } catch (...) {
        return -1;
    }
}
