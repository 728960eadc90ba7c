// Finds files that are not of the tests' own making.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal::test {

// The nearest folder from the current one upward that holds both LICENSE and Makefile; fails the
// run if there is none.
std::filesystem::path repository_root();

// Reference data too large for the repository: $SHOAL_SHARED, else ../shared beside the repository.
// Nothing if it is not there.
std::optional<std::filesystem::path> shared_folder();

// The files of `folder` that end in `extension` (".json"), sorted by name; none if there is no such
// folder.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                            const std::string& extension);

}  // namespace shoal::test
