#include "shoal/parallel/allreduce.h"

#include <algorithm>

#include "shoal/base/log.h"

namespace shoal::parallel {

using table::RowId;

std::vector<table::Row> rows_of(Way way, std::size_t count, std::uint32_t priority,
                                std::span<const std::uint16_t> servers) {
  const int workers = static_cast<int>(servers.size());
  const std::vector<std::size_t> begins = strips_of(way, workers, count);
  std::vector<table::Row> rows;
  for (std::size_t strip = 0; strip + 1 < begins.size(); ++strip)
    for (const Transfer& one : transfers_of(way, workers, begins[strip + 1] - begins[strip]))
      rows.push_back({.length = static_cast<std::uint32_t>(one.count),
                      .priority = priority,
                      .server = servers[static_cast<std::size_t>(one.from)],
                      .learns = false,
                      .writer = one.from,
                      .reader = one.to});
  return rows;
}

Allreduce::Allreduce(table::Table& table, Way way, int workers, std::size_t count, RowId first)
    : table_(table),
      first_(first),
      strips_(steps_of(way, workers, count).at(static_cast<std::size_t>(table.worker()))),
      numbers_(count) {
  for (const Strip& strip : strips_)
    for (const Step& step : strip) {
      (step.sends ? sends_ : receives_).push_back(row_of(step));
      by_row_.resize(std::max(by_row_.size(), step.transfer + 1));
      by_row_[step.transfer] = &step;
      places_.resize(std::max(places_.size(), step.index + 1));
      places_[step.index] = received_.size();
      if (!step.sends && step.adds) received_.resize(received_.size() + step.count);
    }
  sent_.resize(places_.size());
}

// Numbers that are added must not meet the summand before their turn. Those that take its place
// may: this worker has sent all that it adds to them before, for it is in the sum that arrives.
std::span<float> Allreduce::destination(RowId row) {
  const Step* const step = by_row_[row - first_];
  CHECK(step != nullptr && !step->sends) << "row " << row << " is not for this worker";
  return std::span(step->adds ? received_ : numbers_)
      .subspan(step->adds ? places_[step->index] : step->first, step->count);
}

Status Allreduce::expect(table::Clock clock, RowWaits& waits) {
  if (Status status = waits.wait(sends_); !status.ok()) return status;
  clock_ = clock;
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

// The numbers are copied: links may still read them, for a connection that broke, when they change.
void Allreduce::send(const Step& step) {
  std::shared_ptr<table::Buffer>& buffer = sent_[step.index];
  if (!buffer || buffer->is_lent())
    buffer = std::make_shared<table::Buffer>(table_.memory(step.count), step.count);
  std::ranges::copy(std::span(numbers_).subspan(step.first, step.count), buffer->numbers().begin());
  table_.push({.row = row_of(step),
               .clock = clock_,
               .rate = 1,
               .payload = table::as_payload(table::Buffer::lend(buffer)),
               .finite = true});
}

void Allreduce::take(const Step& step) {
  if (!step.adds) return;  // it is in its place
  float* const sum = numbers_.data() + step.first;
  const float* const other = received_.data() + places_[step.index];
  for (std::size_t i = 0; i < step.count; ++i) sum[i] += other[i];
}

}  // namespace shoal::parallel
