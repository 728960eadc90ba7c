#include "shoal/base/log.h"

#include <ctime>

namespace shoal {

void start_log(const char* program) {
  FLAGS_logtostderr = true;
  FLAGS_log_year_in_prefix = false;   // glog 0.6 writes the year by default, which breaks every parser of Caffe's logs
  ::tzset();                          // now, while there is one thread: glog asks for the time zone with each line
  google::InitGoogleLogging(program);
}

}  // namespace shoal
