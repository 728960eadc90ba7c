// What the solver says while it trains. Caffe's lines are kept to the letter: scripts read them.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>

#include "shoal/base/log.h"
#include "shoal/solver/recipe.h"
#include "shoal/solver/solver.h"

namespace shoal {
namespace {

constexpr double kMuchWaiting = 0.1;  // of the time

std::string clock_words(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  std::ostringstream out;
  out << whole / 3600 << ':' << std::setfill('0') << std::setw(2) << whole / 60 % 60 << ':'
      << std::setw(2) << whole % 60;
  return std::move(out).str();
}

double megabytes(std::size_t bytes) { return std::round(static_cast<double>(bytes) / 1e5) / 10; }

}  // namespace

std::int64_t batch_size(const Net& net) {
  for (int i = 0; i < static_cast<int>(net.layers().size()); ++i)
    if (net.bottoms(i).empty() && !net.tops(i).empty() && net.tops(i)[0]->shape().axes() > 0)
      return net.tops(i)[0]->shape()[0];
  return 0;
}

std::int64_t Solver::items_per_update() const {
  return (whole_batch_ > 0 ? whole_batch_ : batch_size(*net_) * options_.share.count()) *
         recipe_->iter_size;
}

double Solver::own_items() const {
  return weight_ * static_cast<double>(items_per_update()) / options_.share.clients;
}

void Solver::report_start() const {
  const std::int64_t items = items_per_update();
  const Share& share = options_.share;
  std::ostringstream line;
  if (options_.team || share.count() > 1) {
    line << "Batch "
         << (whole_batch_ > 0 ? str(whole_batch_, " divided among") : str(batch_size(*net_), " x"))
         << " workers " << share.clients << " x replicas " << share.replicas << ", x iter_size "
         << recipe_->iter_size << " = " << items << " items an update; ";
    if (options_.epoch > 0 && items > 0)
      line << "one epoch, " << options_.epoch << " records, is "
           << static_cast<double>(options_.epoch) / static_cast<double>(items) << " iterations; ";
    line << options_.averaging;
  } else {
    line << "Batch " << batch_size(*net_) << " x iter_size " << recipe_->iter_size << " = " << items
         << " items an update, of whose gradients the mean is taken";
  }
  LOG(INFO) << line.str() << "; " << options_.threads << " threads";
  std::size_t tests = 0;
  for (const auto& test_net : test_nets_) tests += test_net->memory().blobs;
  const NetMemory memory = net_->memory();
  LOG(INFO) << "Memory: params and their gradients " << megabytes(memory.params) << " MB, history "
            << megabytes(memory.params / 2 *
                         static_cast<std::size_t>(optim::histories(recipe_->rule.rule)))
            << " MB, blobs " << megabytes(memory.blobs) << " MB ("
            << megabytes(memory.blobs_unshared) << " MB without sharing), test nets' blobs "
            << megabytes(tests) << " MB";
  LOG(INFO) << "Solver scaffolding done.";
}

void Solver::note_loss(float loss) {
  recent_losses_.push_back(loss);
  while (recent_losses_.size() > static_cast<std::size_t>(param_->average_loss()))
    recent_losses_.pop_front();
}

float Solver::smoothed_loss() const {
  if (recent_losses_.empty()) return 0;
  return static_cast<float>(std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0) /
                            static_cast<double>(recent_losses_.size()));
}

void Solver::display() {
  const double seconds = std::chrono::duration<double>(Clock::now() - shown_at_).count();
  const auto iterations = static_cast<double>(iteration_ - shown_iteration_);
  LOG(INFO) << "Iteration " << iteration_ << " ("
            << static_cast<float>(seconds > 0 ? iterations / seconds : 0) << " iter/s, "
            << static_cast<float>(seconds) << "s/" << param_->display()
            << " iters), loss = " << smoothed_loss();
  display_speed(seconds);
  int number = 0;
  for (const Blob* output : net_->outputs())
    for (const float value : output->data.host()) {
      const float weight = net_->loss_weight(*output);
      const std::string weighted =
          weight != 0 ? str(" (* ", weight, " = ", weight * value, " loss)") : "";
      LOG(INFO) << "    Train net output #" << number++ << ": " << output->name << " = " << value
                << weighted;
    }
  LOG(INFO) << "Iteration " << iteration_ << ", lr = " << rate_;
  shown_at_ = Clock::now();
  shown_iteration_ = iteration_;
  away_seconds_ = 0;
}

void Solver::display_speed(double seconds) {
  const auto done = static_cast<double>(std::max<std::int64_t>(1, iteration_ - shown_iteration_));
  const double busy = std::max(1e-9, seconds - away_seconds_);
  const double waited = seconds_waited();
  const double data = std::clamp(waited - shown_wait_, 0.0, busy);
  const double share = data / busy;
  std::string left;
  if (const std::int64_t so_far = iteration_ - started_iteration_; so_far > 0) {
    const double each = std::chrono::duration<double>(Clock::now() - started_at_).count() /
                        static_cast<double>(so_far);
    left = str(clock_words(each * static_cast<double>(param_->max_iter() - iteration_)), " left, ");
  }
  std::string rows;
  if (const std::optional<double> so_far = updater_->seconds_waited()) {
    const double seconds_for_rows = std::clamp(*so_far - shown_rows_wait_, 0.0, busy);
    rows = str(", rows ", std::lround(100 * seconds_for_rows / busy), "% wait");
    shown_rows_wait_ = *so_far;
    if (iteration_ > shown_iteration_)
      team().note(iteration_, {done, std::max(0.0, busy - data - seconds_for_rows), data,
                               seconds_for_rows, away_seconds_});
  }
  LOG(INFO) << "    " << std::round(10 * done * static_cast<double>(items_per_update()) / busy) / 10
            << " images/s, " << left << "data " << std::lround(100 * share) << "% wait" << rows;
  if (share > kMuchWaiting && iteration_ > started_iteration_ && !warned_of_waiting_) {
    warned_of_waiting_ = true;
    LOG(WARNING) << "Data is the bottleneck: " << std::lround(100 * share)
                 << "% of the time went into waiting for it. Records that are already "
                 << "of their final size and not encoded, a faster disk, or more cores for "
                    "decode_threads help";
  }
  shown_wait_ = waited;
}

void Solver::mark(Meter::Mark mark) const {
  if (options_.meter)
    options_.meter->mark(mark, iteration_, seconds_waited(),
                         updater_->seconds_waited().value_or(0));
}

double Solver::seconds_waited() const {
  double seconds = 0;
  for (const auto& layer : net_->layers()) seconds += layer->seconds_waited();
  return seconds;
}

}  // namespace shoal
