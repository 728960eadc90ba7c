// The sizes of pictures that a list names, as SSD's layers read them.
#include <gflags/gflags.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "common/conversion.h"
#include "common/pictures.h"
#include "common/tool.h"
#include "shoal/base/file.h"
#include "shoal/data/image.h"

DEFINE_string(name_id_file, "", "file of \"name number\" lines: pictures go by their numbers");
DEFINE_int32(threads, 0, "threads that decode; 0: one a core");

namespace shoal {
namespace {

std::vector<std::string> first_words(const std::string& list) {
  std::istringstream lines(or_throw(read_file(list, Code::kData)));
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string word;
    if (in >> word) words.push_back(word);
  }
  if (words.empty()) throw ConfigError(Code::kData, list, " names no pictures");
  return words;
}

std::map<std::string, std::string> read_ids(const std::string& path) {
  std::map<std::string, std::string> ids;
  if (path.empty()) return ids;
  std::istringstream words(or_throw(read_file(path, Code::kData)));
  for (std::string name, id; words >> name >> id;) ids[name] = id;
  return ids;
}

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 3, 3, "get_image_size [flags] ROOT/ LIST FILE");
  const std::vector<std::string> pictures = first_words(words[1]);
  const std::map<std::string, std::string> ids = read_ids(FLAGS_name_id_file);
  check_root(words[0], pictures[0]);
  std::vector<std::string> lines(pictures.size()), troubles(pictures.size());
  for_each_on(FLAGS_threads, pictures.size(), [&](std::size_t i) {
    const Result<Image> image = read_image(words[0] + pictures[i], Colour::kAsStored, 0, 0);
    std::string name = std::filesystem::path(pictures[i]).stem().string();
    const auto id = ids.find(name);
    if (!image.ok())
      troubles[i] = image.error().message;
    else if (!FLAGS_name_id_file.empty() && id == ids.end())
      troubles[i] = str("'", name, "' is not in ", FLAGS_name_id_file);
    if (!troubles[i].empty()) return;
    if (id != ids.end()) name = id->second;
    lines[i] = str(name, " ", image.value().size.height, " ", image.value().size.width, "\n");
  });
  std::string all;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    if (!troubles[i].empty()) throw ConfigError(Code::kData, troubles[i]);
    all += lines[i];
  }
  const Status written = write_file(words[2], all, Code::kData);
  if (!written.ok()) throw ConfigError(Code::kData, written.error().message);
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(
      argc, argv,
      "get_image_size [flags] ROOT/ LIST FILE\n\n"
      "Writes a line \"name height width\" to FILE for the picture that each line of LIST begins "
      "with, its path put after ROOT/.\n"
      "The name is the picture's, without folder and ending. DetectionOutput and "
      "DetectionEvaluate read FILE as name_size_file.",
      shoal::body);
}
