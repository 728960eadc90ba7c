// Shows how far long work has come: one line on a terminal that is written over and over, nothing
// at all in a pipe or a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace shoal {

// "convert_imageset: 42 %, 21000 of 50000 images, 5200/s, 6 s left"; without per cent and time left
// if `total` is 0 (not known).
std::string progress_line(const std::string& work, const std::string& unit, std::uint64_t done,
                          std::uint64_t total, double seconds);

// "6 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds);

// Returns whether progress is shown: stderr is a terminal.
bool progress_shown();

class Progress {
 public:
  // `unit` in the plural: "images".
  Progress(std::string work, std::string unit, std::uint64_t total)
      : Progress(std::move(work), std::move(unit), total, progress_shown()) {}
  Progress(std::string work, std::string unit, std::uint64_t total, bool shown);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  void update(std::uint64_t done);  // cheap: writes five times a second at most

 private:
  using Clock = std::chrono::steady_clock;
  std::string work_, unit_;
  std::uint64_t total_;
  bool shown_, written_ = false;
  Clock::time_point start_, last_;
};

}  // namespace shoal
