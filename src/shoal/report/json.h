// Just enough to write an object of JSON: members in the order of the calls.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace shoal {

inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    }
  }
  return out + "\"";
}

// Nine digits: a float comes back as it was. JSON has no word for what is not finite.
inline std::string json_number(double value, const char* format = "%.9g") {
  if (!std::isfinite(value)) return "null";
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

class JsonObject {
 public:
  JsonObject& raw(std::string_view name, std::string_view value) {
    text_ += text_.empty() ? "{" : ",";
    text_ += json_text(name) + ":" + std::string(value);
    return *this;
  }
  JsonObject& text(std::string_view name, std::string_view value) {
    return raw(name, json_text(value));
  }
  JsonObject& number(std::string_view name, double value, const char* format = "%.9g") {
    return raw(name, json_number(value, format));
  }
  JsonObject& whole(std::string_view name, std::int64_t value) {
    return raw(name, std::to_string(value));
  }
  std::string str() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace shoal
