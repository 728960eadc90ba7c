#include "shoal/data/xml.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "shoal/base/try.h"

namespace shoal {
namespace {

constexpr int kXmlDeepest = 100;
constexpr std::string_view kXmlBlanks = " \t\r\n";

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kXmlBlanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kXmlBlanks) - begin + 1));
}

void append_utf8(std::uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xE0 | (code >> 12 & 0x0F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Puts characters in the place of &amp; and the like; what is unknown stays.
std::string unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t end = text[at] == '&' ? text.find(';', at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += text[at];
      continue;
    }
    std::string_view word = text.substr(at + 1, end - at - 1);
    const auto* const named =
        std::ranges::find(kNamed, word, &std::pair<std::string_view, char>::first);
    std::uint32_t code = 0;
    if (named != std::end(kNamed)) {
      out += named->second;
    } else if (word.starts_with('#')) {
      const bool hex = word.starts_with("#x");
      word.remove_prefix(hex ? 2 : 1);
      std::from_chars(word.data(), word.data() + word.size(), code, hex ? 16 : 10);
      append_utf8(code, out);
    } else {
      out += text.substr(at, end - at + 1);
    }
    at = end;
  }
  return out;
}

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  Result<XmlElement> document() {
    TRY(pass_over());
    if (!at("<")) return wrong("no element begins here");
    return element(0);
  }

 private:
  bool at(std::string_view word) const { return text_.substr(place_).starts_with(word); }

  Error wrong(const std::string& words) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, std::min(place_, text_.size())), '\n');
    return Error{Code::kData, str("line ", line, ": ", words)};
  }

  // Moves behind the next `end`.
  Status skip_to(std::string_view end) {
    const std::size_t found = text_.find(end, place_);
    if (found == std::string_view::npos) return wrong(str("'", end, "' is missing behind this"));
    place_ = found + end.size();
    return {};
  }

  // Passes over blanks, comments and declarations.
  Status pass_over() {
    for (;;) {
      place_ = std::min(text_.find_first_not_of(kXmlBlanks, place_), text_.size());
      if (at("\xEF\xBB\xBF"))
        place_ += 3;
      else if (at("<!--"))
        TRY(skip_to("-->"));
      else if (at("<?"))
        TRY(skip_to("?>"));
      else if (at("<!"))
        TRY(skip_to(">"));
      else
        return {};
    }
  }

  Result<XmlElement> element(int depth) {
    if (depth > kXmlDeepest)
      return wrong(str("more than ", kXmlDeepest, " elements lie in each other"));
    ++place_;  // <
    XmlElement own;
    const std::size_t end = text_.find_first_of(" \t\r\n/>", place_);
    if (end == std::string_view::npos || end == place_) return wrong("an element has no name");
    own.name = text_.substr(place_, end - place_);
    const std::size_t closes = text_.find('>', end);
    if (closes == std::string_view::npos) return wrong(str("<", own.name, " has no '>'"));
    place_ = closes + 1;
    if (text_[closes - 1] == '/') return own;
    std::string text;
    TRY(content(depth, own, text));
    own.text = trimmed(text);
    return own;
  }

  // Reads what is in an element, and its end.
  Status content(int depth, XmlElement& own, std::string& text) {
    for (;;) {
      const std::size_t next = text_.find('<', place_);
      if (next == std::string_view::npos) return wrong(str("<", own.name, "> is not closed"));
      text += unescaped(text_.substr(place_, next - place_));
      place_ = next;
      if (at("</")) return close(own.name);
      if (at("<![CDATA[")) {
        const std::size_t begin = place_ + std::string_view("<![CDATA[").size();
        TRY(skip_to("]]>"));
        text += text_.substr(begin, place_ - 3 - begin);
      } else if (at("<!--")) {
        TRY(skip_to("-->"));
      } else if (at("<?")) {
        TRY(skip_to("?>"));
      } else {
        Result<XmlElement> child = element(depth + 1);
        if (!child.ok()) return child.error();
        own.children.push_back(std::move(child).value());
      }
    }
  }

  Status close(const std::string& name) {
    const std::size_t end = text_.find('>', place_);
    const std::string found = end == std::string_view::npos
                                  ? "nothing"
                                  : trimmed(text_.substr(place_ + 2, end - place_ - 2));
    if (found != name) return wrong(str("<", name, "> is closed by ", found));
    place_ = end + 1;
    return {};
  }

  std::string_view text_;
  std::size_t place_ = 0;
};

}  // namespace

const XmlElement* XmlElement::child(std::string_view of_name) const {
  const auto found = std::ranges::find(children, of_name, &XmlElement::name);
  return found == children.end() ? nullptr : &*found;
}

std::string XmlElement::text_at(std::string_view path) const {
  const std::size_t slash = path.find('/');
  const XmlElement* const first = child(path.substr(0, slash));
  if (!first) return "";
  return slash == std::string_view::npos ? first->text : first->text_at(path.substr(slash + 1));
}

Result<XmlElement> parse_xml(std::string_view text) { return XmlReader(text).document(); }

}  // namespace shoal
