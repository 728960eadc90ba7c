// Holds a process's certificate, its key and the CAs that it trusts, as OpenSSL uses them. They are
// read from files, and again when a file has changed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "shoal/base/mutex.h"
#include "shoal/table/table.h"

struct ssl_ctx_st;  // OpenSSL's
struct ssl_st;
struct x509_store_ctx_st;

namespace shoal::table {

// Functions may be called on any thread.
class Certificates {
 public:
  // The files are read with context().
  explicit Certificates(CertificateFiles files) : files_(std::move(files)) {}
  // Reads the files. Errors are kUsage, and name the file and what is wrong in it.
  Status load();
  // Returns what a new connection uses, from the files as they are now. If those that have changed
  // cannot be used, the log says why, and what was read before stays in use.
  std::shared_ptr<ssl_ctx_st> context();
  const CertificateFiles& files() const { return files_; }

 private:
  struct Stamp {
    std::int64_t inode = -1, size = -1, seconds = -1, nanoseconds = -1;
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 3>;
  Stamps stamps() const;

  const CertificateFiles files_;
  Mutex mutex_;
  Stamps read_ GUARDED_BY(mutex_);
  std::shared_ptr<ssl_ctx_st> context_ GUARDED_BY(mutex_);
};

// Returns the last error of OpenSSL in its words.
std::string tls_reason();
// Returns what is wrong with the certificate that a check has just refused.
std::string why_refused(x509_store_ctx_st* check);
// Returns the end of the validity of the certificate that this end shows: "Nov 28 21:00:00 2027
// GMT".
std::string own_expiry(const ssl_st* ssl);

}  // namespace shoal::table
