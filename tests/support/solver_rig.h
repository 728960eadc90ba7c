// A small net over records with everything that a run keeps between iterations: shuffled data,
// crops and mirrors, dropout, running means.
#pragma once

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/net/net.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
#include "shoal/solver/solver.h"
#include "support/pattern.h"

namespace shoal::test {

// Makes 40 records of 1 x 6 x 6 with labels 0 to 3 under `path`, a datumfile.
void make_digits(const std::string& path);

// Makes 24 records of three floats with labels 0 and 1 under `path`, a datumfile. Record `nan`
// holds a NaN, and the label of `odd` is 7; -1: none.
void make_floats(const std::string& path, int nan, int odd = -1);

// Returns a net. Phase TRAIN: batches of 8 of `path`, shuffled, cropped to 4 x 4, mirrored;
// convolution, BatchNorm, Dropout, InnerProduct, loss. Phase TEST: batches of 5 in order, accuracy
// too.
std::string small_net(const std::string& path);

// Returns a solver on that net. `more` is prototxt and wins over: base_lr 0.05, momentum 0.9,
// lr_policy "fixed", random_seed 3, max_iter 12, display 0, snapshots under `prefix`, none after
// training.
SolverParameter small_solver(const std::string& path, const std::string& prefix,
                             const std::string& more = "");

// Makes the data of the net one copy, which all workers divide.
void share_data(NetParameter& net);

// Writes a small_solver whose workers share the records at folder/data, as a file:
// folder/name.prototxt. Its snapshots are folder/name_iter_... Returns its path.
std::string put_small_solver(const std::string& folder, const std::string& name,
                             const std::string& more = "");

SolverOptions with_name(const std::string& name, int threads = 1);

// Returns every learned number.
std::vector<float> all_params(const Net& net);

// Keeps the log's messages, without their prefixes.
class LogLines final : public google::LogSink {
 public:
  LogLines() { google::AddLogSink(this); }
  ~LogLines() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int, const std::tm*, const char* message,
            std::size_t length) override {
    lines.emplace_back(message, length);
  }
  // Returns whether a whole line matches the regular expression.
  bool has(const std::string& pattern) const {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return is_match(line, pattern); });
  }
  std::vector<std::string> lines;
};

}  // namespace shoal::test
