// Reads and writes the list of the parts of a divided source.
#include "shoal/data/parts.h"

#include <google/protobuf/util/json_util.h>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/proto/parts.pb.h"

namespace shoal {
namespace {

constexpr std::uint32_t kManifestVersion = 1;

}  // namespace

std::string part_path(const std::string& source, const std::string& suffix) {
  const std::size_t last = source.find_last_not_of('/');
  return (last == std::string::npos ? source : source.substr(0, last + 1)) + "_" + suffix;
}

std::string parts_manifest_path(const std::string& source) {
  return part_path(source, "parts.json");
}

Status write_parts_manifest(const std::string& source, const PartsManifest& manifest) {
  PartsManifest numbered = manifest;
  numbered.set_version(kManifestVersion);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  CHECK(google::protobuf::util::MessageToJsonString(numbered, &text, options).ok());
  return write_file(parts_manifest_path(source), text, Code::kData);
}

Result<bool> read_parts_manifest(const std::string& source, PartsManifest& manifest) {
  const std::string path = parts_manifest_path(source);
  if (!file_exists(path)) return false;
  Result<std::string> text = read_file(path, Code::kData);
  if (!text.ok()) return text.error();
  if (!google::protobuf::util::JsonStringToMessage(text.value(), &manifest).ok())
    return Error{Code::kData, path + " is not the JSON of a list of parts"};
  if (manifest.version() != kManifestVersion)
    return Error{Code::kData, str(path, " is of version ", manifest.version(),
                                  ", and this program knows version ", kManifestVersion)};
  return true;
}

}  // namespace shoal
