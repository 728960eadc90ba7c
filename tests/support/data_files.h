// Small sets of records and images for tests, in folders of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/data/record.h"
#include "support/expect.h"

namespace shoal::test {

using Records = std::vector<std::pair<std::string, std::string>>;

// An empty folder under the tests' temporary one, without a slash at the end.
std::string fresh_directory(const std::string& name);
void put_file(const std::string& path, const std::string& bytes);
std::string get_file(const std::string& path);
std::vector<std::string> entries(const std::string& directory);  // names, sorted

Status write_records(const std::string& backend, const std::string& path, const Records& records,
                     WriteMode mode = WriteMode::kNew);
Result<Records> read_all(RecordSource& source);

// A serialised Datum of bytes.
std::string datum(int channels, int height, int width, std::string_view pixels, int label);
// `count` records of 1 x 2 x 2 with keys "00000", "00001" ...: record i has the pixels i, i + 1, i
// + 2, i + 3 (mod 256) and label i % 10.
Records small_records(int count);

// `count` records with keys of eight digits and values of 1 to 5000 bytes that are no Datums.
Records numbered(int count);
// The first error met in opening a set and reading it to the end; "" if there is none.
std::string trouble(const std::string& backend, const std::string& path);

// The output and the exit code of a program.
struct Ran {
  int code = -1;  // exit code, or 128 + the signal
  std::string out, err;
};
// Runs argv[0] with its output caught; no file may grow beyond the limit, if there is one.
Ran run_program(const std::vector<std::string>& argv, std::uint64_t file_size_limit = 0);
// The same in two steps, for what the test does meanwhile.
struct Running {
  int process = -1;
  std::string directory;
};
Running start_program(const std::vector<std::string>& argv, std::uint64_t file_size_limit = 0);
// Waits until the program has said `text` on stderr, so many times; false after two minutes, or if
// it ended without saying it.
bool wait_for_text(const Running& running, const std::string& text, int times = 1);
Ran wait_for(const Running& running);  // a program that hangs is killed after two minutes
// The folder of the built tools, from the variable TOOLS_DIR; "" if it is not set.
std::string tools_dir();

}  // namespace shoal::test
