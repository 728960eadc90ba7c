#include "shoal/proto/text_characters.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "shoal/base/error.h"
#include "shoal/base/log.h"
#include "shoal/base/text.h"

namespace shoal {
namespace {

constexpr std::size_t kMostShown = 10;

struct NamedRange {
  std::uint32_t first, last;
  const char* name;
};

constexpr NamedRange kCharacters[] = {
    {0xa0, 0xa0, "a no-break space"},
    {0xab, 0xab, "a typographic quotation mark"},
    {0xbb, 0xbb, "a typographic quotation mark"},
    {0xad, 0xad, "a soft hyphen"},
    {0xb4, 0xb4, "an accent for a quotation mark"},
    {0x1680, 0x1680, "a wide blank"},
    {0x2000, 0x200a, "a blank of another width"},
    {0x200b, 0x200f, "an invisible character"},
    {0x2010, 0x2015, "a dash for a minus"},
    {0x2018, 0x201f, "a typographic quotation mark"},
    {0x2028, 0x2029, "a line end of another kind"},
    {0x202a, 0x202e, "an invisible character"},
    {0x202f, 0x202f, "a no-break space"},
    {0x205f, 0x205f, "a blank of another width"},
    {0x2060, 0x2064, "an invisible character"},
    {0x2212, 0x2212, "a mathematical minus"},
    {0x3000, 0x3000, "a wide blank"},
    {0x300a, 0x300f, "a quotation mark of another script"},
    {0xfeff, 0xfeff, "a byte order mark, which belongs at the beginning alone"},
    {0xff02, 0xff02, "a full-width quotation mark"},
    {0xff03, 0xff03, "a full-width #"},
    {0xff07, 0xff07, "a full-width quotation mark"},
    {0xff0c, 0xff0c, "a full-width comma"},
    {0xff0e, 0xff0e, "a full-width point"},
    {0xff10, 0xff19, "a full-width digit"},
    {0xff1a, 0xff1a, "a full-width colon"},
    {0xff1b, 0xff1b, "a full-width semicolon"},
    {0xff5b, 0xff5b, "a full-width {"},
    {0xff5d, 0xff5d, "a full-width }"},
};

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool good = false;  // as UTF-8 is written
};

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t bytes = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4)) return {};
  if (at + bytes > text.size()) return {};
  std::uint32_t code = bytes == 1 ? lead : lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  return {code, bytes, true};
}

std::string words_of(const Character& character) {
  if (!character.good) return "a byte that is neither ASCII nor UTF-8";
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", static_cast<unsigned>(character.code));
  for (const NamedRange& named : kCharacters)
    if (character.code >= named.first && character.code <= named.last)
      return str(named.name, " (", number, ")");
  return str("the character ", number);
}

class CharacterCheck {
 public:
  CharacterCheck(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#')
        skip_comment();
      else if (c == '"' || c == '\'')
        read_string();
      else if (static_cast<unsigned char>(c) >= 0x80)
        stray();
      else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_')
        read_word();
      else
        step();
    }
    if (errors_.empty()) return;
    const std::size_t more = errors_.size() - std::min(errors_.size(), kMostShown);
    errors_.resize(errors_.size() - more);
    throw ConfigError(Code::kConfig, join(errors_, "\n"),
                      more > 0 ? str("\n", name_, ": and ", more, " more") : "");
  }

 private:
  void step(std::size_t bytes = 1) {
    const bool ends = text_[at_] == '\n';
    line_ += ends ? 1 : 0;
    column_ = ends ? 1 : column_ + 1;
    at_ += bytes;
  }
  std::string place() const { return str(name_, ":", line_, ":", column_, ": "); }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') step();
  }

  void read_word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      step();
    word_ = text_.substr(begin, at_ - begin);
  }

  void stray() {
    const Character character = character_at(text_, at_);
    errors_.push_back(str(place(), words_of(character),
                          ", as word processors and web pages have them: it means nothing in a "
                          "prototxt outside of quotation marks. Write it in ASCII"));
    // The rest of the word is of the same kind, and one error is enough.
    while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x80) {
      const Character next = character_at(text_, at_);
      step(next.bytes);
    }
  }

  void read_string() {
    const std::string where = place();
    const char quote = text_[at_];
    const std::size_t begin = at_ + 1;
    bool utf8 = true;
    char escape = 0;
    step();
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        if (is_of_path(at_ + 1) && escape == 0) escape = text_[at_ + 1];
        step();
        if (text_[at_] == '\n') break;
        step();
        continue;
      }
      const Character character = character_at(text_, at_);
      utf8 = utf8 && character.good;
      step(character.bytes);
    }
    const std::string value = text_.substr(begin, at_ - begin);
    if (at_ < text_.size() && text_[at_] == quote) step();
    if (escape != 0 && word_ != "param_str")
      errors_.push_back(str(where, "'", word_, "' holds a backslash: in \"", value, "\" \\",
                            std::string(1, escape),
                            escape == 'n' ? " would be a line end" : " would not be two characters",
                            ". Folders are divided by /; a backslash that is meant is written "
                            "twice"));
    if (!utf8 && !warned_) {
      warned_ = true;
      LOG(WARNING) << where << "the value of '" << word_ << "' is not UTF-8 (GBK, Latin-1?), "
                   << "which programs that read models may refuse; convert the file: iconv -f GBK "
                   << "-t UTF-8";
    }
  }

  // Returns whether the letters behind a backslash are no escape that a program writes: quotation
  // marks, a backslash, and bytes of UTF-8 as three octal digits.
  bool is_of_path(std::size_t at) const {
    const char c = text_[at];
    if (c == '\\' || c == '"' || c == '\'') return false;
    const auto octal = [&](std::size_t i) {
      return i < text_.size() && text_[i] >= '0' && text_[i] <= '7';
    };
    return !(c >= '2' && c <= '3' && octal(at + 1) && octal(at + 2));
  }

  const std::string& text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
  std::string word_;  // the last name: of the field whose value follows
  std::vector<std::string> errors_;
  bool warned_ = false;
};

}  // namespace

void check_characters(const std::string& text, const std::string& name) {
  CharacterCheck(text, name).run();
}

}  // namespace shoal
