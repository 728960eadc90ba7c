#include "shoal/parallel/sums/allreduce.h"

#include <algorithm>

#include "shoal/base/log.h"
#include "shoal/base/try.h"
#include "shoal/table/update.h"

namespace shoal::parallel {

using table::RowId;

std::vector<table::Row> rows_of(Way way, std::size_t count, std::uint32_t priority,
                                std::span<const std::uint16_t> servers, std::uint8_t codec) {
  const int workers = static_cast<int>(servers.size());
  const std::vector<std::size_t> begins = strips_of(way, workers, count);
  std::vector<table::Row> rows;
  for (std::size_t strip = 0; strip + 1 < begins.size(); ++strip)
    for (const Transfer& one : transfers_of(way, workers, begins[strip + 1] - begins[strip]))
      rows.push_back({.length = static_cast<std::uint32_t>(one.count),
                      .priority = priority,
                      .server = servers[one.from],
                      .learns = false,
                      .push_codec = codec,
                      .pull_codec = codec,
                      .writer = one.from,
                      .reader = one.to});
  return rows;
}

Allreduce::Allreduce(table::Table& table, Way way, int workers, std::size_t count, RowId first,
                     const table::CodecSpec& codec)
    : table_(table),
      first_(first),
      codec_(table::make_codec(codec)),
      strips_(steps_of(way, workers, count).at(static_cast<std::size_t>(table.worker()))),
      count_(count) {
  for (const Strip& strip : strips_)
    for (const Step& step : strip) {
      (step.sends ? sends_ : receives_).push_back(row_of(step));
      by_row_.resize(std::max(by_row_.size(), step.transfer + 1));
      by_row_[step.transfer] = &step;
      received_.resize(std::max(received_.size(), step.index + 1));
      if (!step.sends && step.adds) longest_ = std::max(longest_, step.count);
    }
  renew();
}

// Takes other memory for a clock, since links may still read the last clock's numbers, for a worker
// that is late.
void Allreduce::renew() {
  const auto found = std::ranges::find_if(used_, [](const auto& one) { return !one->is_lent(); });
  if (found != used_.end()) {
    numbers_ = *found;
    return;
  }
  numbers_ = std::make_shared<table::Buffer>(table_.memory(count_), count_);
  std::ranges::fill(numbers_->numbers(), 0.0f);
  used_.push_back(numbers_);
}

// Returns the place for a row. Numbers that are added must not meet the summand before their turn.
// Those that replace it may: this worker has sent all that it adds to them before, for it is in the
// sum that arrives.
table::Destination Allreduce::destination(RowId row) {
  const Step* const step = by_row_[row - first_];
  CHECK(step != nullptr && !step->sends) << "row " << row << " is not for this worker";
  if (!step->adds) return numbers().subspan(step->first, step->count);
  auto& [values, memory] = received_[step->index];
  if (!memory) {
    MutexLock lock(mutex_);
    if (free_.empty()) free_.push_back(std::make_unique_for_overwrite<float[]>(longest_));
    memory = std::move(free_.back());
    free_.pop_back();
  }
  return {{memory.get(), step->count}, &values};
}

Status Allreduce::expect(table::Clock clock, RowWaits& waits) {
  TRY(waits.wait(sends_));
  clock_ = clock;
  renew();
  for (const RowId row : receives_) table_.get(row, clock + 1, table::Part::kWeights);
  return {};
}

void Allreduce::start() {
  done_.restart();
  progress();
}

void Allreduce::progress() {
  done_.advance([this](const Step& step) {
    if (step.sends) {
      send(step);
      return true;
    }
    const RowId row = row_of(step);
    if (!table_.has({&row, 1})) return false;
    take(step);
    return true;
  });
}

Status Allreduce::wait(RowWaits& waits) {
  const RowId row = row_of(done_.awaited());
  return waits.wait({&row, 1});
}

// Sends the numbers in place. A sum is rounded first, so that this worker has what the others get.
// They change again when a sum that contains them replaces them, so
// that the reader has them, or at another clock, which has other memory if they are still lent.
void Allreduce::send(const Step& step) {
  if (codec_ && !step.adds) round_as(*codec_, numbers().subspan(step.first, step.count));
  table::Values numbers = table::Buffer::lend(numbers_);
  numbers.data = numbers.data.subspan(step.first, step.count);
  table_.push({.row = row_of(step),
               .clock = clock_,
               .rate = 1,
               .payload = table::as_payload(numbers),
               .finite = true});
}

// Takes a transfer. Transfers that add to the same numbers are added together when all are there:
// the numbers are read and written once.
void Allreduce::take(const Step& step) {
  if (!step.adds || step.more) return;  // others are in their place
  const auto received = std::span(received_).subspan(step.index - step.together, step.together + 1);
  std::vector<table::Term> terms;
  for (const Received& one : received) terms.push_back({.values = one.values.data.data()});
  float* const sum = numbers().data() + step.first;
  table::add_to_row(1, step.count, terms, {sum, sum});
  for (Received& one : received) one.values = {};
  MutexLock lock(mutex_);
  for (Received& one : received) free_.push_back(std::move(one.memory));
}

}  // namespace shoal::parallel
