// The least that a program over Asio can do to move rows there and back: no checksum, no update, no
// scheme. What the table service is measured against, on the same machine in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace shoal::table {

// Takes frames of `row_bytes` after a header of 24 into `bytes` of memory that all connections
// share, and sends each back from there.
class BareServer {
 public:
  BareServer(std::size_t bytes, std::size_t row_bytes);
  ~BareServer();
  std::uint16_t port() const;
  void serve(int connections);  // until so many have come and gone
 private:
  struct Machinery;
  std::unique_ptr<Machinery> machinery_;
};

class BareClient {
 public:
  explicit BareClient(std::uint16_t port);
  ~BareClient();
  // Sends all rows of `source` and reads as many back into `target`, at most `ahead` rows ahead of
  // what came back; returns the seconds it took.
  double exchange(std::span<const char> source, std::span<char> target, std::size_t row_bytes,
                  std::size_t ahead);

 private:
  struct Machinery;
  std::unique_ptr<Machinery> machinery_;
};

// Returns the bytes a second, both ways together, at which one client and one server of this
// process exchange rows of `row_bytes`: the best of three exchanges of 64 MiB or 20,000 rows.
double bare_rate(std::size_t row_bytes);

}  // namespace shoal::table
