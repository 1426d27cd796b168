// The kernels, as included by kernels.inc. Only this file is compiled with a call before each access to memory. sim.cpp
// defines the called functions.

#include "cuda.h"

#include "kernels.inc"
