#include "shoal/parallel/exchange/factor_layer.h"

#include <algorithm>
#include <utility>

#include "shoal/net/net.h"
#include "shoal/parallel/exchange/exchanges.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/net_params.h"

namespace shoal::parallel {
namespace {

Layers only(const Net& net, int layer) {
  Layers layers(net.layers().size());
  layers[layer] = true;
  return layers;
}

Factored& factored_of(const Net& net, int layer) {
  return dynamic_cast<Factored&>(*net.layers()[layer]);
}

// Returns a context for computing beside the net's own thread. Null where a device has one stream
// for all, or gradients are to be examined after the passes.
std::unique_ptr<Context> context_beside(const TableSetup& setup) {
  const Context& context = setup.net.context();
  if (!context.device().is_host() || setup.param.snapshot_diff() || setup.param.debug_info() ||
      !setup.options.updates_beside)
    return nullptr;
  return std::make_unique<Context>(Context::Options{.threads = context.threads()});
}

}  // namespace

FactorLayer::FactorLayer(const TableSetup& setup, int of)
    : layer(of),
      name(setup.net.layers()[of]->name()),
      factored(factored_of(setup.net, of)),
      sizes(factored.factor_sizes()),
      passes(setup.param.iter_size()),
      replicas(setup.net.context().share().replicas),
      codec(setup.codecs[static_cast<std::size_t>(of)].sum),
      own_context(context_beside(setup)),
      context(own_context ? *own_context : setup.net.context()),
      net(setup.net),
      rule(rule_of(setup, only(setup.net, of), context)) {
  const Share& share = setup.net.context().share();
  const auto clients = static_cast<std::size_t>(share.clients),
             client = static_cast<std::size_t>(share.client);
  rows.assign(clients, sizes.rows * passes * replicas);
  for (std::size_t worker = 0; worker < share.batches.size(); ++worker)
    rows[worker] = rows[worker] * share.batches[worker] / share.batches[client];
  received.resize(clients);
  ids.resize(clients);
  for (std::size_t worker = 0; worker < clients; ++worker)
    if (worker != client) received[worker].resize(length(worker));
  factored.give_factors_to(this);
}

FactorLayer::~FactorLayer() { factored.give_factors_to(nullptr); }

std::size_t FactorLayer::length(std::size_t worker) const {
  return length_of({rows[worker], sizes.outputs, sizes.inputs});
}

// Appends a pass's rows behind those of the passes before it, and of the replicas before it. The
// gradient is the mean of the replicas'.
void FactorLayer::take(int replica, const Tensor& gradient, const Tensor& data) {
  const std::int64_t all = sizes.rows * passes * replicas,
                     before = sizes.rows * (replica * passes + pass[replica]++);
  const auto at = own->numbers().begin();
  std::ranges::transform(
      gradient.host(), at + before * sizes.outputs,
      [share = 1 / static_cast<float>(replicas)](float number) { return share * number; });
  std::ranges::copy(data.host(), at + all * sizes.outputs + before * sizes.inputs);
}

// Takes other memory than the last, which a server in this process may still lend to others.
void FactorLayer::begin(std::size_t worker) {
  pass.assign(static_cast<std::size_t>(replicas), 0);
  own.reset();
  const auto free = std::ranges::find_if(
      pool, [](const Message& one) { return one.use_count() == 1 && !one->is_lent(); });
  if (free == pool.end())
    own = pool.emplace_back(std::make_shared<table::Buffer>(length(worker)));
  else
    own = *free;
}

// Multiplies the workers' rows in their order, in one product or in a few, in all workers alike:
// the bits are the same.
Status FactorLayer::sum(const table::Scheme& scheme, const Messages& messages) {
  const auto& [clock, rate, mine] = sent.front();
  std::vector<float> weights;
  for (const std::span<const float> message : messages) weights.push_back(message.back());
  const table::Merge merge = merge_of(scheme, clock, rate, weights);
  if (merge.take.empty()) return {};
  rule.before_forward(layer);
  for (std::size_t t = 0; t < merge.take.size();) {
    std::size_t end = t;
    std::int64_t count = 0;
    do count += rows[merge.take[end++]];
    while (end < merge.take.size() && count + rows[merge.take[end]] <= kRowsTogether);
    top_grad.reshape({count, sizes.outputs});
    bottom.reshape({count, sizes.inputs});
    auto gradient = top_grad.host_out().begin(), data = bottom.host_out().begin();
    for (; t < end; ++t) {
      const auto numbers = messages[merge.take[t]];
      const auto split = static_cast<std::size_t>(rows[merge.take[t]] * sizes.outputs);
      gradient = std::ranges::transform(numbers.first(split), gradient,
                                        [scale = merge.weights[t] * merge.scale](float number) {
                                          return scale * number;
                                        })
                     .out;
      data = std::ranges::copy(numbers.subspan(split, numbers.size() - split - 1), data).out;
    }
    factored.add_gradients(context, top_grad, bottom);
  }
  rule.look(layer);
  due_rate = rate * merge.rate_scale;
  is_due = true;
  return check_finite(rule, str("the gradient of layer '", name,
                                "' that all workers' factors of clock ", clock, " make"));
}

FactorLayer::Messages FactorLayer::messages() const {
  Messages all(received.begin(), received.end());
  for (auto& message : all)
    if (message.empty()) message = sent.front().own->numbers();
  return all;
}

void FactorLayer::update(double squares) {
  if (std::exchange(is_due, false)) rule.update(sent.front().clock, due_rate, squares);
}

void FactorLayer::pop() {
  version = sent.front().clock + 1;
  sent.pop_front();
}

std::vector<Tensor*> FactorLayer::numbers() {
  return with_histories(net, learning_of(net, layer), rule.histories());
}

}  // namespace shoal::parallel
