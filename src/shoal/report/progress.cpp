#include "shoal/report/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "shoal/base/error.h"

namespace shoal {

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return str(whole, " s");
  if (whole < 3600) return str(whole / 60, " min ", whole % 60, " s");
  return str(whole / 3600, " h ", whole / 60 % 60, " min");
}

std::string progress_line(const std::string& work, const std::string& unit, std::uint64_t done,
                          std::uint64_t total, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = work + ": ";
  if (total > 0)
    line += str(done * 100 / total, " %, ", done, " of ", total, " ", unit);
  else
    line += str(done, " ", unit);
  const double shown = rate < 10 ? std::floor(rate * 10) / 10 : std::floor(rate);
  if (rate > 0) line += str(", ", static_cast<std::int64_t>(shown));
  if (rate > 0 && rate < 10) line += str(".", static_cast<std::int64_t>(shown * 10 + 0.5) % 10);
  if (rate > 0) line += "/s";
  if (rate > 0 && total > done)
    line += str(", ", duration_text(static_cast<double>(total - done) / rate), " left");
  return line;
}

bool progress_shown() { return ::isatty(STDERR_FILENO) == 1; }

Progress::Progress(std::string work, std::string unit, std::uint64_t total, bool shown)
    : work_(std::move(work)),
      unit_(std::move(unit)),
      total_(total),
      shown_(shown),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (!written_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::update(std::uint64_t done) {
  if (!shown_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_ < std::chrono::milliseconds(200)) return;
  last_ = now;
  written_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r\033[K%s", progress_line(work_, unit_, done, total_, seconds).c_str());
  std::fflush(stderr);
}

}  // namespace shoal
