// Implements what the layers that permute axes have in common.
#include "shoal/layers/permutation.h"

#include "shoal/ops/rearrange.h"
#include "shoal/proto/config_error.h"
#include "shoal/proto/layers.pb.h"

namespace shoal {
namespace {

// Returns how far apart neighbours of each axis lie.
std::vector<std::int64_t> steps_of(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> steps(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) steps[i - 1] = steps[i] * sizes[i];
  return steps;
}

}  // namespace

void Permutation::permute(const Sizes& bottom, const std::vector<std::size_t>& order) {
  if (bottom.size() > ops::kMostSteps)
    throw config_error(param(), "the bottom has ", bottom.size(), " axes; at most ",
                       ops::kMostSteps, " can be put in another order");
  bottom_sizes_ = bottom;
  const Sizes steps = steps_of(bottom);
  top_sizes_.clear();
  bottom_steps_.clear();
  for (const std::size_t axis : order) {
    top_sizes_.push_back(bottom[axis]);
    bottom_steps_.push_back(steps[axis]);
  }
  const Sizes of_top = steps_of(top_sizes_);
  top_steps_.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) top_steps_[order[i]] = of_top[i];
}

void Permutation::forward(Context& ctx, Bottoms bottoms, Tops tops) {
  ops::rearrange(ctx, bottoms[0]->data, top_sizes_, bottom_steps_, tops[0]->data);
}

void Permutation::backward(Context& ctx, Tops tops, const std::vector<bool>& propagate,
                           Bottoms bottoms) {
  if (propagate[0]) ops::rearrange(ctx, tops[0]->grad, bottom_sizes_, top_steps_, bottoms[0]->grad);
}

}  // namespace shoal
