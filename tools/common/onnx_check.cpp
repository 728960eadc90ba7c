#include "common/onnx_check.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/drawn_inputs.h"
#include "common/program.h"
#include "shoal/base/log.h"
#include "shoal/onnx/weight_files.h"

namespace shoal {
namespace {

constexpr double kMost = 1e-4;  // difference, of the output's largest number

// Prints a line of JSON for each output of each run: its name, the largest difference, the largest
// number, and how many numbers are infinite or NaN on one side alone; or the two shapes.
constexpr const char* kScript = R"(
import json, sys
import numpy, onnxruntime
model, folder, runs = sys.argv[1:4]
session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
for run in range(int(runs)):
    inputs = dict(numpy.load(f'{folder}/{run}.in.npz'))
    wanted = numpy.load(f'{folder}/{run}.want.npz')
    for name, got in zip(wanted.files, session.run(wanted.files, inputs)):
        want = wanted[name]
        if got.shape != want.shape:
            print(json.dumps({'name': name, 'got': got.shape, 'want': want.shape}))
            continue
        both = numpy.isfinite(got) & numpy.isfinite(want)
        odd = int(((got != want) & ~both & ~(numpy.isnan(got) & numpy.isnan(want))).sum())
        difference = float(abs(got[both].astype('f8') - want[both]).max(initial=0))
        scale = float(abs(want[both]).max(initial=0))
        print(json.dumps({'name': name, 'difference': difference, 'scale': scale, 'odd': odd}))
)";

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "onnx_check.XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr)
      throw ConfigError(Code::kConfig, "no folder could be made like ", path);
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// Returns the first Python of PATH and the system's that has onnxruntime.
std::string find_python() {
  std::string tried;
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    const Result<ProgramRun> ran =
        run_program({python, "-c", "import numpy, onnxruntime"}, std::chrono::seconds(60));
    if (ran.ok() && ran.value().code == 0) return python;
    tried += str(tried.empty() ? "" : "; ", python, ": ",
                 ran.ok() ? last_line(ran.value().err) : ran.error().message);
  }
  throw ConfigError(Code::kConfig, "--check needs a python3 in PATH, or /usr/bin/python3, with ",
                    "onnxruntime and numpy (pip install onnxruntime); ", tried);
}

// Draws inputs, writes them, runs the net on them and writes its outputs.
void run_net(Net& net, const OnnxCheck& check, const std::string& stem, Random& random) {
  const onnx::Preprocessing& how = check.preprocessing;
  const Blob* const images = onnx::image_input(net);
  std::vector<onnx::NamedArray> arrays;
  for (Blob* input : onnx::input_blobs(net)) {
    const bool pixels = input == images && !how.is_nothing();
    draw_input(net, *input, pixels ? 0.0f : -1.0f, pixels ? 255.0f : 1.0f, random);
    arrays.push_back({input->name, input->shape().dims(), input->data.host()});
  }
  or_throw(onnx::write_npz(stem + ".in.npz", arrays));
  if (images != nullptr) {
    Blob& blob = *onnx::image_input(net);
    onnx::preprocess(how, blob.shape(), blob.data.host_mut());
  }
  // A run of the file starts without states of the one before.
  for (const auto& layer : net.layers())
    for (Tensor& state : layer->carried()) std::ranges::fill(state.host_out(), 0.0f);
  or_throw(net.forward());
  arrays.clear();
  for (std::size_t i = 0; i < check.outputs.size(); ++i) {
    const Blob& output = *net.outputs()[i];
    arrays.push_back({check.outputs[i], output.shape().dims(), output.data.host()});
  }
  or_throw(onnx::write_npz(stem + ".want.npz", arrays));
}

// The largest differences of one output.
struct Difference {
  double absolute = 0, relative = 0;
};

// Adds what the script says of one output of one run. Returns whether it is near enough.
bool add_line(const nlohmann::json& line, std::map<std::string, Difference>& differences) {
  const std::string name = line["name"];
  if (line.contains("got")) {
    LOG(ERROR) << "output '" << name << "' has shape " << line["got"].dump()
               << " in onnxruntime, and " << line["want"].dump() << " here";
    return false;
  }
  if (line["odd"] != 0) {
    LOG(ERROR) << "output '" << name << "' has " << line["odd"]
               << " numbers that are infinite or NaN on one side alone";
    return false;
  }
  const double absolute = line["difference"], scale = line["scale"];
  Difference& largest = differences[name];
  largest.absolute = std::max(largest.absolute, absolute);
  largest.relative = std::max(largest.relative, scale > 0      ? absolute / scale
                                                : absolute > 0 ? INFINITY
                                                               : 0);
  return largest.relative <= kMost;
}

}  // namespace

bool check_onnx(Net& net, const std::string& path, const OnnxCheck& check) {
  const std::string python = find_python();
  const TemporaryFolder folder;
  Random random(check.seed);
  for (int run = 0; run < check.runs; ++run) {
    if (check.free_batch) onnx::set_batch(net, 1 + run % 2);
    run_net(net, check, folder.path() + "/" + std::to_string(run), random);
  }
  const ProgramRun ran =
      or_throw(run_program({python, "-c", kScript, path, folder.path(), std::to_string(check.runs)},
                           std::chrono::seconds(check.deadline)));
  if (ran.code != 0)
    throw ConfigError(Code::kConfig, path, ": onnxruntime cannot run it: ", ran.err);
  std::map<std::string, Difference> differences;
  bool near = true;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);)
    near = add_line(nlohmann::json::parse(line), differences) && near;
  for (const auto& [name, difference] : differences)
    LOG(INFO) << "Output '" << name << "' in " << check.runs << (check.runs == 1 ? " run" : " runs")
              << ": largest difference " << difference.absolute << ", relative "
              << difference.relative << (difference.relative <= kMost ? "" : ", too much");
  return near;
}

}  // namespace shoal
