// Addresses of the form "host:port", with brackets round an IPv6 address.
#pragma once

#include <string>
#include <string_view>

namespace shoal {

struct HostPort {
  std::string host;  // without brackets
  std::string port;  // "" if there is none
};
HostPort split_address(const std::string& address);
std::string join_address(std::string_view host, std::string_view port);

}  // namespace shoal
