// Serves what a board shows over HTTP: / is a page for people, /status.json and /metrics are for
// programs. docs/watching.md is for its users.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/base/error.h"
#include "shoal/report/status_board.h"

namespace shoal {

struct StatusServerOptions {
  std::uint16_t port = 0;  // the first one that is free from this on is taken; 0: any
  // With one of these the server listens on all addresses, without on the loopback's alone.
  std::string token{};  // that a request from anywhere must show; "": none
  // PEM files: with them the server speaks HTTPS, and a certificate of these authorities does
  // instead of the token. Read again for each connection. All or none.
  std::string certificate{}, key{}, authorities{};
};

class StatusServer {
 public:
  // Listens, and answers on a thread of its own until it is destroyed. `board` outlives it. Errors
  // are kUsage.
  static Result<std::unique_ptr<StatusServer>> start(const StatusServerOptions& options,
                                                     const StatusBoard& board);
  virtual ~StatusServer() = default;
  virtual std::uint16_t port() const = 0;
  virtual std::string url() const = 0;  // for people
};

}  // namespace shoal
