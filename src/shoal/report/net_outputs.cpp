#include "shoal/report/net_outputs.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "shoal/base/file.h"
#include "shoal/base/log.h"

namespace shoal {
namespace {

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string line_of(const OutputRow& row) {
  std::string line =
      str(row.iteration, ",", number("%.3f", row.seconds), ",", number("%.9g", row.loss));
  for (const double output : row.outputs) line += "," + number("%.9g", output);
  return line;
}

std::string header_of(const std::vector<std::string>& outputs) {
  std::string line = "Iteration,time,loss";
  for (const std::string& name : outputs) line += "," + name;
  return line;
}

// Calls f(line) for every whole line; what a crash left after the last newline is none.
template <class F>
void for_each_line(const std::string& text, F f) {
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    f(text.substr(at, end - at));
}

// Lines of `text` that belong before `iteration`; the seconds of the last of them are put into
// `seconds`.
Result<std::string> kept_rows(const std::string& path, const std::string& text,
                              const std::string& header, std::int64_t iteration, double& seconds) {
  std::string kept = header + "\n";
  bool first = true, other = false;
  for_each_line(text, [&](const std::string& line) {
    if (first)
      other = line != header;
    else if (!line.empty() && std::atoll(line.c_str()) < iteration) {
      kept += line + "\n";
      const std::size_t comma = line.find(',');
      if (comma != std::string::npos)
        seconds = std::max(seconds, std::atof(line.c_str() + comma + 1));
    }
    first = false;
  });
  if (other)
    return Error{Code::kUsage,
                 str(path,
                     " has other columns than those that this run would append: it belongs to "
                     "another net; move it away, or choose another --net_outputs")};
  return kept;
}

}  // namespace

std::vector<std::string> column_names(const std::string& output, std::int64_t numbers) {
  if (numbers == 1) return {output};
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < numbers; ++i) names.push_back(str(output, "[", i, "]"));
  return names;
}

Result<NetOutputs> NetOutputs::open(const std::string& prefix,
                                    const std::vector<std::vector<std::string>>& nets,
                                    std::int64_t iteration) {
  NetOutputs made;
  made.prefix_ = prefix;
  for (std::size_t i = 0; i < nets.size(); ++i) {
    Table table;
    table.path = prefix + (i == 0 ? ".train.csv" : str(".test", i - 1, ".csv"));
    table.text = header_of(nets[i]) + "\n";
    // Each row opens the table anew, and would wait for a reader.
    if (std::error_code none; std::filesystem::is_fifo(table.path, none))
      return Error{Code::kUsage, str(table.path, " is a pipe, and a regular file is needed")};
    if (iteration > 0 && file_exists(table.path)) {
      const Result<std::string> text = read_file(table.path, Code::kUsage);
      if (!text.ok()) return text.error();
      Result<std::string> kept =
          kept_rows(table.path, text.value(), header_of(nets[i]), iteration, made.seconds_before_);
      if (!kept.ok()) return kept.error();
      table.text = std::move(kept).value();
    }
    if (const Status written = write_file(table.path, table.text, Code::kUsage); !written.ok())
      return written.error();
    made.tables_.push_back(std::move(table));
  }
  return made;
}

Status NetOutputs::add(std::size_t net, const OutputRow& row) {
  CHECK(net < tables_.size()) << "net " << net << " of " << tables_.size();
  Table& table = tables_[net];
  OutputRow later = row;
  later.seconds += seconds_before_;
  const std::string line = line_of(later) + "\n";
  table.text += line;
  std::ofstream file(table.path, std::ios::binary | std::ios::app);
  file << line << std::flush;
  if (!file)
    return Error{Code::kSnapshot, str("cannot write ", table.path, ": ", system_reason(errno))};
  return {};
}

Status NetOutputs::gather() const {
  std::string all;
  for (const Table& table : tables_) {
    if (!all.empty()) all += "\n";
    for_each_line(table.text, [&](const std::string& line) { all += line + ",\n"; });
  }
  return write_file(prefix_ + ".netoutputs", all, Code::kSnapshot);
}

}  // namespace shoal
