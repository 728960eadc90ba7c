// Names the parts of a divided source, one a client: <source>_0, <source>_1, ..., and
// <source>_parts.json, which lists them. See docs/reference/formats.md.
#pragma once

#include <string>

#include "shoal/base/error.h"

namespace shoal {

class PartsManifest;

// "<source>_<suffix>", whether or not `source` ends with a slash.
std::string part_path(const std::string& source, const std::string& suffix);
std::string parts_manifest_path(const std::string& source);

// Writes the manifest of `source` as JSON, whole or not at all. Errors are kData.
Status write_parts_manifest(const std::string& source, const PartsManifest& manifest);
// Returns false if there is none. Errors (kData) name the file: it is no JSON of a manifest, or of
// a version that is not known here.
Result<bool> read_parts_manifest(const std::string& source, PartsManifest& manifest);

}  // namespace shoal
