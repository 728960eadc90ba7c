#include "shoal/table/link/handshake.h"

#include <bit>

#include "shoal/base/bytes.h"
#include "shoal/base/hmac.h"
#include "shoal/base/log.h"
#include "shoal/base/random.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

std::string fields_of(const Message& message) {
  return encode(message, 0).head.substr(kHeaderSize);
}

// Returns the proof in a Hello or a Welcome, as `name` says: over all of its fields but the proof,
// which comes last. A Welcome answers the Hello's nonce; before a Hello there is none.
Digest proof_of(const char* name, const Challenge& challenge, std::string_view nonce,
                const Message& said, std::string_view binding, const std::string& token) {
  std::string fields = fields_of(said);
  fields.erase(fields.size() - sizeof(Digest));
  return hmac_sha256(token, str(name, fields_of(challenge), nonce, fields, binding));
}

// Returns what the signature in a Claim is over: all that was said before, and the claim's fields.
std::string signed_in(const Claim& claim, const Challenge& challenge, const Hello& hello,
                      std::string_view exported) {
  std::string fields = fields_of(claim);
  fields.erase(fields.size() - sizeof(Signature));
  return str("shoal claim", fields_of(challenge), fields_of(hello), fields, exported);
}

template <class Said>
Status check_versions(const Said& said) {
  if (said.lowest <= kProtocolVersion && kProtocolVersion <= said.highest) return {};
  return broken("One end speaks versions ", said.lowest, " to ", said.highest,
                " of the protocol, the other only ", int{kProtocolVersion},
                ": run the same build of Shoal on all machines.");
}

Error unexpected(const Message& message, const char* wanted) {
  return broken("A ", name_of(message), " came instead of a ", wanted, ".");
}

std::string name_of(Rank rank) {
  return rank == kNoRank ? "A process that wants to join" : str("Rank ", rank);
}

}  // namespace

Handshake::Handshake(const Credentials& self, std::optional<Purpose> purpose, const Nonce& nonce,
                     Rank whom)
    : self_(self), purpose_(purpose), nonce_(nonce), whom_(whom) {
  if (!purpose) challenge_ = Challenge{kProtocolVersion, kProtocolVersion, nonce};
}

std::optional<Message> Handshake::begin() const {
  return purpose_ ? std::nullopt : std::optional<Message>(*challenge_);
}

Result<Handshake::Step> Handshake::take(const Message& message) {
  if (!purpose_) return hello_ ? take_claim(message) : take_hello(message);
  return challenge_ ? take_welcome(message) : take_challenge(message);
}

Result<Handshake::Step> Handshake::take_hello(const Message& message) {
  const Hello* hello = std::get_if<Hello>(&message);
  if (!hello) return unexpected(message, "Hello");
  TRY(check_versions(*hello));
  if (!same_secret(hello->proof, proof_of("hello", *challenge_, "", *hello, binding_, self_.token)))
    return broken(name_of(hello->rank),
                  " has another token: it belongs to another job, or was started with other "
                  "flags or environment.");
  if (hello->purpose == Purpose::kRows && hello->configuration != self_.configuration)
    return broken("Rank ", hello->rank, " has another configuration (",
                  hex(chars_of(hello->configuration).substr(0, 4)), ") than rank ", self_.rank,
                  " (", hex(chars_of(self_.configuration).substr(0, 4)),
                  "): net, solver and scheme must be the same on all.");
  hello_ = *hello;
  return Step{};
}

Result<Handshake::Step> Handshake::take_claim(const Message& message) {
  const Claim* claim = std::get_if<Claim>(&message);
  if (!claim) return unexpected(message, "Claim");
  const bool asks_any = claim->whom == kNoRank && hello_->rank == kNoRank;
  if (claim->whom != self_.rank && !asks_any)
    return broken(kHereIs, self_.rank, " of the job, not rank ", claim->whom, ".");
  if (!is_signed(signed_in(*claim, *challenge_, *hello_, exported_), claim->signature, claim->key))
    return broken(name_of(hello_->rank),
                  " has signed something else than this connection: somebody between the two ends "
                  "hands on what others say.");
  Welcome welcome{
      .version = kProtocolVersion, .rank = self_.rank, .incarnation = self_.incarnation};
  welcome.proof =
      proof_of("welcome", *challenge_, chars_of(hello_->nonce), welcome, binding_, self_.token);
  return Step{.answer = welcome,
              .peer = PeerName{.rank = hello_->rank,
                               .incarnation = hello_->incarnation,
                               .purpose = hello_->purpose,
                               .address = {},
                               .key = claim->key}};
}

Result<Handshake::Step> Handshake::take_challenge(const Message& message) {
  const Challenge* challenge = std::get_if<Challenge>(&message);
  if (!challenge) return unexpected(message, "Challenge");
  TRY(check_versions(*challenge));
  challenge_ = *challenge;
  Hello hello{.lowest = kProtocolVersion,
              .highest = kProtocolVersion,
              .purpose = *purpose_,
              .rank = self_.rank,
              .incarnation = self_.incarnation,
              .configuration = self_.configuration,
              .nonce = nonce_};
  hello.proof = proof_of("hello", *challenge_, "", hello, binding_, self_.token);
  CHECK(self_.key) << "a process without a key";
  Claim claim{.whom = whom_, .key = self_.key->public_key()};
  claim.signature = self_.key->sign(signed_in(claim, *challenge_, hello, exported_));
  return Step{.answer = hello, .claim = claim};
}

Result<Handshake::Step> Handshake::take_welcome(const Message& message) {
  const Welcome* welcome = std::get_if<Welcome>(&message);
  if (!welcome) return unexpected(message, "Welcome");
  if (welcome->version != kProtocolVersion)
    return broken("Version ", welcome->version,
                  " of the protocol was chosen, but this process offered only ",
                  int{kProtocolVersion}, ".");
  if (!same_secret(welcome->proof, proof_of("welcome", *challenge_, chars_of(nonce_), *welcome,
                                            binding_, self_.token)))
    return broken("Rank ", welcome->rank,
                  " could not prove that it has the job's token: it belongs to another job.");
  return Step{.peer = PeerName{welcome->rank, welcome->incarnation, *purpose_, {}}};
}

Nonce random_nonce() { return std::bit_cast<Nonce>(std::array{random_seed(), random_seed()}); }

}  // namespace shoal::table
