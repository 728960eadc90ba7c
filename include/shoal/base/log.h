// glog, behind one header: LOG(INFO), LOG(WARNING), VLOG(1), CHECK(...) and its kin. No other file
// includes glog.
#pragma once

#include <glog/logging.h>

#include <string>

namespace shoal {

// Sets glog up as Caffe's log readers expect it: stderr, no year in the prefix ("I1120
// 13:56:58.557577 ..."). Once, from main.
void start_log(const char* program);

}  // namespace shoal
