// Starts the log.
#include "shoal/base/log.h"

namespace shoal {

void start_log(const char* program) {
  FLAGS_logtostderr = true;
  // glog 0.6 writes the year by default, which breaks every parser of Caffe's logs.
  FLAGS_log_year_in_prefix = false;
  google::InitGoogleLogging(program);
}

}  // namespace shoal
