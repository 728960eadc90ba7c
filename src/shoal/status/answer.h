// Decides what the status server answers. Nothing that a request says changes anything.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/report/status_board.h"

namespace shoal {

// The parts of a request that matter; missing headers are empty.
struct WebRequest {
  std::string_view method{}, target{}, host{}, authorization{}, cookie{};
  bool certified = false;  // the client showed a certificate of the server's authorities
};

struct WebAnswer {
  int status = 200;
  std::string_view type = "text/plain; charset=utf-8";
  std::string body{};
  std::vector<std::pair<std::string_view, std::string>> headers{};  // beside those of every answer
};

// Says who may look.
struct WebPolicy {
  // The server listens on other addresses than the loopback's: a request needs the token, or a
  // certificate.
  bool open = false;
  bool encrypted = false;
  std::string token{};  // "": none opens anything
  // The names of this machine that a request may call it by. Addresses may always be used, and the
  // names of the loopback. A page of another site reaches this server by a name of its own.
  std::vector<std::string> names{};
};

WebAnswer answer_to(const WebRequest& request, const WebPolicy& policy, const StatusBoard& board);

}  // namespace shoal
