// Precompiled: the headers that most sources of the library and the tools read.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shoal/base/log.h"
#include "shoal/proto/layers.pb.h"
#include "shoal/proto/net.pb.h"
#include "shoal/proto/solver.pb.h"
