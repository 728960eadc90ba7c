// Exchanges the first messages of a connection as a pure state machine. Each end states what it is
// and proves that it knows the job's token. docs/reference/protocol.md, "Handshake".
#pragma once

#include "shoal/table/link/link.h"

namespace shoal::table {

class Handshake {
 public:
  // `purpose`: of the connection that this end makes; none: it accepts one. `nonce` is random, and
  // drawn for this connection alone.
  Handshake(const Credentials& self, std::optional<Purpose> purpose, const Nonce& nonce);
  bool accepts() const { return !purpose_; }
  const std::string& token() const { return self_.token; }
  // Returns the message that this side sends before it has received any.
  std::optional<Message> begin() const;
  // Returns the reply to `message`. With an error the connection is refused.
  struct Step {
    std::optional<Message> answer;
    std::optional<PeerName> peer{};  // the other end, all but its address: the handshake is done
  };
  Result<Step> take(const Message& message);

 private:
  Result<Step> take_challenge(const Message& message);
  Result<Step> take_hello(const Message& message);
  Result<Step> take_welcome(const Message& message);

  Credentials self_;
  std::optional<Purpose> purpose_;
  Nonce nonce_;
  std::optional<Challenge> challenge_;  // that was said or heard
};

Nonce random_nonce();

}  // namespace shoal::table
