// Gives access to glog: LOG(INFO), LOG(WARNING), VLOG(1), CHECK(...) and its variants. No other
// file includes it.
#pragma once

#include <glog/logging.h>

#include <string>

namespace shoal {

// Sets glog up as Caffe's log readers expect it: stderr, no year in the prefix ("I1120
// 13:56:58.557577 ..."). Called once, from main.
void start_log(const char* program);

}  // namespace shoal
