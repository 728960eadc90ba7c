// The version of Shoal: what `--version` prints, `make install` writes into shoal.pc and the newest
// heading of CHANGELOG.md says.
#pragma once

namespace shoal {

inline constexpr const char* kVersion = "0.2.0";

}  // namespace shoal
