// Reads a text list of pictures and labels.
#include "shoal/data/image_list.h"

#include <charconv>
#include <string_view>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/data/backends.h"

namespace shoal {
namespace {

bool is_number(std::string_view word) {
  double value = 0;
  const auto [end, bad] = std::from_chars(word.data(), word.data() + word.size(), value);
  return bad == std::errc() && end == word.data() + word.size();
}

// Returns whether what should be a path is "a.png 0": a file with an ending, then a number. Paths
// may have blanks in them, as "no 7.png" does.
bool looks_like_labels(std::string_view name) {
  const std::size_t blank = name.find_last_of(" \t");
  if (blank == std::string_view::npos || !is_number(name.substr(blank + 1))) return false;
  const std::string_view first = name.substr(0, name.find_first_of(" \t"));
  return first.find('.') != std::string_view::npos;
}

Result<ListedImage> parse(std::string_view line, const std::string& path, std::uint64_t number) {
  const auto error = [&](const std::string& what) {
    return Error{Code::kData, str(path, ":", number, ": ", what, "; a line is \"path label\": \"",
                                  line.substr(0, 120), "\"")};
  };
  const std::size_t last = line.find_last_not_of(" \t");
  line = line.substr(0, last + 1);
  const std::size_t blank = line.find_last_of(" \t");
  if (blank == std::string_view::npos) return error("no label");
  const std::string_view name = line.substr(0, line.find_last_not_of(" \t", blank) + 1),
                         digits = line.substr(blank + 1);
  if (name.empty()) return error("no path");
  if (looks_like_labels(name))
    return error(
        "more than one number follows the path, and a record has one label; several go into an "
        "HDF5 file, which HDF5Data reads");
  ListedImage image{std::string(name), 0, number};
  const auto [end, bad] =
      std::from_chars(digits.data(), digits.data() + digits.size(), image.label);
  if (bad != std::errc() || end != digits.data() + digits.size())
    return error(str("the label \"", digits, "\" is no whole number"));
  return image;
}

}  // namespace

Result<std::vector<ListedImage>> read_image_list(const std::string& path) {
  const std::string hint = kind_hint(path);
  if (!hint.empty()) return Error{Code::kData, str(path, " is no list of images", hint)};
  Result<std::string> text = read_list(path, Code::kData);
  if (!text.ok()) return text.error();
  std::vector<ListedImage> images;
  std::string_view rest = text.value();
  for (std::uint64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    Result<ListedImage> image = parse(line, path, number);
    if (!image.ok()) return image.error();
    images.push_back(std::move(image).value());
  }
  if (images.empty()) return Error{Code::kData, str("the list ", path, " names no images")};
  return images;
}

}  // namespace shoal
