// Records of the events of which a coordinator's state is made. A standby that applies them in
// their order has the same state, and says the same to all.
#pragma once

#include "shoal/table/coordinator/members.h"

namespace shoal::table {

enum class RecordKind : std::uint8_t {
  kState = 0,     // `bytes` is all that the coordinator knows; earlier records do not count
  kAttached = 1,  // from here on nobody is told anything before the standby has its record
  kMessage = 2,   // the process sent the message whose frame is `bytes`
  kLost = 3,      // the process is lost for the reason `bytes`
  kEnrolled = 4,  // a process with the incarnation `count` and the key `bytes` got the next rank
  kSaid = 5,      // the process was sent the message whose frame is `bytes`
  kStandbys = 6,  // the coordinator is in process `rank`, and has `count` standbys
  kHeard = 7,     // the process has finished `count` steps: recorded before its loss
};

struct Record {
  RecordKind kind = RecordKind::kState;
  Rank rank = kNoRank;
  Code code = Code::kPeer;
  Instant at{};             // by the coordinator's clock
  std::uint64_t count = 0;  // kMessage: messages that the process has counted
  std::string bytes{};

  void state(auto& io) { io(kind, rank, code, at, count, bytes); }
  // Returns the key of kEnrolled.
  PublicKey key() const {
    PublicKey key{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), key.size()), key.begin());
    return key;
  }
};

// A conversation between the coordinator and a process: the messages received, those that the other
// side has counted, and the frames of those that it has not.
struct Conversation {
  std::uint64_t received = 0, counted = 0;
  std::vector<std::string> uncounted{};

  void state(auto& io) { io(received, counted, uncounted); }
};

}  // namespace shoal::table
