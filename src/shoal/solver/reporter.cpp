#include "shoal/solver/reporter.h"

#include <algorithm>
#include <cmath>
#include <iomanip>

#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"

namespace shoal {
namespace {

std::string clock_words(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  std::ostringstream out;
  out << whole / 3600 << ':' << std::setfill('0') << std::setw(2) << whole / 60 % 60 << ':'
      << std::setw(2) << whole % 60;
  return std::move(out).str();
}

// Returns " divided", or " divided as 4, 3, 3", where batches differ.
std::string divided(const std::vector<std::int64_t>& batches) {
  constexpr std::size_t kMost = 16;
  const auto [least, most] = std::ranges::minmax(batches);
  if (least == most) return " divided";
  if (batches.size() > kMost) return str(" divided as ", least, " to ", most);
  std::vector<std::string> words;
  for (const std::int64_t batch : batches) words.push_back(str(batch));
  return " divided as " + join(words);
}

double megabytes(std::size_t bytes) { return std::round(static_cast<double>(bytes) / 1e5) / 10; }

}  // namespace

void Reporter::report_start() {
  observed_ = or_throw(team_.share(options_.observer ? "yes" : "")) == "yes";
  const std::int64_t items = core_.items_per_update();
  const Share& share = options_.share;
  std::ostringstream line;
  if (options_.team || share.count() > 1) {
    line << "Batch "
         << (core_.whole_batch > 0 ? str(core_.whole_batch, divided(share.batches), " among")
                                   : str(batch_size(net_), " x"))
         << " workers " << share.clients << " x replicas " << share.replicas << ", x iter_size "
         << core_.recipe.iter_size << " = " << items << " items an update; ";
    if (options_.epoch > 0 && items > 0)
      line << "one epoch, " << options_.epoch << " records, is "
           << static_cast<double>(options_.epoch) / static_cast<double>(items) << " iterations; ";
    line << options_.averaging;
  } else {
    line << "Batch " << batch_size(net_) << " x iter_size " << core_.recipe.iter_size << " = "
         << items << " items an update, which takes the mean of their gradients";
  }
  LOG(INFO) << line.str() << "; " << options_.threads << " threads";
  std::size_t tests = 0;
  for (const auto& test_net : core_.test_nets) tests += test_net->memory().blobs;
  const NetMemory memory = net_.memory();
  LOG(INFO) << "Memory: params and their gradients " << megabytes(memory.params) << " MB, history "
            << megabytes(memory.params / 2 *
                         static_cast<std::size_t>(optim::histories(core_.recipe.rule.rule)))
            << " MB, blobs " << megabytes(memory.blobs) << " MB ("
            << megabytes(memory.blobs_unshared) << " MB without sharing), test nets' blobs "
            << megabytes(tests) << " MB";
  LOG(INFO) << "Solver scaffolding done.";
  started_at_ = shown_at_ = SolverCore::Clock::now();
}

void Reporter::start() {
  started_at_ = shown_at_ = SolverCore::Clock::now();
  if (options_.meter) options_.meter->start(progress_.iteration, net_);
  shown_iteration_ = progress_.iteration;
  away_seconds_ = 0;
}

double Reporter::seconds() const { return progress_.seconds_before + seconds_since(started_at_); }

void Reporter::display(bool counts) {
  if (!progress_.falls_on(param_.display())) return;
  if (counts) log_display();
  observe_display(counts);
}

void Reporter::log_display() {
  const double seconds = seconds_since(shown_at_);
  const auto iterations = static_cast<double>(progress_.iteration - shown_iteration_);
  LOG_IF(INFO, options_.log_displays)
      << "Iteration " << progress_.iteration << " ("
      << static_cast<float>(seconds > 0 ? iterations / seconds : 0) << " iter/s, "
      << static_cast<float>(seconds) << "s/" << param_.display()
      << " iters), loss = " << progress_.smoothed_loss();
  log_speed(seconds);
  int number = 0;
  for (const Blob* output : net_.outputs())
    for (const float value : output->data.host()) {
      const float weight = net_.loss_weight(*output);
      const std::string weighted =
          weight != 0 ? str(" (* ", weight, " = ", weight * value, " loss)") : "";
      LOG_IF(INFO, options_.log_displays) << "    Train net output #" << number++ << ": "
                                          << output->name << " = " << value << weighted;
    }
  LOG_IF(INFO, options_.log_displays)
      << "Iteration " << progress_.iteration << ", lr = " << progress_.rate;
  shown_at_ = SolverCore::Clock::now();
  shown_iteration_ = progress_.iteration;
  away_seconds_ = 0;
}

void Reporter::log_speed(double seconds) {
  const auto done =
      static_cast<double>(std::max<std::int64_t>(1, progress_.iteration - shown_iteration_));
  const double busy = std::max(1e-9, seconds - away_seconds_);
  const double waited = seconds_waited();
  const double data = std::clamp(waited - shown_wait_, 0.0, busy);
  std::string left;
  if (const std::int64_t so_far = progress_.iteration - progress_.started_iteration; so_far > 0) {
    const double each = seconds_since(started_at_) / static_cast<double>(so_far);
    left = str(clock_words(each * static_cast<double>(param_.max_iter() - progress_.iteration)),
               " left, ");
  }
  std::string rows;
  if (const std::optional<double> so_far = updater_.seconds_waited()) {
    const double seconds_for_rows = std::clamp(*so_far - shown_rows_wait_, 0.0, busy);
    rows = str(", rows ", std::lround(100 * seconds_for_rows / busy), "% wait");
    shown_rows_wait_ = *so_far;
    if (progress_.iteration > shown_iteration_)
      team_.note(progress_.iteration, {done, std::max(0.0, busy - data - seconds_for_rows), data,
                                       seconds_for_rows, away_seconds_});
  }
  LOG_IF(INFO, options_.log_displays)
      << "    " << std::round(10 * done * static_cast<double>(core_.items_per_update()) / busy) / 10
      << " images/s, " << left << "data " << std::lround(100 * data / busy) << "% wait" << rows;
  shown_wait_ = waited;
  if (progress_.iteration == progress_.started_iteration) return;  // the first batch
  if (const std::optional<double> slow = slow_data_.add(data, busy))
    LOG(WARNING) << "Data comes too slowly: " << std::lround(100 * *slow)
                 << "% of the time went into waiting for it. Records that are already "
                 << "of their final size and not encoded, a faster disk, or more cores for "
                    "decode_threads help";
}

void Reporter::mark(Meter::Mark mark) const {
  if (options_.meter)
    options_.meter->mark(mark, progress_.iteration, seconds_waited(),
                         updater_.seconds_waited().value_or(0));
}

double Reporter::seconds_waited() const {
  double seconds = 0;
  for (const auto& layer : net_.layers()) seconds += layer->seconds_waited();
  return seconds;
}

// Reports a display. Not `counts`: the iteration was left out, and other members, which wait for
// this member's row, have theirs without it.
void Reporter::observe_display(bool counts) {
  if (!observed_ || (!counts && !core_.in_team())) return;
  const double seconds = this->seconds();
  std::vector<double> numbers = {progress_.smoothed_loss()};
  for (const Blob* output : net_.outputs_of_one_size()) {
    const float weight = net_.loss_weight(*output);
    for (const float value : output->data.host())
      numbers.push_back(weight != 0 ? weight * value : value);
  }
  if (!core_.in_team())
    return options_.observer->displayed({progress_.iteration,
                                         seconds,
                                         numbers[0],
                                         {numbers.begin() + 1, numbers.end()},
                                         progress_.rate});
  if (!counts) std::ranges::fill(numbers, 0);
  team_.report(progress_.iteration, counts ? core_.own_items() : 0, numbers);
  if (!options_.observer) return;
  shown_[progress_.iteration] = {seconds, progress_.rate};
  pass_on_averages();
}

void Reporter::pass_on_averages() {
  for (const Team::Average& average : team_.take_averages()) {
    const auto shown = shown_.find(average.iteration);
    if (shown == shown_.end() || average.numbers.empty()) continue;
    options_.observer->displayed({average.iteration,
                                  shown->second.seconds,
                                  average.numbers[0],
                                  {average.numbers.begin() + 1, average.numbers.end()},
                                  shown->second.rate});
    shown_.erase(shown);
  }
}

void Reporter::tested(int index, const std::vector<TestScore>& scores, double loss) {
  if (!options_.observer) return;
  Measured row{progress_.iteration, seconds(), loss};
  for (const TestScore& score : scores) row.outputs.push_back(score.mean);
  pass_on_averages();  // all members have said theirs of before the test
  options_.observer->tested(index, row);
}

Status Reporter::end_observing() {
  if (!observed_ || !core_.in_team()) return {};
  double members[] = {1};
  // The others reach this sum after their last report.
  TRY(team_.sum(members));
  if (options_.observer) pass_on_averages();
  return {};
}

}  // namespace shoal
