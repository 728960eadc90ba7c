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
constexpr unsigned char kCipher[] = {0x13, 0x01};                   // TLS_AES_128_GCM_SHA256
constexpr std::string_view kExporter = "EXPORTER-Channel-Binding";  // RFC 9266
// The alert of an end that accepts, to one that has certificates where it has none, or vice versa.
constexpr int kOtherKind = SSL_AD_UNKNOWN_PSK_IDENTITY;
constexpr const char* kSameFlags =
    ": give all processes of the job --tls_cert, --tls_key and --tls_ca, or none";

// Returns the alert with which the other end has ended the connection; -1: it was none.
int alert_heard() {
  constexpr int kAlerts = 256;
  const unsigned long error = ERR_peek_last_error();
  const int alert = ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET;
  return ERR_GET_LIB(error) == ERR_LIB_SSL && alert >= 0 && alert < kAlerts ? alert : -1;
}

}  // namespace

// OpenSSL's questions about the key and the certificate of a connection.
struct TlsChecks {
  static Tls& of(const SSL* ssl) { return *static_cast<Tls*>(SSL_get_ex_data(ssl, 0)); }

  // Returns a session that has the key alone, as both ends hand it to OpenSSL.
  static SSL_SESSION* session_of(SSL* ssl) {
    SSL_SESSION* const session = SSL_SESSION_new();
    const bool good = session != nullptr &&
                      SSL_SESSION_set1_master_key(session, of(ssl).key_.data(), kKey) == 1 &&
                      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipher)) == 1 &&
                      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    if (good) return session;
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity,
                         std::size_t* length, SSL_SESSION** session) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
    *session = session_of(ssl);
    return *session != nullptr ? 1 : 0;
  }

  static int find_session(SSL* ssl, const unsigned char* identity, std::size_t length,
                          SSL_SESSION** session) {
    const std::string_view given(reinterpret_cast<const char*>(identity), length);
    *session = given == kIdentity ? session_of(ssl) : nullptr;
    return 1;
  }

  // Compares the kind of the end that connects, which offers a key or none, with this one's.
  static int heard_hello(SSL* ssl, int* alert, void*) {
    Tls& tls = of(ssl);
    const unsigned char* ignored = nullptr;
    std::size_t bytes = 0;
    const bool has_key = SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &ignored, &bytes) == 1;
    if (has_key == (tls.certificates_ == nullptr)) return SSL_CLIENT_HELLO_SUCCESS;
    tls.other_kind_ = true;
    *alert = kOtherKind;
    return SSL_CLIENT_HELLO_ERROR;
  }

  // Notes the first reason why a certificate is refused.
  static int verified(int good, X509_STORE_CTX* check) {
    const auto* const ssl = static_cast<const SSL*>(
        X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
    Tls& tls = of(ssl);
    if (good != 1 && tls.refused_.empty()) tls.refused_ = why_refused(check);
    return good;
  }
};

std::shared_ptr<ssl_ctx_st> tls_context() {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  const bool good = context && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) &&
                    SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION) &&
                    SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") &&
                    SSL_CTX_set_num_tickets(context.get(), 0);
  CHECK(good) << "OpenSSL cannot do TLS 1.3 with AES-GCM: " << tls_reason();
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_NO_AUTO_CHAIN);  // the other end has the CAs
  SSL_CTX_set_client_hello_cb(context.get(), &TlsChecks::heard_hello, nullptr);
  return context;
}

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
void Tls::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Tls::Tls(Role role, std::string_view token, std::shared_ptr<Certificates> certificates,
         std::uint64_t records_of_key)
    : role_(role),
      key_(hmac_sha256(token, kLabel)),
      certificates_(std::move(certificates)),
      records_of_key_(records_of_key),
      method_(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "shoal")),
      context_(certificates_ ? certificates_->context() : tls_context()) {
  CHECK_GE(token.size(), kShortestToken) << "bytes of a token that encrypts";
  const bool good = method_ && BIO_meth_set_read(method_.get(), &TlsBytes::read) &&
                    BIO_meth_set_write(method_.get(), &TlsBytes::write) &&
                    BIO_meth_set_ctrl(method_.get(), &TlsBytes::control);
  CHECK(good) << tls_reason();
  ssl_.reset(SSL_new(context_.get()));
  BIO* const bio = BIO_new(method_.get());
  CHECK(ssl_ && bio) << tls_reason();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_ex_data(ssl_.get(), 0, this);
  if (certificates_) {
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                   &TlsChecks::verified);
  } else {
    // An end that does not know the key can only fail. PSK with Diffie-Hellman alone is OpenSSL's
    // default. An end that accepted without the key would have to show a certificate that nothing
    // vouches for.
    SSL_set_psk_use_session_callback(ssl_.get(), &TlsChecks::use_session);
    SSL_set_psk_find_session_callback(ssl_.get(), &TlsChecks::find_session);
    if (role == Role::kConnects) SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  }
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
  if (!was_open && is_open() && !is_proven())
    return broken("The TLS handshake was done without the job's token or certificates.");
  if (good == 1) return bytes;
  if (SSL_get_error(ssl_.get(), good) == SSL_ERROR_WANT_READ) return std::size_t{0};
  if (const std::string why = why_alerted(); !why.empty()) return broken(why);
  if (was_open)
    return broken("The encrypted connection broke (", tls_reason(),
                  "): its bytes were changed on their way, or the other end ended it.");
  return broken_handshake();
}

// Returns whether the handshake, which is done, has proved what the other end is.
bool Tls::is_proven() const {
  if (!certificates_) return SSL_session_reused(ssl_.get()) == 1;
  return SSL_get0_peer_certificate(ssl_.get()) != nullptr &&
         SSL_get_verify_result(ssl_.get()) == X509_V_OK;
}

// Returns what this end has found wrong in a handshake.
Error Tls::broken_handshake() const {
  if (other_kind_ && certificates_)
    return broken("The other end has no certificate, and this process was started with --tls_cert",
                  kSameFlags, ".");
  if (other_kind_)
    return broken(
        "The other end offers no key of a token: it was started with --tls_cert and this "
        "process without it",
        kSameFlags, "; or it is no process of this job.");
  if (!refused_.empty())
    return broken("The other end is not accepted: ", refused_,
                  " (--tls_ca=", certificates_->files().authorities, ").");
  if (certificates_)
    return broken("The TLS handshake failed (", tls_reason(),
                  "): the other end has no certificate, or is no process of this job.");
  return broken("The TLS handshake failed (", tls_reason(),
                "): the other end has another token (it belongs to another job, or was started "
                "with another environment), or is no process of this job.");
}

// Returns why the other end has refused this one, as far as its alert tells; else "". The end that
// connects may hear it when it takes the handshake for done.
std::string Tls::why_alerted() const {
  const int alert = alert_heard();
  if (!certificates_)
    return alert == kOtherKind
               ? str("The other end was started with --tls_cert and this process without it",
                     kSameFlags, ".")
               : "";
  const std::string own =
      str("this process's certificate, --tls_cert=", certificates_->files().certificate);
  switch (alert) {
    case kOtherKind:
      return str("The other end was started without --tls_cert, and this process with it",
                 kSameFlags, ".");
    case SSL_AD_CERTIFICATE_EXPIRED:
      return str("The other end finds that ", own, ", has expired: it is valid until ",
                 own_expiry(ssl_.get()), ". Renew it, or set the clocks of both machines.");
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_DECRYPT_ERROR:
      return str("The other end does not accept ", own,
                 ": its --tls_ca has not the CA that signed it.");
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return str("The other end does not accept ", own, " (", tls_reason(), "); its log says why.");
    default: return "";
  }
}

std::string Tls::binding() const { return certificates_ ? exported() : ""; }

std::string Tls::exported() const {
  unsigned char bytes[32];
  CHECK(SSL_export_keying_material(ssl_.get(), bytes, sizeof bytes, kExporter.data(),
                                   kExporter.size(), nullptr, 0, 0) == 1)
      << tls_reason();
  return {reinterpret_cast<const char*>(bytes), sizeof bytes};
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
