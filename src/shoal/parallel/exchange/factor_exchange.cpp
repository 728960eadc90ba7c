#include "shoal/parallel/exchange/factor_exchange.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "shoal/base/log.h"
#include "shoal/base/numbers.h"
#include "shoal/base/try.h"
#include "shoal/net/net.h"
#include "shoal/ops/vector.h"
#include "shoal/proto/solver.pb.h"

namespace shoal::parallel {
namespace {

using table::RowId;

Layers only(const Net& net, int layer) {
  Layers layers(net.layers().size());
  layers[layer] = true;
  return layers;
}

Factored& factored_of(const Net& net, int layer) {
  return dynamic_cast<Factored&>(*net.layers()[layer]);
}

// Returns the length of a message: both factors, and their weight.
std::size_t length_of(const Factored::Sizes& sizes) {
  return static_cast<std::size_t>(sizes.rows * (sizes.outputs + sizes.inputs)) + 1;
}

// Rows of the workers whose factors are multiplied together. Each product reads and writes the
// whole gradient, so there should be few; its rows are copied, so they should not be too many.
constexpr std::int64_t kRowsTogether = 512;

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

std::vector<RowId> add_message(const Factored::Sizes& sizes, int layer, std::size_t worker,
                               std::uint16_t server, RowId first, std::vector<table::Row>& rows) {
  std::vector<RowId> ids;
  std::size_t left = length_of(sizes);
  while (left > 0) {
    const std::size_t numbers = std::min<std::size_t>(left, table::kRowFloats);
    ids.push_back(first + static_cast<RowId>(rows.size()));
    rows.push_back({.length = static_cast<std::uint32_t>(numbers),
                    .priority = static_cast<std::uint32_t>(layer),
                    .server = server,
                    .learns = false,
                    .writer = static_cast<std::int32_t>(worker)});
    left -= numbers;
  }
  return ids;
}

// ---- a layer ----

FactorExchange::Part::Part(const TableSetup& setup, int of)
    : layer(of),
      name(setup.net.layers()[of]->name()),
      factored(factored_of(setup.net, of)),
      sizes(factored.factor_sizes()),
      passes(setup.param.iter_size()),
      replicas(setup.net.context().share().replicas),
      own_context(context_beside(setup)),
      context(own_context ? *own_context : setup.net.context()),
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

FactorExchange::Part::~Part() { factored.give_factors_to(nullptr); }

std::size_t FactorExchange::Part::length(std::size_t worker) const {
  return length_of({rows[worker], sizes.outputs, sizes.inputs});
}

// Appends a pass's rows behind those of the passes before it, and of the replicas before it. The
// gradient is the mean of the replicas'.
void FactorExchange::Part::take(int replica, const Tensor& gradient, const Tensor& data) {
  const std::int64_t all = sizes.rows * passes * replicas,
                     before = sizes.rows * (replica * passes + pass[replica]++);
  const auto at = own->numbers().begin();
  std::ranges::transform(
      gradient.host(), at + before * sizes.outputs,
      [share = 1 / static_cast<float>(replicas)](float number) { return share * number; });
  std::ranges::copy(data.host(), at + all * sizes.outputs + before * sizes.inputs);
}

// Takes other memory than the last, which a server in this process may still lend to others.
void FactorExchange::Part::begin(std::size_t worker) {
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
Status FactorExchange::Part::sum(const table::Scheme& scheme) {
  auto& [clock, rate, mine] = sent.front();
  const auto message = [&, own_numbers = mine->numbers()](std::size_t worker) {
    return std::span<const float>(received[worker].empty() ? own_numbers : received[worker]);
  };
  std::vector<float> weights;
  for (std::size_t worker = 0; worker < rows.size(); ++worker)
    weights.push_back(message(worker).back());
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
      const auto numbers = message(merge.take[t]);
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
  rate *= merge.rate_scale;
  is_due = true;
  return check_finite(rule, str("the gradient of layer '", name,
                                "' that all workers' factors of clock ", clock, " make"));
}

void FactorExchange::Part::update(double squares) {
  if (std::exchange(is_due, false)) rule.update(sent.front().clock, sent.front().rate, squares);
}

// ---- all of them ----

FactorExchange::FactorExchange(const TableSetup& setup, std::shared_ptr<TableSide> side)
    : side_(std::move(side)),
      timing_(factor_timing(setup.scheme.spec()).value_or(FactorTiming())),
      sum_(or_throw(timing_.sum.make())),
      own_(static_cast<std::size_t>(setup.table.worker())),
      clips_(setup.param.clip_gradients() >= 0) {
  for (std::size_t layer = 0; layer < setup.ways.size(); ++layer)
    if (setup.ways[layer] == Way::kFactors)
      parts_.push_back(std::make_unique<Part>(setup, static_cast<int>(layer)));
  if (!parts_.empty() && parts_.front()->own_context) beside_ = std::make_unique<WorkThread>();
  side_->add(*this);
}

FactorExchange::Part* FactorExchange::find(int layer) const {
  const auto found = std::ranges::find(parts_, layer, [](const auto& part) { return part->layer; });
  return found == parts_.end() ? nullptr : found->get();
}

std::vector<StateRow> FactorExchange::rows() {
  std::vector<StateRow> all;
  for (const auto& part : parts_) std::ranges::copy(part->rule.rows(), std::back_inserter(all));
  return all;
}

void FactorExchange::start_at(std::int64_t iteration, const std::vector<std::int64_t>&) {
  for (const auto& part : parts_) part->rule.start_at(iteration);
}

std::vector<Tensor*> FactorExchange::histories() {
  std::vector<Tensor*> all;
  for (const auto& part : parts_) add_histories(part->rule.histories(), all);
  return all;
}

// Counts, for each layer, one message of each other worker, at most 2 S + 2 own messages that
// others have yet to read, and the rows that are multiplied together.
std::size_t FactorExchange::most_memory() const {
  const auto own = static_cast<std::size_t>(2 * timing_.staleness + 2);
  std::size_t numbers = 0;
  for (const auto& part : parts_) {
    const std::int64_t together = std::min(std::reduce(part->rows.begin(), part->rows.end()),
                                           std::max(kRowsTogether, std::ranges::max(part->rows)));
    numbers += static_cast<std::size_t>(together * (part->sizes.outputs + part->sizes.inputs));
    for (std::size_t worker = 0; worker < part->rows.size(); ++worker)
      numbers += part->length(worker) * (worker == own_ ? own : 1);
  }
  return numbers * sizeof(float);
}

std::vector<table::Row> FactorExchange::rows(RowId first) {
  LOG(INFO) << "factors of " << parts_.size() << (parts_.size() == 1 ? " layer" : " layers")
            << " take up to " << static_cast<double>(most_memory()) / 1e6
            << " MB of memory in this process";
  first_ = first;
  pieces_.clear();
  std::vector<table::Row> rows;
  const std::vector<std::uint16_t> servers = servers_by_worker(side_->table.roster());
  for (const auto& part : parts_)
    for (std::size_t worker = 0; worker < part->rows.size(); ++worker) {
      const Factored::Sizes sizes{part->rows[worker], part->sizes.outputs, part->sizes.inputs};
      part->ids[worker] = add_message(sizes, part->layer, worker, servers[worker], first, rows);
      std::size_t offset = 0;
      for (const RowId row : part->ids[worker]) {
        pieces_.push_back({part.get(), worker, offset, rows[row - first].length});
        offset += pieces_.back().length;
      }
    }
  return rows;
}

table::Destination FactorExchange::destination(RowId row) {
  const Piece& piece = pieces_[row - first_];
  return std::span(piece.part->received[piece.worker]).subspan(piece.offset, piece.length);
}

Status FactorExchange::before_forward(int layer) {
  Part* const part = find(layer);
  if (!part) return {};
  const table::Clock clock = side_->iteration();
  TRY(update_before(*part, clock - timing_.staleness));
  // Returns once the server has the last message.
  TRY(side_->waits.wait(part->ids[own_]));
  part->begin(own_);
  if (part->sent.empty()) ask(*part, clock);
  return {};
}

void FactorExchange::ask(const Part& part, table::Clock clock) {
  for (std::size_t worker = 0; worker < part.ids.size(); ++worker)
    for (const RowId row : part.ids[worker])
      if (worker != own_) side_->table.get(row, clock + 1, table::Part::kWeights);
}

Status FactorExchange::after_backward(std::span<const int> layers) {
  for (const int layer : layers) {
    Part* const part = find(layer);
    if (!part) continue;
    const std::span<const float> own = part->own->numbers();
    finite_ = finite_ && all_finite(own.first(own.size() - 1));
    held_.push_back(part);
  }
  if (side_->sends_early && finite_) send_held();
  return {};
}

void FactorExchange::send_held() {
  for (Part* const part : held_) send(*part, side_->options.weight);
  held_.clear();
}

void FactorExchange::send(Part& part, float weight) {
  const table::Clock clock = side_->iteration();
  part.own->numbers().back() = weight;
  part.sent.push_back({clock, side_->rate(), part.own});
  const table::Values all = table::Buffer::lend(part.own);
  std::vector<table::Push> pushes;
  for (const RowId row : part.ids[own_]) {
    const Piece& piece = pieces_[row - first_];
    pushes.push_back(
        {.row = row,
         .clock = clock,
         .rate = side_->rate(),
         .payload = table::as_payload({all.data.subspan(piece.offset, piece.length), all.owner}),
         .finite = true});
  }
  side_->table.push(pushes);
}

// Sends a message of the same size at every clock. For a clip the gradients of all layers come
// before the first update.
Result<double> FactorExchange::hand_in(bool update) {
  if (!update) {
    held_.clear();
    for (const auto& part : parts_) {
      std::ranges::fill(part->own->numbers(), 0.0f);
      send(*part, 0);
    }
  }
  send_held();
  double squares = 0;
  for (const auto& part : parts_) {
    if (!clips_) break;
    TRY(gather(*part));
    squares += part->rule.gradients().squares;
  }
  return squares;
}

Status FactorExchange::apply(bool, double squares) {
  for (const auto& part : parts_)
    if (clips_) update(*part, squares);
  return {};
}

Status FactorExchange::settle(Settle) {
  for (const auto& part : parts_) TRY(update_before(*part, side_->next()));
  return {};
}

// Requires that the others' messages of the oldest clock in part.sent were asked for.
Status FactorExchange::gather(Part& part) {
  if (part.under_way.valid()) return part.under_way.get();
  for (const auto& rows : part.ids) TRY(side_->waits.wait(rows));
  return part.sum(*sum_);
}

bool FactorExchange::may_begin(const Part& part) const {
  return !part.sent.empty() &&
         part.sent.front().clock <= part.sent.back().clock - timing_.staleness &&
         std::ranges::all_of(part.ids, [this](const auto& rows) { return side_->table.has(rows); });
}

// Sends a layer's message of an iteration when its backward pass is over: nothing reads its params
// then until the next forward pass. One at a time, the lowest first, which is needed first: the
// solver's thread itself makes the others when it comes to them.
void FactorExchange::progress() {
  const auto is_busy = [](const auto& part) {
    return part->under_way.valid() &&
           part->under_way.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  if (!beside_ || std::ranges::any_of(parts_, is_busy)) return;
  const auto next = std::ranges::find_if(
      parts_, [this](const auto& part) { return !part->under_way.valid() && may_begin(*part); });
  if (next == parts_.end()) return;
  (*next)->under_way = beside_->give([this, &part = **next] {
    Status status = part.sum(*sum_);
    if (status.ok() && !clips_) part.update(0);
    return status;
  });
}

Status FactorExchange::update_before(Part& part, table::Clock end) {
  while (!part.sent.empty() && part.sent.front().clock < end) {
    TRY(gather(part));
    update(part, 0);
  }
  return {};
}

void FactorExchange::update(Part& part, double squares) {
  part.update(squares);
  part.sent.pop_front();
  if (!part.sent.empty()) ask(part, part.sent.front().clock);
}

}  // namespace shoal::parallel
