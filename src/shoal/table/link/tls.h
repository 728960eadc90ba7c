// Turns bytes into records of TLS 1.3 and back for one end of a connection, with OpenSSL; the
// session moves the records. Each end proves to the other that it knows the job's token, or that it
// has a certificate of the job's CA. The keys of a connection come of its own Diffie-Hellman
// exchange, too: a token or key that becomes known later opens no recorded connection.
// docs/reference/protocol.md, "Encryption".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/table/link/tls_certificates.h"

struct bio_st;  // OpenSSL's
struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace shoal::table {

// Returns a context for TLS 1.3 with one cipher, for either end, without certificates and keys.
// Only a Tls may use it.
std::shared_ptr<ssl_ctx_st> tls_context();

// Used on one strand.
class Tls {
 public:
  enum class Role { kConnects, kAccepts };
  // The first byte of what an end that connects says; frames begin with another.
  static constexpr char kFirstByte = 0x16;
  static constexpr std::uint64_t kRecordsOfKey = 1u << 22;

  // `token` has at least kShortestToken bytes, and is the key; with `certificates`, these take its
  // place. After so many records (AES-GCM allows 2^24.5) this end takes another key.
  Tls(Role role, std::string_view token, std::shared_ptr<Certificates> certificates = nullptr,
      std::uint64_t records_of_key = kRecordsOfKey);
  ~Tls();
  Tls(const Tls&) = delete;

  // ---- from the other end ----
  std::span<char> room();        // the place of the next bytes from the socket, good until took()
  void took(std::size_t bytes);  // so many were written there
  // Reads bytes that were sent into `place`. Returns their number; 0: more records must come. Both
  // ends must call it for a handshake. Errors are kPeer: another token, no TLS, changed bytes.
  Result<std::size_t> read(std::span<char> place);

  // ---- to the other end ----
  bool is_open() const;  // the handshake is done
  // Returns bytes that only the two ends of this connection have, which a proof of the token is to
  // cover: else a process with a certificate and no token could stand between two that have both.
  // Empty without certificates, since the token itself is the key then. Only when open.
  std::string binding() const;
  // Returns the same bytes with or without certificates, which a signature is to cover: else one
  // that has the token, as all processes have, could stand between two. Only when open.
  std::string exported() const;
  // Begins the handshake of an end that connects.
  void begin();
  // Makes records of these bytes. Only when open. False: an earlier error ended the connection.
  bool write(std::span<const std::string_view> pieces);
  // Returns the records to send, good until sent() has counted all of them.
  std::string_view records();
  void sent(std::size_t bytes);

 private:
  friend struct TlsBytes;   // OpenSSL's access to in_ and made_
  friend struct TlsChecks;  // OpenSSL's questions
  struct Free {
    void operator()(bio_method_st* method) const;
    void operator()(ssl_st* ssl) const;
  };
  bool seal(std::string_view bytes);
  bool is_proven() const;
  Error broken_handshake() const;
  std::string why_alerted() const;

  const Role role_;
  std::array<std::uint8_t, 32> key_;
  const std::shared_ptr<Certificates> certificates_;
  const std::uint64_t records_of_key_;
  std::uint64_t records_ = 0;  // made with the current key
  bool heard_ = false;         // something came
  bool other_kind_ = false;    // the other end has certificates and this one none, or vice versa
  std::string refused_;        // what is wrong with the other end's certificate
  std::vector<char> in_;
  std::size_t begin_ = 0, end_ = 0;  // of what OpenSSL has not read
  std::string plain_;                // small pieces of one record
  std::string made_, leaving_;       // records; the latter do not move while they are sent
  std::size_t left_ = 0;             // bytes of leaving_ that were sent
  std::unique_ptr<bio_method_st, Free> method_;
  std::shared_ptr<ssl_ctx_st> context_;
  std::unique_ptr<ssl_st, Free> ssl_;
};

}  // namespace shoal::table
