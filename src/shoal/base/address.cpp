#include "shoal/base/address.h"

#include "shoal/base/error.h"

namespace shoal {

HostPort split_address(const std::string& address) {
  if (!address.empty() && address[0] == '[') {
    const std::size_t end = address.find(']');
    if (end == std::string::npos) return {address, ""};
    return {address.substr(1, end - 1),
            end + 1 < address.size() && address[end + 1] == ':' ? address.substr(end + 2) : ""};
  }
  const std::size_t colon = address.rfind(':');
  // Without a colon there is no port; several are an IPv6 address without one.
  if (colon == std::string::npos || address.find(':') != colon) return {address, ""};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

std::string join_address(std::string_view host, std::string_view port) {
  return host.find(':') == std::string_view::npos ? str(host, ':', port)
                                                  : str('[', host, "]:", port);
}

}  // namespace shoal
