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
#include "shoal/table/codec.h"

namespace shoal::parallel {

using table::RowId;

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
  done_ = iteration;
  for (const auto& part : parts_) {
    part->rule.start_at(iteration);
    part->version = iteration;
  }
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
      const std::uint8_t codec = side_->codec_number(part->codec);
      std::size_t offset = 0;
      for (const RowId row : part->ids[worker]) {
        rows[row - first].push_codec = rows[row - first].pull_codec = codec;
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
  if (const auto codec = table::make_codec(part.codec)) round_as(*codec, part.own->numbers());
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
  done_ = side_->next();
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
  return part.sum(*sum_, part.messages());
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
    Status status = part.sum(*sum_, part.messages());
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
  part.pop();
  if (!part.sent.empty()) ask(part, part.sent.front().clock);
}

// ---- after an interruption ----

// Completes what the work thread has begun; a gradient that waits for a clip is forgotten, since
// its factors are still there.
Result<Recoverable::Standing> FactorExchange::interrupt() {
  Standing standing{.done = done_};
  for (const auto& part : parts_) {
    if (part->under_way.valid()) {
      TRY(part->under_way.get());
      if (!clips_) part->pop();
    }
    if (std::exchange(part->is_due, false)) part->rule.skip();
    standing.versions.push_back(side_->has_numbers(done_) ? part->version : kNothing);
  }
  return standing;
}

void FactorExchange::give_unit(std::size_t unit, std::string& out) {
  for (Tensor* const tensor : parts_[unit]->numbers()) put_numbers(tensor->host(), out);
}

Status FactorExchange::take_unit(std::size_t unit, std::int64_t version, std::string_view bytes) {
  Part& part = *parts_[unit];
  for (Tensor* const tensor : part.numbers()) TRY(get_numbers(bytes, tensor->host_mut()));
  while (!part.sent.empty() && part.sent.front().clock < version) part.sent.pop_front();
  part.version = version;
  return {};
}

void FactorExchange::give_part(std::size_t unit, std::int64_t iteration, std::string& out) {
  const auto& sent = parts_[unit]->sent;
  const auto found = std::ranges::find(sent, iteration, &FactorLayer::Sent::clock);
  CHECK(found != sent.end()) << "factors of iteration " << iteration << " are not kept";
  put_numbers(found->own->numbers(), out);
}

// A lost worker's factors weigh nothing. The messages have memory of their own: others may still
// arrive.
Result<double> FactorExchange::sum_parts(std::size_t unit, std::int64_t iteration,
                                         std::span<const std::string_view> parts) {
  Part& part = *parts_[unit];
  CHECK(!part.sent.empty() && part.sent.front().clock == iteration)
      << "factors of iteration " << iteration << " are not the oldest";
  std::vector<std::vector<float>> numbers(part.rows.size());
  for (std::size_t worker = 0; worker < numbers.size(); ++worker) {
    std::string_view bytes = worker < parts.size() ? parts[worker] : std::string_view();
    numbers[worker].resize(bytes.empty() ? 1 : part.length(worker));
    if (!bytes.empty()) TRY(get_numbers(bytes, numbers[worker]));
  }
  TRY(part.sum(*sum_, {numbers.begin(), numbers.end()}));
  return clips_ && part.is_due ? part.rule.gradients().squares : 0;
}

void FactorExchange::update_unit(std::size_t unit, double squares) {
  parts_[unit]->update(squares);
  parts_[unit]->pop();
}

}  // namespace shoal::parallel
