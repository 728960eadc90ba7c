#include "common/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "shoal/base/error.h"
#include "shoal/report/progress.h"

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws{200};
constexpr double kSecondsOfRate = 10;  // after which the rate is counted anew
constexpr std::size_t kBar = 20;       // columns

// A line of the log is written where the cursor stands, at the start of a line; the bar is on the
// line below. So the log needs to know nothing of the bar.
constexpr const char* kClearLine = "\033[2K";
constexpr const char* kUp = "\033[1A\r";

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.3g" : "%.0f", value);
  return text;
}

void write_to_terminal(const std::string& text) {
  // A terminal that takes nothing shows nothing.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

std::string bar_line(const BarNumbers& numbers, std::size_t width) {
  const double part = numbers.max_iter > 0 ? std::clamp(static_cast<double>(numbers.iteration) /
                                                            static_cast<double>(numbers.max_iter),
                                                        0.0, 1.0)
                                           : 0;
  const auto full = static_cast<std::size_t>(part * static_cast<double>(kBar));
  std::string line = str('[', std::string(full, '#'), std::string(kBar - full, '.'), "] ",
                         static_cast<int>(100 * part), " %  iteration ", numbers.iteration, " of ",
                         numbers.max_iter);
  if (numbers.rate > 0) line += str(", ", rounded(numbers.rate), "/s");
  if (numbers.loss) line += str(", loss ", rounded(*numbers.loss));
  if (numbers.test_accuracy) line += str(", accuracy ", rounded(*numbers.test_accuracy));
  if (numbers.rate > 0 && numbers.max_iter > numbers.iteration)
    line +=
        str(", ",
            duration_text(static_cast<double>(numbers.max_iter - numbers.iteration) / numbers.rate),
            " left");
  if (numbers.presence)
    line += str(", ", numbers.presence->taking_part,
                numbers.presence->taking_part == 1 ? " worker" : " workers");
  if (line.size() > width) line.resize(width);
  return line;
}

ProgressBar::ProgressBar(std::int64_t max_iter, std::size_t width,
                         std::function<void(const std::string&)> write)
    : width_(width), write_(write ? std::move(write) : write_to_terminal) {
  {
    const MutexLock lock(mutex_);
    numbers_.max_iter = max_iter;
  }
  google::AddLogSink(this);
}

ProgressBar::~ProgressBar() {
  google::RemoveLogSink(this);
  const MutexLock lock(mutex_);
  if (shown_) write_(str('\n', kClearLine, kUp));
}

Status ProgressBar::add(const MetricsRecord& record) {
  const MutexLock lock(mutex_);
  if (const auto* clock = std::get_if<ClockMetrics>(&record)) {
    numbers_.iteration = clock->clock + 1;
    if (!rate_since_)
      rate_since_ = clock->time;
    else
      ++counted_;
    const double seconds = clock->time - *rate_since_;
    if (counted_ > 0 && seconds > 0.5) numbers_.rate = static_cast<double>(counted_) / seconds;
    if (seconds > kSecondsOfRate) rate_since_ = clock->time, counted_ = 0;
  } else if (const auto* score = std::get_if<ScoreMetrics>(&record)) {
    const bool is_test = score->kind == ScoreMetrics::Kind::kTest;
    if (!is_test) numbers_.loss = score->loss;
    if (score->presence) numbers_.presence = score->presence;
    if (is_test && score->net == 0)
      for (const auto& [name, value] : score->outputs)
        if (name.find("accuracy") != std::string::npos) {
          numbers_.test_accuracy = value;
          break;
        }
  }
  if (Clock::now() - drawn_ >= kBetweenDraws) draw();
  return {};
}

// Is called after each line of the log.
void ProgressBar::send(google::LogSeverity, const char*, const char*, int,
                       const google::LogMessageTime&, const char*, std::size_t) {
  const MutexLock lock(mutex_);
  // The cursor is on the bar's line now.
  if (!shown_) return;
  write_(kClearLine);
  draw();
}

void ProgressBar::draw() {
  drawn_ = Clock::now();
  shown_ = true;
  write_(str('\n', kClearLine, bar_line(numbers_, width_), kUp));
}

}  // namespace shoal
