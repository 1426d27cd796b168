// The kernels, as registry.inc includes them. This file alone is compiled with a call before each access to memory, which
// sim.cpp answers.

#include "cuda.h"
#include "kernel.h"

#include "registry.inc"
