// Names of pooling methods, and the coins of their draws: common to Pooling and SPP.
#pragma once

#include "shoal/ops/window.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

// `method` is MAX, AVE or STOCHASTIC of PoolingParameter or of SPPParameter.
template <class ProtoMethod>
ops::PoolDesc::Method pool_method(ProtoMethod method, bool training) {
  using Method = ops::PoolDesc::Method;
  switch (static_cast<int>(method)) {
    case PoolingParameter::AVE: return Method::kAverage;
    case PoolingParameter::STOCHASTIC: return training ? Method::kSampled : Method::kExpected;
    default: return Method::kMax;
  }
}

// Returns the coins of a pooling's forward pass with so many outputs: the context's next random
// numbers, which it then has passed if the method draws any.
inline Random::State take_coins(Context& ctx, ops::PoolDesc::Method method, std::int64_t outputs) {
  const Random::State coins = ctx.random().state();
  if (method == ops::PoolDesc::Method::kSampled)
    ctx.random().skip(static_cast<std::uint64_t>(outputs));
  return coins;
}

}  // namespace shoal
