// Expectations of texts and Results.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "shoal/base/error.h"

#define EXPECT_HAS(text, part)                                                         \
  EXPECT_PRED2([](const std::string& t_,                                               \
                  const std::string& p_) { return t_.find(p_) != std::string::npos; }, \
               text, part)
#define ASSERT_OK(expression)                             \
  do {                                                    \
    const auto& result_ = (expression);                   \
    ASSERT_TRUE(result_.ok()) << result_.error().message; \
  } while (false)
#define EXPECT_FAILS_WITH(part, expression)    \
  do {                                         \
    const auto& result_ = (expression);        \
    ASSERT_FALSE(result_.ok());                \
    EXPECT_HAS(result_.error().message, part); \
  } while (false)

namespace shoal::test {

// The message of the ConfigError that `build` throws.
inline std::string message_of(const std::function<void()>& build) {
  try {
    build();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace shoal::test
