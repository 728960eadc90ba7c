// Messages of every type for tests of the wire and of links.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/base/random.h"
#include "shoal/table/messages.h"
#include "shoal/table/wire.h"

namespace shoal::table::test {

// One of each type (two of Push), by the name of its file in tests/golden/wire; request numbers
// count from 0.
std::vector<std::pair<std::string, Message>> golden_messages();
// The token that the proofs in them are made with.
inline constexpr std::string_view kGoldenToken = "token of the job";
// The key of the process that says Hello and Claim in them.
std::shared_ptr<const SigningKey> golden_key();

// A message of the type at `index` in table::Message, of any content that can be sent; `floats` at
// most.
Message random_message(Random& random, std::size_t index, std::size_t floats);

// The bytes of a frame, and of a message's with the request number 0.
std::string whole(const Frame& frame);
std::string whole(const Message& message);

// A payload that owns its numbers.
Payload owned(std::vector<float> numbers);

}  // namespace shoal::table::test
