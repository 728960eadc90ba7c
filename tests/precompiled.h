// Precompiled: the headers that most tests read.
#pragma once

#include <gtest/gtest.h>

#include "src/precompiled.h"
