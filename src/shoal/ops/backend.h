// The functions that a device brings to ops: one table of the elementary ops, and for each op that
// has several kernels a list of them.
#pragma once

#include <span>

#include "shoal/ops/broadcast.h"
#include "shoal/ops/device_sums.h"
#include "shoal/ops/eltwise.h"
#include "shoal/ops/gemm.h"
#include "shoal/ops/images.h"
#include "shoal/ops/instance_loss.h"
#include "shoal/ops/job_sums.h"
#include "shoal/ops/loss.h"
#include "shoal/ops/normalize.h"
#include "shoal/ops/pointwise.h"
#include "shoal/ops/rearrange.h"
#include "shoal/ops/recurrent.h"
#include "shoal/ops/reduce.h"
#include "shoal/ops/rois.h"
#include "shoal/ops/rows.h"
#include "shoal/ops/slice.h"
#include "shoal/ops/softmax.h"
#include "shoal/ops/update.h"
#include "shoal/ops/vector.h"
#include "shoal/ops/window.h"

namespace shoal::ops {

// A function for each line of elementary.def, with the signature and contract of the op.
struct Elementary {
#define OP(name) decltype(&ops::name) name;
#include "shoal/ops/elementary.def"
#undef OP
};

// Lists are in order of preference, the plain kernel, which serves every description, last.
struct Backend {
  const Elementary* elementary;
  std::span<const DenseImpl* const> dense;
  std::span<const ConvImpl* const> conv;
  std::span<const Im2colImpl* const> im2col;
  std::span<const PoolImpl* const> pool;
  std::span<const LrnImpl* const> lrn;
  std::span<const BatchNormImpl* const> batch_norm;
  std::span<const SoftmaxImpl* const> softmax;
  decltype(&make_device_sums) device_sums = nullptr;  // null: it has none
  const JobSumsImpl* job_sums = nullptr;              // likewise
};

// The lists of impls.cpp and their kernels, compiled for one level of x86-64 (cpu_kernels.h).
struct CpuVariant {
  int level;
  const Backend* backend;
};
// Returns the variants of this build that this processor runs, of the lowest level first.
std::span<const CpuVariant> cpu_variants();
// Returns the variant of the lowest level.
const Backend& listed_backend();

// Returns the CPU's: the variant of the highest level, or the one that hold_cpu_kernels asks for.
const Backend& cpu_backend();
// Returns whether the CPU's kernels of this build keep images in 16 bits when BFLOAT16 is asked
// for.
bool cpu_has_short_images();
inline const Backend& backend(const Context& ctx) {
  const Backend* const own = ctx.device().backend();
  return own ? *own : cpu_backend();
}
inline const Elementary& elementary(const Context& ctx) { return *backend(ctx).elementary; }

}  // namespace shoal::ops
