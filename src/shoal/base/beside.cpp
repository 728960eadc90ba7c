#include "shoal/base/beside.h"

#include <filesystem>
#include <system_error>

#include "shoal/base/error.h"
#include "shoal/base/file.h"

namespace shoal {

std::string beside(const std::string& path, const std::string& file) {
  if (path.empty() || path.starts_with('/') || file_exists(path)) return "";
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  const std::string there = (folder / path).string();
  if (folder.empty() || !file_exists(there)) return "";
  std::error_code ignored;
  return str("; there is a ", there, ": paths are taken from the current folder, ",
             std::filesystem::current_path(ignored).string(), ", and not from that of ", file,
             ". Start in ", folder.string(), ", or write ", there);
}

std::string lacks_slash(const std::string& root, const std::string& path) {
  if (root.empty() || root.ends_with('/') || file_exists(root + path) ||
      !file_exists(root + "/" + path))
    return "";
  return str("there is no ", root, path, ", but a ", root, "/", path,
             ": a folder that is put before names needs a / at its end");
}

}  // namespace shoal
