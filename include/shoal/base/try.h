// Hands an error on to the caller.
#pragma once

// Evaluates to nothing where the Status or Result is ok; otherwise returns its error from the
// function that this stands in.
#define TRY(...)                                                              \
  do {                                                                        \
    if (const auto& tried = (__VA_ARGS__); !tried.ok()) return tried.error(); \
  } while (false)
