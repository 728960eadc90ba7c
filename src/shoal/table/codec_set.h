// The codecs of a plan, as its rows number them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shoal/table/codec.h"
#include "shoal/table/plan.h"

namespace shoal::table {

class CodecSet {
 public:
  // The plan is valid, and the maker knows its codecs.
  CodecSet(const Plan& plan, CodecMaker maker) {
    for (const CodecSpec& spec : plan.codecs) {
      codecs_.push_back(maker(spec));
      CodecSpec plain = spec;
      plain.momentum = 0;
      plain.warm_up = 0;
      merges_.push_back(maker(plain));
      keeps_.push_back(spec.feedback);
    }
  }
  const Codec& pushes(const Row& row) const { return at(codecs_, row.push_codec); }
  const Codec& answers(const Row& row) const { return at(codecs_, row.pull_codec); }
  // Returns the codec in which a server hands a merge of pushes to the row's copy.
  const Codec& merges(const Row& row) const { return at(merges_, row.push_codec); }
  // Returns whether answers hold what changed since the last one, where the reader has that. With
  // error feedback they do: what one leaves out, the next one has. Otherwise they hold weights.
  bool answers_are_changes(const Row& row) const {
    return row.pull_codec > 0 && row.writer == kEveryWorker && keeps_[row.pull_codec - 1];
  }

 private:
  using Codecs = std::vector<std::unique_ptr<Codec>>;
  static const Codec& at(const Codecs& codecs, std::uint8_t number) {
    return number == 0 ? float32_codec() : *codecs.at(number - 1);
  }
  Codecs codecs_, merges_;
  std::vector<bool> keeps_;
};

}  // namespace shoal::table
