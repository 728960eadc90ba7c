// Records from one kind of database to another, as they are.
#include "common/conversion.h"
#include "common/tool.h"

namespace shoal {
namespace {

int body(const std::vector<std::string>& words) {
  check_words(words.size(), 4, 4, "convert_format IN_TYPE IN_PATH OUT_TYPE OUT_PATH");
  const std::unique_ptr<RecordSource> source = or_throw(open_source(words[0], words[1]));
  const std::uint64_t total = progress_shown() ? or_throw(source->count()) : 0;
  Conversion out({.tool = "convert_format", .backend = words[2], .path = words[3], .total = total});
  for (;;) {
    const std::optional<RecordView> record = or_throw(source->next());
    if (!record) break;
    out.put(record->key, record->value);
    out.passed(out.written());
  }
  out.finish();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  return shoal::run_tool(argc, argv,
                         "convert_format IN_TYPE IN_PATH OUT_TYPE OUT_PATH\n\n"
                         "Copies all records, keys and values as they are, in their order. Types: "
                         "lmdb, leveldb, datumfile.",
                         shoal::body);
}
