#include "support/places.h"

#include <algorithm>
#include <cstdlib>

#include "shoal/base/log.h"

namespace shoal::test {

namespace fs = std::filesystem;

fs::path repository_root() {
  for (fs::path folder = fs::current_path();; folder = folder.parent_path()) {
    if (fs::exists(folder / "LICENSE") && fs::exists(folder / "Makefile")) return folder;
    CHECK(folder.has_relative_path())
        << "no LICENSE and Makefile from " << fs::current_path() << " upward";
  }
}

std::optional<fs::path> shared_folder() {
  const char* given = std::getenv("SHOAL_SHARED");
  const fs::path folder =
      given != nullptr ? fs::path(given) : repository_root().parent_path() / "shared";
  return fs::is_directory(folder) ? std::optional(folder) : std::nullopt;
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == extension) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace shoal::test
