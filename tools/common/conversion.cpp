#include "common/conversion.h"

#include "shoal/base/error.h"
#include "shoal/base/log.h"

namespace shoal {

Conversion::Conversion(const Options& options)
    : options_(options),
      writer_(or_throw(create_writer(options.backend, options.path))),
      progress_(options.tool, "records", options.total) {}

void Conversion::put(std::string_view key, std::string_view value) {
  or_throw(writer_->put(key, value));
  if (++written_ % kRecordsPerCommit == 0) or_throw(writer_->commit());
}

void Conversion::passed(std::uint64_t done) {
  interrupt_.check(str("nothing was written to ", options_.path));
  progress_.update(done);
}

void Conversion::finish() {
  interrupt_.check(str("nothing was written to ", options_.path));
  or_throw(writer_->finish());
  if (!options_.quiet)
    LOG(INFO) << "Wrote " << written_ << " records to " << options_.path << " (" << options_.backend
              << ").";
}

std::string padded(std::uint64_t number, int digits) {
  std::string text = std::to_string(number);
  const std::size_t wanted = static_cast<std::size_t>(digits);
  return text.size() < wanted ? std::string(wanted - text.size(), '0') + text : text;
}

void check_words(std::size_t count, std::size_t least, std::size_t most, const char* form) {
  if (count >= least && count <= most) return;
  throw ConfigError(Code::kUsage, count < least ? "too few" : "too many",
                    " words on the command line (", count, "); the form is: ", form);
}

}  // namespace shoal
