// Exchanges the first messages of a connection as a pure state machine. Each end states what it is
// and proves that it knows the job's token; the end that connects proves its rank, too.
// docs/reference/protocol.md, "Handshake".
#pragma once

#include "shoal/table/link/link.h"

namespace shoal::table {

class Handshake {
 public:
  // `purpose`: of the connection that this end makes; none: it accepts one. `nonce` is random, and
  // drawn for this connection alone. `whom`: the rank that it connects with, as in connect().
  Handshake(const Credentials& self, std::optional<Purpose> purpose, const Nonce& nonce,
            Rank whom = kNoRank);
  bool accepts() const { return !purpose_; }
  const std::string& token() const { return self_.token; }
  // Makes the proofs, and the signature, cover these bytes of the connection beneath:
  // Tls::binding() and Tls::exported(). Before take().
  void bind(std::string proofs, std::string signature) {
    binding_ = std::move(proofs);
    exported_ = std::move(signature);
  }
  // Returns the message that this side sends before it has received any.
  std::optional<Message> begin() const;
  // Returns the reply to `message`. With an error the connection is refused.
  struct Step {
    std::optional<Message> answer{};
    std::optional<Message> claim{};  // is said after the answer
    std::optional<PeerName> peer{};  // the other end, all but its address: the handshake is done
  };
  Result<Step> take(const Message& message);

 private:
  Result<Step> take_challenge(const Message& message);
  Result<Step> take_hello(const Message& message);
  Result<Step> take_claim(const Message& message);
  Result<Step> take_welcome(const Message& message);

  Credentials self_;
  std::optional<Purpose> purpose_;
  Nonce nonce_;
  Rank whom_;
  std::string binding_, exported_;
  std::optional<Challenge> challenge_;  // that was said or heard
  std::optional<Hello> hello_;          // that was heard
};

Nonce random_nonce();

}  // namespace shoal::table
