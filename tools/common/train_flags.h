// Training as the flags of the program train say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/run_job.h"

namespace shoal {

// Trains as the flags say that are set, with the words of the command line that are no flags.
// Returns the exit code; throws ConfigError.
int train_by_flags(const std::vector<std::string>& words, const TrainHooks& hooks);

// Trains as these words of a command line and the environment say, in a program with flags of its
// own: all are as before when it returns. One call at a time.
int train_by_words(std::span<const std::string> args, const TrainHooks& hooks);

}  // namespace shoal
