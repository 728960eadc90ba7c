#include "shoal/table/link/handshake.h"

#include <algorithm>

#include "shoal/base/bytes.h"
#include "shoal/base/hmac.h"
#include "shoal/base/random.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

std::string fields_of(const Message& message) {
  return encode(message, 0).head.substr(kHeaderSize);
}

// All but the proof, which comes last.
std::string fields_before_proof(const Message& message) {
  std::string fields = fields_of(message);
  return fields.erase(fields.size() - sizeof(Digest));
}

Digest proof_of(const Hello& hello, const Challenge& challenge, const std::string& token) {
  return hmac_sha256(token, "hello" + fields_of(challenge) + fields_before_proof(hello));
}

Digest proof_of(const Welcome& welcome, const Challenge& challenge, const Nonce& hello,
                const std::string& token) {
  const std::string nonce(hello.begin(), hello.end());
  return hmac_sha256(token,
                     "welcome" + fields_of(challenge) + nonce + fields_before_proof(welcome));
}

template <class Said>
Status check_versions(const Said& said) {
  if (said.lowest <= kProtocolVersion && kProtocolVersion <= said.highest) return {};
  return broken("One end speaks versions ", said.lowest, " to ", said.highest,
                " of the protocol, the other only ", int{kProtocolVersion},
                ": run the same build of Shoal on all machines.");
}

Error unexpected(const Message& message, const char* wanted) {
  return broken("A ", name_of(message), " came where a ", wanted, " was due.");
}

std::string name_of(Rank rank) {
  return rank == kNoRank ? "A process that wants to join" : str("Rank ", rank);
}

std::string start_of(const Digest& digest) {
  std::string text;
  for (std::size_t i = 0; i < 4; ++i)
    text += str("0123456789abcdef"[digest[i] >> 4], "0123456789abcdef"[digest[i] & 15]);
  return text;
}

}  // namespace

Handshake::Handshake(const Credentials& self, std::optional<Purpose> purpose, const Nonce& nonce)
    : self_(self), purpose_(purpose), nonce_(nonce) {
  if (!purpose) challenge_ = Challenge{kProtocolVersion, kProtocolVersion, nonce};
}

std::optional<Message> Handshake::begin() const {
  return purpose_ ? std::nullopt : std::optional<Message>(*challenge_);
}

Result<Handshake::Step> Handshake::take(const Message& message) {
  if (!purpose_) return take_hello(message);
  return challenge_ ? take_welcome(message) : take_challenge(message);
}

Result<Handshake::Step> Handshake::take_hello(const Message& message) {
  const Hello* hello = std::get_if<Hello>(&message);
  if (!hello) return unexpected(message, "Hello");
  if (Status versions = check_versions(*hello); !versions.ok()) return versions.error();
  if (!same_secret(hello->proof, proof_of(*hello, *challenge_, self_.token)))
    return broken(name_of(hello->rank),
                  " has another token: it belongs to another job, or was started with other "
                  "flags or environment.");
  if (hello->purpose == Purpose::kRows && hello->configuration != self_.configuration)
    return broken("Rank ", hello->rank, " has another configuration (",
                  start_of(hello->configuration), ") than rank ", self_.rank, " (",
                  start_of(self_.configuration),
                  "): net, solver and scheme must be the same on all.");
  peer_ = {.rank = hello->rank,
           .incarnation = hello->incarnation,
           .purpose = hello->purpose,
           .address = {}};
  Welcome welcome{
      .version = kProtocolVersion, .rank = self_.rank, .incarnation = self_.incarnation};
  welcome.proof = proof_of(welcome, *challenge_, hello->nonce, self_.token);
  return Step{welcome, true};
}

Result<Handshake::Step> Handshake::take_challenge(const Message& message) {
  const Challenge* challenge = std::get_if<Challenge>(&message);
  if (!challenge) return unexpected(message, "Challenge");
  if (Status versions = check_versions(*challenge); !versions.ok()) return versions.error();
  challenge_ = *challenge;
  Hello hello{.lowest = kProtocolVersion,
              .highest = kProtocolVersion,
              .purpose = *purpose_,
              .rank = self_.rank,
              .incarnation = self_.incarnation,
              .configuration = self_.configuration,
              .nonce = nonce_};
  hello.proof = proof_of(hello, *challenge_, self_.token);
  return Step{hello, false};
}

Result<Handshake::Step> Handshake::take_welcome(const Message& message) {
  const Welcome* welcome = std::get_if<Welcome>(&message);
  if (!welcome) return unexpected(message, "Welcome");
  if (welcome->version != kProtocolVersion)
    return broken("Version ", welcome->version,
                  " of the protocol was chosen, which was not on offer.");
  if (!same_secret(welcome->proof, proof_of(*welcome, *challenge_, nonce_, self_.token)))
    return broken("Rank ", welcome->rank,
                  " took a token that it does not know itself: it is no process of this job.");
  peer_ = {.rank = welcome->rank,
           .incarnation = welcome->incarnation,
           .purpose = *purpose_,
           .address = {}};
  return Step{std::nullopt, true};
}

Nonce random_nonce() {
  std::string bytes;
  put_le(bytes, random_seed());
  put_le(bytes, random_seed());
  Nonce nonce;
  std::copy_n(bytes.begin(), nonce.size(), nonce.begin());
  return nonce;
}

}  // namespace shoal::table
