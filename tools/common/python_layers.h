// Layers of type Python in tools that were built with PYTHON=1.
#pragma once

namespace shoal {

// Lets nets have such layers. The first one starts the interpreter, which then stays. Does nothing
// in a build without PYTHON=1.
void bring_python_layers();

}  // namespace shoal
