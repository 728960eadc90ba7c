#include "shoal/table/link/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>

#include "shoal/base/hmac.h"
#include "shoal/base/log.h"
#include "shoal/table/broken.h"

namespace shoal::table {
namespace {

constexpr std::size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH, kKey = 32;
constexpr std::size_t kStrangersRoom = 16 * 1024, kRoom = 256 * 1024;
constexpr char kAlert = 0x15;
constexpr std::string_view kIdentity = "shoal", kLabel = "shoal tls 1.3 psk";
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// Returns the last error of OpenSSL in its words.
std::string reason() {
  const char* const words = ERR_reason_error_string(ERR_peek_last_error());
  return words != nullptr ? words : "no reason is known";
}

// Returns a session that has the key alone, as both ends hand it to OpenSSL.
SSL_SESSION* session_of(SSL* ssl) {
  const auto* const key = static_cast<const unsigned char*>(SSL_get_ex_data(ssl, 0));
  SSL_SESSION* const session = SSL_SESSION_new();
  const bool good = session != nullptr && SSL_SESSION_set1_master_key(session, key, kKey) == 1 &&
                    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipher)) == 1 &&
                    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (good) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *length = kIdentity.size();
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_session(SSL* ssl, const unsigned char* identity, std::size_t length,
                 SSL_SESSION** session) {
  const std::string_view given(reinterpret_cast<const char*>(identity), length);
  *session = given == kIdentity ? session_of(ssl) : nullptr;
  return 1;
}

}  // namespace

// The socket as OpenSSL sees it: reads find what has come, writes are kept.
struct TlsBytes {
  static Tls& of(BIO* bio) { return *static_cast<Tls*>(BIO_get_data(bio)); }
  static int read(BIO* bio, char* to, int most) {
    Tls& tls = of(bio);
    BIO_clear_retry_flags(bio);
    const std::size_t bytes =
        std::min<std::size_t>(static_cast<unsigned>(most), tls.end_ - tls.begin_);
    if (bytes == 0) return BIO_set_retry_read(bio), -1;
    std::memcpy(to, tls.in_.data() + tls.begin_, bytes);
    tls.begin_ += bytes;
    return static_cast<int>(bytes);
  }
  static int write(BIO* bio, const char* from, int bytes) {
    of(bio).made_.append(from, static_cast<std::size_t>(bytes));
    return bytes;
  }
  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }
};

void Tls::Free::operator()(bio_method_st* method) const { BIO_meth_free(method); }
void Tls::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void Tls::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Tls::Tls(Role role, std::string_view token, std::uint64_t records_of_key)
    : role_(role),
      key_(hmac_sha256(token, kLabel)),
      records_of_key_(records_of_key),
      method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "shoal")),
      context_(SSL_CTX_new(TLS_method())) {
  CHECK_GE(token.size(), kShortestToken) << "bytes of a token that encrypts";
  SSL_CTX* const context = context_.get();
  // No certificates: an end that does not know the key can only fail. PSK with Diffie-Hellman alone
  // is OpenSSL's default.
  const bool good = method_ && context_ && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) &&
                    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") &&
                    SSL_CTX_set_num_tickets(context, 0) &&
                    BIO_meth_set_read(method_.get(), &TlsBytes::read) &&
                    BIO_meth_set_write(method_.get(), &TlsBytes::write) &&
                    BIO_meth_set_ctrl(method_.get(), &TlsBytes::control);
  CHECK(good) << "OpenSSL cannot do TLS 1.3 with AES-GCM: " << reason();
  // An end that accepted without the key would have to show a certificate that nothing vouches for.
  if (role == Role::kConnects) SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, &use_session);
  SSL_CTX_set_psk_find_session_callback(context, &find_session);
  ssl_.reset(SSL_new(context));
  BIO* const bio = BIO_new(method_.get());
  CHECK(ssl_ && bio) << reason();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_ex_data(ssl_.get(), 0, key_.data());
  if (role == Role::kConnects)
    SSL_set_connect_state(ssl_.get());
  else
    SSL_set_accept_state(ssl_.get());
}

Tls::~Tls() = default;

// ---- from the other end ----

std::span<char> Tls::room() {
  if (begin_ == end_) begin_ = end_ = 0;
  const std::size_t size = end_ + (is_open() ? kRoom : kStrangersRoom);
  if (in_.size() < size) in_.resize(size);
  return std::span(in_).subspan(end_);
}

void Tls::took(std::size_t bytes) { end_ += bytes; }

Result<std::size_t> Tls::read(std::span<char> place) {
  const bool was_open = is_open();
  if (end_ > 0 && !std::exchange(heard_, true) && in_[0] != kFirstByte && in_[0] != kAlert)
    return broken(
        "The other end answered in clear where TLS was due: it was started with another "
        "--encrypt, or is no process of this job.");
  ERR_clear_error();
  std::size_t bytes = 0;
  const int good = SSL_read_ex(ssl_.get(), place.data(), place.size(), &bytes);
  if (!was_open && is_open() && SSL_session_reused(ssl_.get()) != 1)
    return broken("The TLS handshake was done without the job's token.");
  if (good == 1) return bytes;
  if (SSL_get_error(ssl_.get(), good) == SSL_ERROR_WANT_READ) return std::size_t{0};
  if (was_open)
    return broken("The encrypted connection broke (", reason(),
                  "): its bytes were changed on their way, or the other end ended it.");
  return broken("The TLS handshake failed (", reason(),
                "): the other end has another token (it belongs to another job, or was started "
                "with another environment), or is no process of this job.");
}

// ---- to the other end ----

bool Tls::is_open() const { return SSL_is_init_finished(ssl_.get()) == 1; }

void Tls::begin() {
  ERR_clear_error();
  (void)SSL_do_handshake(ssl_.get());  // goes on with what read() finds
}

bool Tls::seal(std::string_view bytes) {
  ERR_clear_error();
  records_ += (bytes.size() + kRecord - 1) / kRecord;
  if (records_ >= records_of_key_) {
    records_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
  }
  std::size_t written = 0;
  return SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written) == 1;
}

bool Tls::write(std::span<const std::string_view> pieces) {
  plain_.clear();
  for (std::string_view piece : pieces)
    while (!piece.empty()) {
      if (plain_.empty() && piece.size() >= kRecord) {
        if (!seal(piece)) return false;
        break;
      }
      const std::string_view part = piece.substr(0, kRecord - plain_.size());
      plain_.append(part);
      piece.remove_prefix(part.size());
      if (plain_.size() < kRecord) continue;
      if (!seal(plain_)) return false;
      plain_.clear();
    }
  return plain_.empty() || seal(plain_);
}

std::string_view Tls::records() {
  if (left_ == leaving_.size()) {
    leaving_.clear();
    left_ = 0;
    std::swap(leaving_, made_);
  }
  return std::string_view(leaving_).substr(left_);
}

void Tls::sent(std::size_t bytes) { left_ += bytes; }

}  // namespace shoal::table
