// Makes CAs and certificates, and ends of TLS that do what no process of a job does.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "shoal/table/table.h"
#include "support/links.h"

struct ssl_ctx_st;
struct ssl_st;
struct evp_pkey_st;
struct x509_st;

namespace shoal::table::test {

// A certificate, with those of the CAs between if any, and its key, as texts in PEM form.
struct Pem {
  std::string certificate, key;
};

struct CertificateTerms {
  long from = -3600, until = 3600;  // seconds from now
  const char* usage = nullptr;      // of its key, as in openssl.cnf; null: any
};

// A CA. One with a parent is certified by it.
class Authority {
 public:
  explicit Authority(const std::string& name, const Authority* parent = nullptr);
  Pem sign(const std::string& name, const CertificateTerms& terms = {}) const;
  const std::string& certificate() const { return pem_; }

 private:
  std::shared_ptr<x509_st> certify(const std::string& name, evp_pkey_st* key, bool is_authority,
                                   const CertificateTerms& terms) const;
  const Authority* const parent_;
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> own_;
  std::string pem_;
};

// Writes the three files beneath `path`, in place of earlier ones.
CertificateFiles put_files(const std::string& path, const Pem& own, const std::string& authorities);
// Returns the certificates of such files, which must be good.
std::shared_ptr<Certificates> certificates(const CertificateFiles& files);
// Returns the key with a passphrase.
std::string with_passphrase(const std::string& key);

// An end of TLS that takes any certificate, and shows one or none.
class LaxTls {
 public:
  LaxTls(PlainSocket& socket, bool accepts, const Pem& own = {});
  // Shakes hands. Returns whether this end takes the handshake for done.
  bool open();
  void say(std::string_view bytes);
  std::string hear(std::size_t bytes);  // fewer at the end of the connection
  // Returns the reason of the last failure, "" if none.
  const std::string& trouble() const { return trouble_; }

 private:
  // Sends what OpenSSL has made, then hears more if it must. False: the connection is at its end.
  bool move(int result);

  PlainSocket& socket_;
  std::shared_ptr<ssl_ctx_st> context_;
  std::shared_ptr<ssl_st> ssl_;
  std::string trouble_;
};

}  // namespace shoal::table::test
