// Writes fields to bytes and reads them back, one after the other.
#pragma once

#include <type_traits>
#include <vector>

#include "shoal/base/bytes.h"
#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/table/plan.h"

namespace shoal::table::wire {

// An enum is one byte, or two if it was declared so.
template <class Enum>
using EnumBits = std::conditional_t<sizeof(Enum) == 2, std::uint16_t, std::uint8_t>;

// The values of an enum that may be read: `first` to `last`, and `also`. Errors call it `name`.
template <class Enum>
struct Range {
  const char* name;
  Enum first, last, also = last;
};
template <class Enum>
constexpr Range<Enum> range_of();  // layout.h

// Writes fields. Numbers and arrays of bytes are as in memory, which is little-endian.
class Writer {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void bytes(const std::string& value, std::size_t limit, const char* field) {
    CHECK(value.size() <= limit) << field << " of " << value.size() << " bytes; at most " << limit
                                 << " can be sent";
    text(value, limit, field);
  }
  // Writes the words of a scheme, and none if there is no scheme.
  void scheme(const std::optional<SchemeSpec>& spec) {
    bytes(spec ? spec->words() : "", kMaxSchemeBytes, "scheme");
  }
  // Writes a text, cut at the limit.
  void text(const std::string& value, std::size_t limit, const char*) {
    const std::string_view kept = std::string_view(value).substr(0, limit);
    put(static_cast<std::uint32_t>(kept.size()));
    out_ += kept;
  }
  template <class Items>
  void list(const Items& items, std::size_t limit, const char* field) {
    CHECK(items.size() <= limit) << items.size() << " " << field << "; at most " << limit
                                 << " can be sent";
    put(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) fields(*this, item);
  }
  std::string& out() { return out_; }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_enum_v<T>)
      put(static_cast<EnumBits<T>>(value));
    else
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string out_;
};

// Reads fields. After the first error everything reads as zero.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes), whole_(bytes.size()) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  void bytes(std::string& value, std::size_t limit, const char* field) {
    std::uint32_t size = 0;
    get(size);
    if (size > limit)
      fail(str("a ", field, " of ", size, " bytes; at most ", limit, " are allowed"));
    value = take(size);
  }
  void text(std::string& value, std::size_t limit, const char* field) {
    bytes(value, limit, field);
  }
  // Reads a scheme. Words in another form than words() gives are an error.
  void scheme(auto& spec) {
    std::string words;
    bytes(words, kMaxSchemeBytes, "scheme");
    if constexpr (requires { spec.reset(); }) {
      spec.reset();
      if (words.empty()) return;
    }
    const Result<SchemeSpec> read = parse_scheme(words);
    if (!read.ok()) return fail(read.error().message);
    spec = read.value();
    if (read.value().words() != words)
      fail(str("scheme '", words, "' in words that are not its standard form"));
  }
  template <class T>
  void list(std::vector<T>& items, std::size_t limit, const char* field) {
    std::uint32_t count = 0;
    get(count);
    if (count > limit) fail(str(count, " ", field, "; at most ", limit, " are allowed"));
    Writer least;
    const T empty{};
    fields(least, empty);
    if (wrong_.empty() && count > left_.size() / least.out().size())
      fail(str(count, " ", field, ", which ", left_.size(), " bytes cannot hold"));
    items.clear();
    for (std::uint32_t i = 0; i < count && wrong_.empty(); ++i) fields(*this, items.emplace_back());
  }
  void list(Rows& rows, std::size_t limit, const char* field) { list(rows.edit(), limit, field); }

  // Returns "", or the first error; bytes left over are one.
  const std::string& finish() {
    if (!left_.empty()) fail(str(left_.size(), " bytes after its last field, of ", whole_));
    return wrong_;
  }

 private:
  std::string_view take(std::size_t size) {
    if (wrong_.empty() && size > left_.size()) fail(str("too few bytes for its fields, ", whole_));
    if (!wrong_.empty()) return {};
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      constexpr Range<T> known = range_of<T>();
      EnumBits<T> bits = 0;
      get(bits);
      value = static_cast<T>(bits);
      if (wrong_.empty() && (value < known.first || value > known.last) && value != known.also)
        fail(str("an unknown ", known.name, ", ", int{bits},
                 "; the other end may be a newer build"));
    } else if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      if (byte > 1) fail(str("a bool of ", int{byte}, "; 0 and 1 are allowed"));
      value = byte == 1;
    } else {
      value = {};
      if (const std::string_view bytes = take(sizeof value); !bytes.empty())
        std::memcpy(&value, bytes.data(), bytes.size());
    }
  }
  void fail(std::string words) {
    if (wrong_.empty()) wrong_ = std::move(words);
    left_ = {};
  }

  std::string_view left_;
  std::size_t whole_;
  std::string wrong_;
};

}  // namespace shoal::table::wire
