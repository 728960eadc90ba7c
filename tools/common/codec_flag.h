// Reads --codec.
#pragma once

#include <string>

namespace shoal {

class SolverParameter;

// Adds what the flag says, "push=topk:0.01:8,pull=bf16,fc8.push=float32" or "AUTO:sparse", to a
// solver. Throws ConfigError (kUsage).
void merge_codec(const std::string& flag, SolverParameter& param);

}  // namespace shoal
