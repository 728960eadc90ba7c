// The first messages of a connection as a pure state machine: who is there, and does it know the
// job's token. docs/protocol.md, "Handshake".
#pragma once

#include <memory>
#include <optional>

#include "shoal/table/link/link.h"

namespace shoal::table {

class Handshake {
 public:
  virtual ~Handshake() = default;
  // What is said before anything was heard.
  virtual std::optional<Message> begin() = 0;
  // What is said to `message`. An error is what the connection is refused with.
  struct Step {
    std::optional<Message> answer;
    bool done = false;
  };
  virtual Result<Step> take(const Message& message) = 0;
  // Of the other end, all but its address. Good once take() said that all is done.
  const PeerName& peer() const { return peer_; }

 protected:
  PeerName peer_;
};

// `nonce` is random, and drawn for this connection alone.
std::unique_ptr<Handshake> accepting(const Credentials& self, const Nonce& nonce);
std::unique_ptr<Handshake> connecting(const Credentials& self, Purpose purpose, const Nonce& nonce);
Nonce random_nonce();

}  // namespace shoal::table
