#include "shoal/parallel/sums/delta_sums.h"

#include <algorithm>

#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/parallel/sums/global_momentum.h"
#include "shoal/proto/run.pb.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {

DeltaSums::DeltaSums(const TableSetup& setup, TableSide& side)
    : task_(side.task),
      net_(side.net),
      sums_(setup, side, BucketSums::Of::kNumbers),
      is_unsent_(setup.ways.size()),
      from_(net_.params().size()),
      v_(from_.size()),
      versions_(sums_.size()) {
  for (std::size_t p = 0; p < from_.size(); ++p) {
    const NetParam& param = net_.params()[p];
    if (!owns(param.layer) || param.lr_mult == 0) continue;
    from_[p].resize(static_cast<std::size_t>(param.blob->data.count()));
    if (task_.global_momentum > 0) v_[p].resize(from_[p].size());
  }
}

Status DeltaSums::begin(int layer, table::Clock task) {
  const std::size_t part = *sums_.part_of(layer);
  TRY(apply(part));
  for (const std::size_t p : learning_of(net_, layer))
    std::ranges::copy(net_.params()[p].blob->data.host(), from_[p].begin());
  is_unsent_[layer] = true;
  return sums_.expect(part, task);
}

void DeltaSums::send(int layer, float weight) {
  is_unsent_[layer] = false;
  const float count = task_.weighing == table::Weighing::kSteps && weight > 0 ? 1 : weight;
  sums_.send(layer, count, [&](std::size_t p, std::span<float> numbers) {
    std::ranges::transform(net_.params()[p].blob->data.host(), from_[p], numbers.begin(),
                           [weight](float now, float from) { return weight * (now - from); });
  });
}

void DeltaSums::send_rest(float weight) {
  for (int layer = static_cast<int>(is_unsent_.size()); layer-- > 0;)
    if (is_unsent_[layer]) send(layer, weight);
}

Status DeltaSums::apply_all() {
  for (std::size_t part = 0; part < sums_.size(); ++part) TRY(apply(part));
  return {};
}

// Applies a bucket's sum. If no worker has learned anything the params are those with which all
// began.
Status DeltaSums::apply(std::size_t part) {
  const Result<std::optional<float>> count = sums_.finish(part);
  TRY(count);
  const float all = count.value().value_or(0);
  if (all <= 0) return {};
  sums_.read(part, [&](std::size_t p, std::span<const float> sum) { move(p, sum, 1 / all); });
  ++versions_[part];
  return {};
}

void DeltaSums::move(std::size_t param, std::span<const float> sum, float scale) {
  const float b = task_.global_momentum, rate = task_.global_rate;
  const std::vector<float>& from = from_[param];
  std::vector<float>& v = v_[param];
  const std::span<float> now = net_.params()[param].blob->data.host_out();
  for (std::size_t i = 0; i < now.size(); ++i) {
    const float mean = scale * sum[i];
    if (!v.empty()) v[i] = b * v[i] + mean;
    now[i] = from[i] + rate * (v.empty() ? mean : task_.global_nesterov ? b * v[i] + mean : v[i]);
  }
}

void DeltaSums::put(RunState& run) const {
  for (std::size_t p = 0; p < v_.size(); ++p) add_global_momentum(run, p, v_[p]);
}

void DeltaSums::take(const RunState& run, const std::string& file) {
  for (std::size_t p = 0; p < v_.size(); ++p) read_global_momentum(run, file, p, 0, v_[p]);
}

}  // namespace shoal::parallel
