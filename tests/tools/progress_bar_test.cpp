// The line at the bottom of the terminal: what it says, and that the log stays whole above it.
#include "common/progress_bar.h"

#include <gtest/gtest.h>

namespace shoal::test::progress_bar_test {
namespace {

TEST(ProgressBar, SaysWhatIsKnown) {
  EXPECT_EQ(bar_line({.iteration = 0, .max_iter = 10}, 200),
            "[....................] 0 %  iteration 0 of 10");
  EXPECT_EQ(bar_line({.iteration = 5200,
                      .max_iter = 10000,
                      .rate = 320,
                      .loss = 0.01234,
                      .test_accuracy = 0.9876,
                      .presence = {{.alive = 4, .taking_part = 3, .committed = 0}}},
                     200),
            "[##########..........] 52 %  iteration 5200 of 10000, 320/s, loss 0.0123, accuracy "
            "0.988, 15 s left, 3 workers");
  EXPECT_EQ(bar_line({.iteration = 12, .max_iter = 10, .rate = 2}, 200),
            "[####################] 100 %  iteration 12 of 10, 2/s");
  EXPECT_EQ(bar_line({.iteration = 1, .max_iter = 10}, 8), "[##.....");
}

// A terminal as far as the bar uses one: lines, a cursor, and the three sequences.
class Screen {
 public:
  void write(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 4, "\033[2K") == 0)
        lines_.at(row_).clear(), i += 3;
      else if (text.compare(i, 4, "\033[1A") == 0)
        --row_, i += 3;
      else if (text[i] == '\r')
        column_ = 0;
      else if (text[i] == '\n')
        lines_.resize(std::max(lines_.size(), ++row_ + 1)), column_ = 0;
      else
        put(text[i]);
    }
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> shown = lines_;
    while (!shown.empty() && shown.back().empty()) shown.pop_back();
    return shown;
  }

 private:
  void put(char c) {
    std::string& line = lines_.at(row_);
    line.resize(std::max(line.size(), column_ + 1), ' ');
    line[column_++] = c;
  }
  std::vector<std::string> lines_{""};
  std::size_t row_ = 0, column_ = 0;
};

TEST(ProgressBar, StandsBelowTheLogAndGoesAway) {
  Screen screen;
  {
    ProgressBar bar(10, 100, [&](const std::string& text) { screen.write(text); });
    (void)bar.add(ClockMetrics{.clock = 0, .time = 1});
    EXPECT_EQ(screen.lines(),
              (std::vector<std::string>{"", "[##..................] 10 %  iteration 1 of 10"}));
    // The log writes a line where the cursor stands, and then calls its sinks.
    for (const char* line : {"first line", "second"}) {
      screen.write(std::string(line) + "\n");
      LOG(INFO) << line;
    }
    EXPECT_EQ(screen.lines(),
              (std::vector<std::string>{"first line", "second", "",
                                        "[##..................] 10 %  iteration 1 of 10"}));
  }
  EXPECT_EQ(screen.lines(), (std::vector<std::string>{"first line", "second"}));
}

}  // namespace
}  // namespace shoal::test::progress_bar_test
