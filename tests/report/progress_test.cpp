// The line that long work shows on a terminal.
#include <gtest/gtest.h>

#include "shoal/report/progress.h"

namespace shoal::test::report_progress_test {
namespace {

TEST(ReportProgress, Line) {
  EXPECT_EQ(progress_line("w", "images", 21000, 50000, 4.0),
            "w: 42 %, 21000 of 50000 images, 5250/s, 6 s left");
  EXPECT_EQ(progress_line("w", "records", 5, 0, 2.0), "w: 5 records, 2.5/s");
  EXPECT_EQ(progress_line("w", "records", 0, 10, 0), "w: 0 %, 0 of 10 records");
  EXPECT_EQ(progress_line("w", "records", 10, 10, 1), "w: 100 %, 10 of 10 records, 10/s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

TEST(ReportProgress, APipeStaysQuiet) {
  for (const bool shown : {false, true}) {
    testing::internal::CaptureStderr();
    {
      Progress progress("w", "images", 10, shown);
      for (std::uint64_t i = 0; i <= 10; ++i) progress.update(i);
    }
    // Work of a moment is not worth a line either.
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

}  // namespace
}  // namespace shoal::test::report_progress_test
