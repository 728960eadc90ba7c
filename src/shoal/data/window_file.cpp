// Reads a window file word by word.
#include "shoal/data/window_file.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "shoal/base/file.h"
#include "shoal/base/list_file.h"
#include "shoal/data/backends.h"

namespace shoal {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The words of a text and the lines that they stand in.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  // Returns the next word, or "" at the end.
  std::string_view next() {
    skip_blanks();
    return take(rest_.find_first_of(kBlanks));
  }
  // Returns the rest of the line, or, if that is blank, the next line with words; without blanks
  // around it.
  std::string_view next_line() {
    skip_blanks();
    const std::string_view line = take(rest_.find('\n'));
    return line.substr(0, line.find_last_not_of(kBlanks) + 1);
  }
  std::uint64_t line() const { return line_; }  // of the last word, or of the text's end

 private:
  void skip_blanks() {
    while (!rest_.empty() && kBlanks.find(rest_.front()) != std::string_view::npos) {
      line_ += rest_.front() == '\n' ? 1 : 0;
      rest_.remove_prefix(1);
    }
  }
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest_;
  std::uint64_t line_ = 1;
};

class WindowReader {
 public:
  WindowReader(const std::string& path, std::string_view text, const WindowThresholds& thresholds)
      : path_(path), words_(text), thresholds_(thresholds) {}

  Result<WindowFile> read() {
    for (std::string_view word = words_.next(); !word.empty(); word = words_.next()) {
      if (word != "#") return no_picture(word);
      if (Status read = read_picture(); !read.ok()) return read.error();
    }
    if (file_.pictures.empty())
      return Error{Code::kData, str("the window file ", path_, " names no pictures")};
    return std::move(file_);
  }

 private:
  Error error(const std::string& what) const {
    return Error{Code::kData, str(path_, ":", words_.line(), ": ", what)};
  }
  Error unwanted(std::string_view word, const std::string& wanted) const {
    const std::string found =
        word.empty() ? "the file ends" : str("\"", word.substr(0, 80), "\" stands");
    return error(str(found, " where ", wanted, " is wanted"));
  }
  Error no_picture(std::string_view word) const {
    Error wrong = unwanted(word, "\"#\"");
    if (!file_.pictures.empty())
      wrong.message +=
          str(": the picture of line ", file_.pictures.back().line, " has the ", announced_,
              announced_ == 1 ? " window" : " windows", " that line ", announced_line_, " says");
    return wrong;
  }

  // wanted() says in words which number it is.
  template <class Number, class Wanted>
  Result<Number> number(Wanted wanted) {
    const std::string_view word = words_.next();
    Number value = 0;
    const auto [end, bad] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || bad != std::errc() || end != word.data() + word.size())
      return unwanted(word, wanted());
    return value;
  }

  // A number of the picture, from `least` on.
  Status read_size(const char* name, int least, int& to) {
    const Result<int> size = number<int>([&] { return str("the picture's ", name); });
    if (!size.ok()) return size.error();
    if (size.value() < least)
      return error(str("the picture's ", name, " is ", size.value(), "; it is at least ", least));
    to = size.value();
    return {};
  }

  Status read_picture() {
    WindowPicture picture;
    picture.line = words_.line();
    const Result<int> index = number<int>([] { return "the picture's number"; });
    if (!index.ok()) return index.error();
    picture.path = words_.next_line();
    if (picture.path.empty()) return unwanted("", "the picture's path");
    int channels = 0;
    if (Status read = read_size("number of channels", 1, channels); !read.ok()) return read;
    if (Status read = read_size("height", 1, picture.height); !read.ok()) return read;
    if (Status read = read_size("width", 1, picture.width); !read.ok()) return read;
    if (Status read = read_size("number of windows", 0, announced_); !read.ok()) return read;
    announced_line_ = words_.line();
    file_.pictures.push_back(std::move(picture));
    for (int i = 0; i < announced_; ++i)
      if (Status read = read_window(i); !read.ok()) return read;
    return {};
  }

  Status read_window(int i) {
    constexpr const char* kFields[] = {"label", "overlap", "x1", "y1", "x2", "y2"};
    const char* const* field = kFields;
    const auto wanted = [&] {
      return str("the ", *field, " of window ", i + 1, " of the ", announced_, " that line ",
                 announced_line_, " says");
    };
    Window window;
    window.picture = static_cast<std::uint32_t>(file_.pictures.size() - 1);
    const Result<int> label = number<int>(wanted);
    if (!label.ok()) return label.error();
    window.label = label.value();
    window.line = static_cast<std::uint32_t>(words_.line());
    ++field;
    const Result<float> overlap = number<float>(wanted);
    if (!overlap.ok()) return overlap.error();
    if (!std::isfinite(overlap.value())) return error(wanted() + " is not finite");
    for (int* const to : {&window.x1, &window.y1, &window.x2, &window.y2}) {
      ++field;
      const Result<int> corner = number<int>(wanted);
      if (!corner.ok()) return corner.error();
      *to = corner.value();
    }
    return sort(window, overlap.value());
  }

  Status sort(Window window, float overlap) {
    const WindowPicture& picture = file_.pictures.back();
    if (window.x1 < 0 || window.x1 > window.x2 || window.x2 >= picture.width || window.y1 < 0 ||
        window.y1 > window.y2 || window.y2 >= picture.height)
      return error(str("the window ", window.x1, " ", window.y1, " ", window.x2, " ", window.y2,
                       " leaves its picture of ", picture.height, " x ", picture.width,
                       " pixels: 0 <= x1 <= x2 <= ", picture.width - 1,
                       " and 0 <= y1 <= y2 <= ", picture.height - 1, " are wanted"));
    if (overlap >= thresholds_.foreground) {
      if (window.label < 1)
        return error(str("a window with an overlap of ", overlap,
                         " is foreground, since fg_threshold is ", thresholds_.foreground,
                         ", but its label is ", window.label, "; foreground has labels from 1 on"));
      file_.foreground.push_back(window);
    } else if (overlap < thresholds_.background) {
      window.label = 0;
      file_.background.push_back(window);
    } else {
      ++file_.neither;
    }
    return {};
  }

  const std::string& path_;
  Words words_;
  const WindowThresholds thresholds_;
  WindowFile file_;
  int announced_ = 0;  // windows of the last picture
  std::uint64_t announced_line_ = 0;
};

}  // namespace

Result<WindowFile> read_window_file(const std::string& path, const WindowThresholds& thresholds) {
  const std::string hint = kind_hint(path);
  if (!hint.empty()) return Error{Code::kData, str(path, " is no window file", hint)};
  Result<std::string> text = read_list(path, Code::kData);
  if (!text.ok()) return text.error();
  return WindowReader(path, text.value(), thresholds).read();
}

}  // namespace shoal
