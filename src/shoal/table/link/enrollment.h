// Owns the links of processes that have no rank yet and ask for one, or whether the job goes on
// without the one that they had.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "shoal/table/link/link.h"
#include "shoal/table/link/process_state.h"

namespace shoal::table {

class Enrollment final : public LinkOwner {
 public:
  // Sends the answer's body.
  using Reply = std::function<void(std::string body)>;
  // `asked(incarnation, key, reply)` is called on the strand, with the key that the process has,
  // and returns whether it gets an answer, now or later; if not, its link is closed.
  using Asked = std::function<bool(Clock, const PublicKey&, Reply)>;
  Enrollment(const ProcessState& process, const Strand& strand, Asked asked)
      : process_(process), strand_(strand), asked_(std::move(asked)) {}

  void opened(std::shared_ptr<Link> link) override;
  Status received(Link& link, Message&& message) override;
  void closed(Link& link, Status) override {
    strand_.post([this, known = &link] { links_.erase(known); });
  }
  void close(bool with_bye) {
    strand_.post([this, with_bye] {
      for (const auto& [known, link] : links_) link->close(with_bye);
    });
  }

 private:
  bool look_up(const std::string& body, const Reply& reply) const;

  const ProcessState& process_;
  const Strand strand_;
  const Asked asked_;
  std::map<const Link*, std::shared_ptr<Link>> links_;  // on the strand
};

}  // namespace shoal::table
