// Finds files that are not where a file that names them says, but near it.
#pragma once

#include <string>

namespace shoal {

// "; there is a nets/x.prototxt: ..." for a `path` that leads nowhere from the current folder and
// somewhere from the folder of `file`, which names it; else "".
std::string beside(const std::string& path, const std::string& file);

// "there is no imga.png, but an img/a.png: a folder that is put before names needs a / at its end"
// if that is so of `root` + `path`; else "".
std::string lacks_slash(const std::string& root, const std::string& path);

}  // namespace shoal
