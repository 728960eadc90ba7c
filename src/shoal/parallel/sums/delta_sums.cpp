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
      versions_(sums_.size()),
      done_(sums_.size()),
      weights_(sums_.size()),
      has_begun_(setup.ways.size()) {
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
  is_unsent_[layer] = has_begun_[layer] = true;
  return sums_.expect(part, task);
}

void DeltaSums::send(int layer, float weight) {
  is_unsent_[layer] = false;
  weights_[*sums_.part_of(layer)] = weight;
  sums_.send(layer, count_of(weight), [&](std::size_t p, std::span<float> numbers) {
    std::ranges::transform(net_.params()[p].blob->data.host(), from_[p], numbers.begin(),
                           [weight](float now, float from) { return weight * (now - from); });
  });
}

float DeltaSums::count_of(float weight) const {
  return task_.weighing == table::Weighing::kSteps && weight > 0 ? 1 : weight;
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
  if (!count.value()) return {};
  const float all = *count.value();
  if (all > 0)
    sums_.read(part, [&](std::size_t p, std::span<const float> sum) { move(p, sum, 1 / all); });
  end_task(part, all > 0);
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

void DeltaSums::end_task(std::size_t part, bool has_learned) {
  versions_[part] += has_learned;
  ++done_[part];
  for (const int layer : sums_.bucket(part).layers) has_begun_[layer] = false;
}

// ---- after an interruption ----

std::span<const float> DeltaSums::start_of(std::size_t param) const {
  const NetParam& of = net_.params()[param];
  return has_begun_[of.layer] ? std::span<const float>(from_[param]) : of.blob->data.host();
}

void DeltaSums::give(std::size_t part, std::string& out) const {
  for (const std::size_t p : sums_.params(part)) {
    put_numbers(start_of(p), out);
    put_numbers(v_[p], out);
  }
}

Status DeltaSums::take(std::size_t part, std::int64_t version, std::string_view bytes) {
  for (const std::size_t p : sums_.params(part)) {
    TRY(get_numbers(bytes, net_.params()[p].blob->data.host_mut()));
    TRY(get_numbers(bytes, v_[p]));
  }
  done_[part] = version;
  for (const int layer : sums_.bucket(part).layers) has_begun_[layer] = false;
  return {};
}

// Gives the difference that this worker made, as the sum's vector has it.
void DeltaSums::give_part(std::size_t part, std::string& out) const {
  const float weight = weights_[part];
  std::vector<float> vector(sums_.bucket(part).count);
  vector.back() = count_of(weight);
  sums_.each(part, vector, [&](std::size_t p, std::span<float> numbers) {
    std::ranges::transform(net_.params()[p].blob->data.host(), from_[p], numbers.begin(),
                           [weight](float now, float from) { return weight * (now - from); });
  });
  put_numbers(vector, out);
}

Status DeltaSums::sum(std::size_t part, std::span<const std::string_view> parts) {
  std::vector<float> sum(sums_.bucket(part).count);
  TRY(add_up(parts, sum));
  const float all = sum.back();
  sums_.each(part, sum, [&](std::size_t p, std::span<const float> of) {
    if (all > 0)
      move(p, of, 1 / all);
    else
      std::ranges::copy(from_[p], net_.params()[p].blob->data.host_out().begin());
  });
  end_task(part, all > 0);
  return {};
}

void DeltaSums::go_back_to(std::int64_t tasks) {
  for (std::size_t part = 0; part < sums_.size(); ++part) {
    sums_.forget(part);
    if (done_[part] < tasks) continue;
    for (const std::size_t p : sums_.params(part))
      if (has_begun_[net_.params()[p].layer])
        std::ranges::copy(from_[p], net_.params()[p].blob->data.host_out().begin());
    for (const int layer : sums_.bucket(part).layers) has_begun_[layer] = false;
  }
}

}  // namespace shoal::parallel
