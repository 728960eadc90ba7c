#include "common/codec_flag.h"

#include <cctype>

#include "shoal/base/error.h"
#include "shoal/base/text.h"
#include "shoal/proto/solver.pb.h"

namespace shoal {

void merge_codec(const std::string& flag, SolverParameter& param) {
  const auto wrong = [&](const auto&... why) {
    return ConfigError(Code::kUsage, "--codec=", flag, ": ", why...);
  };
  for (const std::string& word : split(flag, ',')) {
    CodecParameter& codec = *param.mutable_codec();
    const std::size_t equals = word.find('=');
    std::string what = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (what.starts_with("AUTO") && value.empty()) {
      std::string within = what.size() > 5 ? what.substr(5) : "";
      for (char& letter : within) letter = static_cast<char>(std::toupper(letter));
      CodecParameter::Class found{};
      if (!CodecParameter::Class_Parse(within, &found))
        throw wrong(
            "AUTO chooses within a class: AUTO:half, AUTO:eighth or AUTO:sparse (or "
            "AUTO:exact, float32 alone)");
      codec.set_push("AUTO");
      codec.set_pull("AUTO");
      codec.set_within(found);
      continue;
    }
    const std::size_t dot = what.rfind('.');
    const std::string direction = dot == std::string::npos ? what : what.substr(dot + 1);
    if (value.empty() || (direction != "push" && direction != "pull"))
      throw wrong("'", word,
                  "' is none of AUTO:CLASS, push=CODEC, pull=CODEC, LAYER.push=CODEC and "
                  "LAYER.pull=CODEC");
    if (dot == std::string::npos) {
      direction == "push" ? codec.set_push(value) : codec.set_pull(value);
      continue;
    }
    CodecParameter::Override& one = *codec.add_layer();
    one.set_name(what.substr(0, dot));
    direction == "push" ? one.set_push(value) : one.set_pull(value);
  }
}

}  // namespace shoal
