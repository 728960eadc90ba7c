// Implements what the layers with one function a number have in common.
#include "shoal/layers/elementwise.h"

#include <cmath>

#include "shoal/ops/vector.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {

Layer::Reads Elementwise::reads() const {
  const ops::MapReads reads = ops::reads(map_);
  return {.bottom_data = reads == ops::MapReads::kX && !in_place_,
          .top_data = reads == ops::MapReads::kY};
}

Propagates Elementwise::propagates(int) const {
  return map_.kind == ops::MapKind::kThreshold ? Propagates::kRefuses : Propagates::kYes;
}

void Elementwise::reshape(Context&, Bottoms bottoms, Tops tops) {
  in_place_ = bottoms[0] == tops[0];
  if (!in_place_) tops[0]->reshape(bottoms[0]->shape());
  if (in_place_ && training() && ops::reads(map_) == ops::MapReads::kX)
    kept_.reshape(bottoms[0]->shape());
}

void Elementwise::forward(Context& ctx, Bottoms bottoms, Tops tops) {
  if (in_place_ && training() && ops::reads(map_) == ops::MapReads::kX)
    ops::copy(ctx, bottoms[0]->data, kept_);
  ops::map(ctx, map_, bottoms[0]->data, tops[0]->data);
}

void Elementwise::backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                           Bottoms bottoms) {
  if (!propagate[0]) return;
  const bool reads_x = ops::reads(map_) == ops::MapReads::kX;
  if (in_place_ && reads_x && !training()) return fail_backward_in_place(ctx);
  const Tensor& read = !reads_x ? tops[0]->data : in_place_ ? kept_ : bottoms[0]->data;
  ops::map_backward(ctx, map_, read, tops[0]->grad, bottoms[0]->grad);
}

float log_of_base(const LayerParameter& param, float base) {
  if (base == -1) return 1;
  if (!(base > 0)) throw config_error(param, "base is ", base, "; it must be above 0, or -1 for e");
  return std::log(base);
}

void fail_backward_in_place(Context& ctx) {
  ctx.fail({Code::kConfig,
            "the top overwrites the bottom, which the gradient needs, and in phase TEST no copy is "
            "kept; give the top a name of its own"});
}

}  // namespace shoal
