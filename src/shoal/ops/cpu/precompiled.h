// Precompiled: the headers that most kernels read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/ops/cpu/impls.h"
#include "shoal/ops/cpu/parallel.h"
