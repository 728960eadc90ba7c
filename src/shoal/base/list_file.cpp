#include "shoal/base/list_file.h"

#include <algorithm>
#include <string_view>

#include "shoal/base/file.h"

namespace shoal {

std::string wide_encoding(const std::string& text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xff\xfe\0\0"sv) || text.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (text.starts_with("\xff\xfe"sv) || text.starts_with("\xfe\xff"sv)) return "UTF-16";
  // Without a mark: every second byte of plain words is 0.
  constexpr std::size_t kLook = 64;
  const std::string_view head = std::string_view(text).substr(0, kLook);
  std::size_t even = 0, odd = 0;
  for (std::size_t i = 0; i < head.size(); ++i)
    if (head[i] == '\0') ++(i % 2 == 0 ? even : odd);
  const std::size_t half = head.size() / 2;
  const bool wide = half >= 4 && std::max(even, odd) >= half - half / 8 && std::min(even, odd) == 0;
  return wide ? "UTF-16" : "";
}

Result<std::string> read_list(const std::string& path, Code code) {
  Result<std::string> text = read_file(path, code);
  if (!text.ok()) return text;
  if (const std::string wide = wide_encoding(text.value()); !wide.empty())
    return Error{code,
                 str(path, " is ", wide, "; save it as UTF-8 (iconv -f ", wide, " -t UTF-8 does)")};
  if (text.value().starts_with("\xef\xbb\xbf")) return text.value().substr(3);
  return text;
}

}  // namespace shoal
