#include "support/certificates.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "shoal/base/file.h"

namespace shoal::table::test {
namespace {

std::string text_of(const std::shared_ptr<BIO>& bytes) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bytes.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

std::shared_ptr<BIO> memory() { return {BIO_new(BIO_s_mem()), &BIO_free}; }
std::shared_ptr<BIO> memory(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

std::string pem_of(X509* one) {
  const auto bytes = memory();
  EXPECT_EQ(PEM_write_bio_X509(bytes.get(), one), 1);
  return text_of(bytes);
}

std::string pem_of(EVP_PKEY* key, const char* passphrase = nullptr) {
  const auto bytes = memory();
  const EVP_CIPHER* const cipher = passphrase ? EVP_aes_128_cbc() : nullptr;
  EXPECT_EQ(PEM_write_bio_PKCS8PrivateKey(bytes.get(), key, cipher, passphrase,
                                          passphrase ? static_cast<int>(strlen(passphrase)) : 0,
                                          nullptr, nullptr),
            1);
  return text_of(bytes);
}

std::shared_ptr<EVP_PKEY> new_key() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }

std::shared_ptr<EVP_PKEY> key_of(const std::string& pem) {
  return {PEM_read_bio_PrivateKey(memory(pem).get(), nullptr, nullptr, nullptr), &EVP_PKEY_free};
}

void extend(X509* one, int what, const char* value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
  EXPECT_EQ(X509_add_ext(one, extension, -1), 1) << value;
  X509_EXTENSION_free(extension);
}

}  // namespace

Authority::Authority(const std::string& name, const Authority* parent)
    : parent_(parent), key_(new_key()) {
  own_ = (parent ? *parent : *this).certify(name, key_.get(), true, {});
  pem_ = pem_of(own_.get());
}

std::shared_ptr<X509> Authority::certify(const std::string& name, EVP_PKEY* key, bool is_authority,
                                         const CertificateTerms& terms) const {
  const std::shared_ptr<X509> one(X509_new(), &X509_free);
  X509_set_version(one.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(one.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(one.get()), terms.from);
  X509_gmtime_adj(X509_getm_notAfter(one.get()), terms.until);
  X509_set_pubkey(one.get(), key);
  X509_NAME* const subject = X509_get_subject_name(one.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(one.get(), own_ ? X509_get_subject_name(own_.get()) : subject);
  if (is_authority) extend(one.get(), NID_basic_constraints, "critical,CA:TRUE");
  if (terms.usage) extend(one.get(), NID_ext_key_usage, terms.usage);
  EXPECT_GT(X509_sign(one.get(), key_.get(), EVP_sha256()), 0);
  return one;
}

Pem Authority::sign(const std::string& name, const CertificateTerms& terms) const {
  const auto key = new_key();
  const auto one = certify(name, key.get(), false, terms);
  return {pem_of(one.get()) + (parent_ ? pem_ : ""), pem_of(key.get())};
}

CertificateFiles put_files(const std::string& path, const Pem& own,
                           const std::string& authorities) {
  const CertificateFiles files{path + ".crt", path + ".key", path + ".ca"};
  for (const auto& [name, text] :
       {std::pair(files.certificate, own.certificate), std::pair(files.key, own.key),
        std::pair(files.authorities, authorities)})
    EXPECT_TRUE(write_file(name, text, Code::kConfig).ok()) << name;
  return files;
}

std::shared_ptr<Certificates> certificates(const CertificateFiles& files) {
  auto made = read_certificates(files);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? std::move(made).value() : nullptr;
}

std::string with_passphrase(const std::string& key) {
  return pem_of(key_of(key).get(), "words that nobody types");
}

// ---- LaxTls ----

LaxTls::LaxTls(PlainSocket& socket, bool accepts, const Pem& own)
    : socket_(socket), context_(SSL_CTX_new(TLS_method()), &SSL_CTX_free) {
  if (!own.key.empty()) {
    const std::shared_ptr<X509> certificate(
        PEM_read_bio_X509(memory(own.certificate).get(), nullptr, nullptr, nullptr), &X509_free);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key_of(own.key).get()), 1);
  }
  // It asks for a certificate, and takes any.
  SSL_CTX_set_verify(context_.get(), accepts ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                     [](int, X509_STORE_CTX*) { return 1; });
  ssl_.reset(SSL_new(context_.get()), &SSL_free);
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  accepts ? SSL_set_accept_state(ssl_.get()) : SSL_set_connect_state(ssl_.get());
}

bool LaxTls::move(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  char piece[16 * 1024];
  for (int made; (made = BIO_read(SSL_get_wbio(ssl_.get()), piece, sizeof piece)) > 0;)
    socket_.say({piece, static_cast<std::size_t>(made)});
  if (error == SSL_ERROR_NONE) return true;
  if (error != SSL_ERROR_WANT_READ) {
    const char* const words = ERR_reason_error_string(ERR_peek_last_error());
    trouble_ = words ? words : "no reason is known";
    return false;
  }
  const std::string came = socket_.hear(1);
  if (came.empty()) trouble_ = "the connection ended";
  return BIO_write(SSL_get_rbio(ssl_.get()), came.data(), static_cast<int>(came.size())) > 0;
}

bool LaxTls::open() {
  for (;;) {
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_.get());
    if (!move(done)) return false;
    if (done == 1) return true;
  }
}

void LaxTls::say(std::string_view bytes) {
  ERR_clear_error();
  (void)move(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())));
}

std::string LaxTls::hear(std::size_t bytes) {
  std::string heard;
  while (heard.size() < bytes) {
    ERR_clear_error();
    char piece[4096];
    const int got =
        SSL_read(ssl_.get(), piece, static_cast<int>(std::min(sizeof piece, bytes - heard.size())));
    if (got > 0) heard.append(piece, static_cast<std::size_t>(got));
    if (!move(got)) break;
  }
  return heard;
}

}  // namespace shoal::table::test
