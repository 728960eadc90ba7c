// Writes the state of a coordinator's parts to bytes and reads it back: what a standby gets before
// the records that follow. Both ends are the same build.
#pragma once

#include <chrono>
#include <concepts>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "shoal/table/coordinator/bodies.h"

namespace shoal::table {

class StateWriter;

template <class T>
concept HasState = requires(T& value, StateWriter& io) {
  value.state(io);
};
template <class T>
concept HasBody = requires(const T& value) {
  Body(std::in_place_type<T>, value);
}
&&!std::is_enum_v<T> && !HasState<T>;

// Both classes take the same calls: `io(first_, second_)`. A class whose values they take has a
// member `template <class Io> void state(Io& io)` that passes its own.
class StateWriter {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(out_); }

 private:
  template <class T>
  requires std::integral<T> || std::floating_point<T> || std::is_enum_v<T>
  void put(const T& value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class Rep, class Period>
  void put(const std::chrono::duration<Rep, Period>& time) {
    put(time.count());
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    out_ += text;
  }
  void put(const Error& error) { (*this)(error.code, error.message); }
  void put(const SchemeSpec& scheme) { put(scheme.words()); }
  void put(const Directive& d) { (*this)(d.kind, d.clock, d.want, d.code, d.text); }
  template <HasBody T>
  void put(const T& body) {
    put(encode(body));
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const std::shared_ptr<T>& value) {
    put(value != nullptr);
    if (value) put(*value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class T>
  requires requires(const T& items) {
    items.begin(), items.size();
  } &&(!std::same_as<T, std::string>)void put(const T& items) {
    put(std::uint64_t{items.size()});
    for (const auto& item : items) put(item);
  }
  template <HasState T>
  void put(const T& value) {
    const_cast<T&>(value).state(*this);  // which only reads it
  }

  std::string out_;
};

// After too few bytes everything reads as zero, and ok() is false.
class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : left_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  // Returns whether all bytes were read, and were right.
  bool ok() const { return ok_ && left_.empty(); }

 private:
  std::string_view bytes(std::uint64_t count) {
    ok_ = ok_ && count <= left_.size();
    if (!ok_) return {};
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <class T>
  requires std::integral<T> || std::floating_point<T> || std::is_enum_v<T>
  void get(T& value) {
    value = {};
    const std::string_view read = bytes(sizeof value);
    if (!read.empty()) std::ranges::copy(read, reinterpret_cast<char*>(&value));
  }
  template <class Rep, class Period>
  void get(std::chrono::duration<Rep, Period>& time) {
    Rep count{};
    get(count);
    time = std::chrono::duration<Rep, Period>(count);
  }
  void get(std::string& text) {
    std::uint64_t size = 0;
    get(size);
    text = bytes(size);
  }
  void get(Error& error) { (*this)(error.code, error.message); }
  void get(SchemeSpec& scheme) {
    std::string words;
    get(words);
    const Result<SchemeSpec> read = parse_scheme(words);
    ok_ = ok_ && read.ok();
    if (read.ok()) scheme = read.value();
  }
  void get(Directive& d) { (*this)(d.kind, d.clock, d.want, d.code, d.text); }
  template <HasBody T>
  void get(T& body) {
    std::string encoded;
    get(encoded);
    Result<T> read = decode<T>(encoded);
    ok_ = ok_ && read.ok();
    if (read.ok()) body = std::move(read).value();
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool has = false;
    get(has);
    value.reset();
    if (!has) return;
    T read{};  // emplace() would ask of a class that is not complete whether it can be made
    get(read);
    value = std::move(read);
  }
  template <class T>
  void get(std::shared_ptr<const T>& value) {
    bool has = false;
    get(has);
    auto read = std::make_shared<T>();
    if (has) get(*read);
    value = has ? std::move(read) : nullptr;
  }
  template <class A, class B>
  void get(std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class K, class V>
  void get(std::map<K, V>& items) {
    items.clear();
    for (std::uint64_t left = count(); left > 0 && ok_; --left) {
      K key{};
      get(key);
      get(items[key]);
    }
  }
  template <class T>
  void get(std::set<T>& items) {
    items.clear();
    for (std::uint64_t left = count(); left > 0 && ok_; --left) {
      T item{};
      get(item);
      items.insert(item);
    }
  }
  template <class T>
  requires requires(T& items) {
    items.emplace_back();
  } &&(!std::same_as<T, std::string>)void get(T& items) {
    items.clear();
    for (std::uint64_t left = count(); left > 0 && ok_; --left) get(items.emplace_back());
  }
  template <HasState T>
  void get(T& value) {
    value.state(*this);
  }
  std::uint64_t count() {
    std::uint64_t size = 0;
    get(size);
    return size;
  }

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace shoal::table
