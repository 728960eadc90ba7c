// The flags of a tool that say the scheme of a job.
#pragma once

#include "shoal/parallel/merge_scheme.h"

namespace shoal {

// Reads every field of SchemeParameter, under its own name and under those that SpeeDO, MXNet-G and
// ESync have for it. docs/choosing-a-scheme.md explains them. Throws ConfigError for two names that
// differ.
parallel::SchemeFlags scheme_flags();
// Returns the field that a flag of these sets ("moving_rate" of movingRate); "": there is no such
// flag.
std::string scheme_field_of(const std::string& flag);

}  // namespace shoal
