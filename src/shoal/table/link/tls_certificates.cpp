#include "shoal/table/link/tls_certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <vector>

#include "shoal/base/file.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"
#include "shoal/base/try.h"
#include "shoal/table/link/tls.h"

namespace shoal::table {
namespace {

template <auto free_it>
struct Free {
  template <class T>
  void operator()(T* one) const {
    free_it(one);
  }
};
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Bytes = std::unique_ptr<BIO, Free<BIO_free>>;
using Check = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;

constexpr const char *kCertificateFlag = "--tls_cert", *kKeyFlag = "--tls_key",
                     *kAuthoritiesFlag = "--tls_ca";

template <class... Words>
Error wrong(const char* flag, const std::string& path, const Words&... words) {
  return Error{Code::kUsage, str(flag, "=", path, ": ", words...)};
}

Result<std::string> text_of(const char* flag, const std::string& path) {
  Result<std::string> text = read_file(path, Code::kUsage);
  if (!text.ok()) return Error{Code::kUsage, str(flag, ": ", text.error().message)};
  return text;
}

Bytes bytes_of(const std::string& text) {
  return Bytes(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(const Bytes& bytes) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bytes.get(), &text);
  return {text, static_cast<std::size_t>(std::max(size, 0L))};
}

std::string text_of(const X509_NAME* name) {
  const Bytes bytes(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bytes.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  return text_of(bytes);
}

std::string text_of(const ASN1_TIME* time) {
  const Bytes bytes(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bytes.get(), time);
  return text_of(bytes);
}

// Reads all certificates of a PEM file.
Result<std::vector<Certificate>> read_all(const char* flag, const std::string& path) {
  const Result<std::string> text = text_of(flag, path);
  TRY(text);
  const Bytes bytes = bytes_of(text.value());
  std::vector<Certificate> all;
  while (X509* const one = PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr))
    all.emplace_back(one);
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (all.empty() || !ended)
    return wrong(flag, path, "it holds no ", all.empty() ? "" : "further, whole ",
                 "certificate in PEM form, between lines -----BEGIN CERTIFICATE----- and "
                 "-----END CERTIFICATE-----");
  ERR_clear_error();
  return all;
}

// Refuses to ask at the terminal for the passphrase of a key.
int no_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Result<Key> read_key(const std::string& path) {
  const Result<std::string> text = text_of(kKeyFlag, path);
  TRY(text);
  bool asked = false;
  Key key(PEM_read_bio_PrivateKey(bytes_of(text.value()).get(), nullptr, &no_passphrase, &asked));
  ERR_clear_error();
  if (key) return key;
  if (asked)
    return wrong(kKeyFlag, path,
                 "a passphrase protects the key, and nobody is there to give it: store the key "
                 "without one (openssl pkey -in FILE -out PLAIN), readable by you alone");
  return wrong(kKeyFlag, path, "it holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)");
}

// Checks that other processes will take this certificate, at either end of a connection.
Status check(X509_STORE* store, X509* own, STACK_OF(X509) * chain, const CertificateFiles& files) {
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const Check check(X509_STORE_CTX_new());
    CHECK(check && X509_STORE_CTX_init(check.get(), store, own, chain) == 1) << tls_reason();
    X509_STORE_CTX_set_purpose(check.get(), purpose);
    if (X509_verify_cert(check.get()) != 1)
      return wrong(kCertificateFlag, files.certificate, why_refused(check.get()), " (",
                   kAuthoritiesFlag, "=", files.authorities, ")");
  }
  return {};
}

Result<std::shared_ptr<SSL_CTX>> read(const CertificateFiles& files) {
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context = tls_context();
  const Result<std::vector<Certificate>> chain = read_all(kCertificateFlag, files.certificate);
  TRY(chain);
  const Result<Key> key = read_key(files.key);
  TRY(key);
  const Result<std::vector<Certificate>> authorities =
      read_all(kAuthoritiesFlag, files.authorities);
  TRY(authorities);
  X509* const own = chain.value()[0].get();
  if (X509_check_private_key(own, key.value().get()) != 1)
    return wrong(kKeyFlag, files.key, "it is not the key of the certificate ", kCertificateFlag,
                 "=", files.certificate);
  if (SSL_CTX_use_certificate(context.get(), own) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.value().get()) != 1)
    return wrong(kCertificateFlag, files.certificate, "OpenSSL cannot use it: ", tls_reason());
  for (std::size_t i = 1; i < chain.value().size(); ++i)
    if (SSL_CTX_add1_chain_cert(context.get(), chain.value()[i].get()) != 1)
      return wrong(kCertificateFlag, files.certificate, "OpenSSL cannot use certificate ", i + 1,
                   " of the file: ", tls_reason());
  X509_STORE* const store = SSL_CTX_get_cert_store(context.get());
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);  // the CA of a CA need not be there
  for (const Certificate& one : authorities.value())
    if (X509_STORE_add_cert(store, one.get()) != 1)
      return wrong(kAuthoritiesFlag, files.authorities, "OpenSSL cannot use it: ", tls_reason());
  STACK_OF(X509)* others = nullptr;
  SSL_CTX_get0_chain_certs(context.get(), &others);
  TRY(check(store, own, others, files));
  return context;
}

}  // namespace

std::string tls_reason() {
  const char* const words = ERR_reason_error_string(ERR_peek_last_error());
  return words != nullptr ? words : "no reason is known";
}

std::string why_refused(x509_store_ctx_st* check) {
  const X509* const one = X509_STORE_CTX_get_current_cert(check);
  const X509* const shown = X509_STORE_CTX_get0_cert(check);
  if (one == nullptr || shown == nullptr) return "there is no certificate";
  const auto named = [](const X509* certificate) {
    return str("the certificate \"", text_of(X509_get_subject_name(certificate)), "\" ");
  };
  switch (const int error = X509_STORE_CTX_get_error(check)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return str(named(one), "expired on ", text_of(X509_get0_notAfter(one)), ": renew it");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return str(named(one), "is valid only from ", text_of(X509_get0_notBefore(one)),
                 " on: is a machine's clock wrong?");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return str(named(shown), "was signed by another CA (", text_of(X509_get_issuer_name(one)),
                 ") than those that this process trusts");
    case X509_V_ERR_INVALID_PURPOSE:
      return str(named(one),
                 "may not be used at both ends of a connection: make it without extendedKeyUsage, "
                 "or with serverAuth and clientAuth");
    default: return str(named(one), "is not accepted: ", X509_verify_cert_error_string(error));
  }
}

std::string own_expiry(const ssl_st* ssl) {
  const X509* const own = SSL_get_certificate(ssl);
  return own != nullptr ? text_of(X509_get0_notAfter(own)) : "no certificate";
}

// ---- Certificates ----

Certificates::Stamps Certificates::stamps() const {
  Stamps all;
  const std::string* const paths[] = {&files_.certificate, &files_.key, &files_.authorities};
  for (std::size_t i = 0; i < all.size(); ++i) {
    struct stat found = {};
    if (::stat(paths[i]->c_str(), &found) != 0) continue;
    all[i] = {static_cast<std::int64_t>(found.st_ino), found.st_size, found.st_mtim.tv_sec,
              found.st_mtim.tv_nsec};
  }
  return all;
}

Status Certificates::load() {
  const Stamps now = stamps();  // before the files are read: a change meanwhile is seen next time
  Result<std::shared_ptr<SSL_CTX>> context = read(files_);
  MutexLock lock(mutex_);
  read_ = now;
  TRY(context);
  context_ = std::move(context).value();
  return {};
}

std::shared_ptr<ssl_ctx_st> Certificates::context() {
  const Stamps now = stamps();
  bool changed = false;
  {
    MutexLock lock(mutex_);
    changed = now != read_;
  }
  if (changed) {
    if (const Status status = load(); status.ok())
      LOG(INFO) << "the certificate files have changed; new connections use " << files_.certificate
                << " as it is now";
    else
      LOG(WARNING) << "the certificate files have changed, and cannot be used; those read before "
                      "stay in use: "
                   << status.error().message;
  }
  MutexLock lock(mutex_);
  return context_;
}

Result<std::shared_ptr<Certificates>> read_certificates(const CertificateFiles& files) {
  auto certificates = std::make_shared<Certificates>(files);
  TRY(certificates->load());
  return certificates;
}

}  // namespace shoal::table
