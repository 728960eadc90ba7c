"""Breaks each rule of check_style.py once, in a scratch tree, and expects the complaint; then a clean tree and none."""
import tempfile
from pathlib import Path

LAYERS = 'base:\ntensor: base\nops: base tensor\nlayers: base tensor ops\ndata: base\n'
FACTORY = '#include "shoal/layers/layer.h"\nstd::unique_ptr<Layer> make_%s(const LayerParameter& p) { return std::make_unique<%s>(p); }\n'
TREE = {
    'src/shoal/LAYERS': LAYERS,
    'src/shoal/base/secret.h': '// Holds what base alone knows.\n',
    'src/shoal/layers/layers.def': 'LAYER(Concat)\nLAYER(Crop)\n',
    'src/shoal/layers/concat.cpp': FACTORY % ('Concat', 'Concat'),
    'src/shoal/layers/crop.cpp': FACTORY % ('Crop', 'Crop'),
}
# What is right and looks wrong: it must pass.
GOOD = '''// A comment may say volatile, sleep_for( or "static int x;".
// Where a line of it begins with such a word, it is no opening.
#include <thread>
#include "shoal/base/error.h"
namespace shoal {
namespace {
using std::literals::operator""s;
constexpr const char* kVersion = "1";
constexpr int kLimit = 1'000'000;
const char* const kName = "new Node; detach(";
const char* const kRaw = R"(static int counter = 0;)";
constexpr struct Row { const char* name; int size; } kRows[] = {{"a", 1}, {"b", 2}};
const std::function<int(int)> kTwice = [](int x) { return 2 * x; };
template <class T>
T twice(T x) { return x + x; }
}  // namespace
struct Shape {
  static int count(const Shape& s);
  static constexpr int kMax = 3;
  Shape() = default;
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  bool operator==(const Shape&) const = default;
  int append_count = 0;
  std::vector<int> dims{1, 2};
};
int Shape::count(const Shape& s) {
  static const std::string kWord = "word";
  int first = 1, second = 2;
  int total = 0;
  for (int d : s.dims) { total += d; }
  return total + static_cast<int>(std::thread::hardware_concurrency());
}
}  // namespace shoal
'''
LONG_FUNCTION = 'int f() {\n' + '  g();\n' * 80 + '}\n'
LONG_METHOD = 'namespace a { class B {\n public:\n  int f() const {\n' + '    if (g()) { h(); }\n' * 80 + '  }\n};\n}\n'

TABLE = 'void f() {\n  const Case cases[] = {\n' + '    {1, "a"},\n' * 80 + '  };\n  for (const Case& c : cases) g(c);\n}\n'
SUBJECTS = [
    ('table: let a peer dial', ''),
    ('scripts, docs: check the style', ''),
    ('table: ' + 'x' * 70, 'subject of 77 characters'),
    ('let a peer dial', 'is not "module: imperative"'),
    ('table: who dials waits', '"who" is not an imperative'),
    ('table: added a peer', '"added" is not an imperative'),
    ('table: add a peer.', 'full stop'),
]

OPENINGS = ('Of', 'Whether', 'How', 'That', 'What', 'Where', 'Which', 'Those', 'In which', 'By which', 'Who', 'Whoever', 'Whence',
            'Nobody', 'Somebody')

# (path, text, part of the complaint)
BAD = [
    ('src/shoal/tensor/a.cpp', '#include "shoal/ops/op.h"\n', 'tensor may not include ops'),
    ('include/shoal/base/a.h', '#include "shoal/tensor/tensor.h"\n', 'base may not include tensor'),
    ('src/shoal/attic/a.cpp', '', '"attic" has no line'),
    ('src/shoal/base/a.cpp', '#include <glog/logging.h>\n', 'glog/logging.h belongs in'),
    ('src/shoal/ops/a.cpp', '#include <cblas.h>\n', 'cblas.h belongs in'),
    ('src/shoal/ops/b.cpp', '#include <gflags/gflags.h>\n', 'gflags/gflags.h belongs in tools/'),
    ('src/shoal/layers/a.cpp', '#include <opencv2/core.hpp>\n', 'opencv2/core.hpp belongs in'),
    ('src/shoal/layers/b.cpp', '#include <lmdb.h>\n', 'lmdb.h belongs in'),
    ('tools/a.cpp', '#include <leveldb/db.h>\n', 'leveldb/db.h belongs in'),
    ('src/shoal/base/b.cpp', '#include <boost/asio.hpp>\n', 'boost/asio.hpp belongs in'),
    ('src/shoal/layers/c.cpp', '#include <cudnn.h>\n', 'cudnn.h belongs in'),
    ('src/shoal/layers/d.cpp', '#include "shoal/ops/cpu/conv.h"\n', 'only src/shoal/ops/impls.cpp names'),
    ('include/shoal/base/b.h', '#include "shoal/base/x.pb.h"\n', 'a public header includes'),
    ('src/shoal/ops/c.cpp', '#if SHOAL_CUDA\n#endif\n', '#if SHOAL_'),
    ('src/shoal/base/c.cpp', 'void f(std::jthread& t) { t.detach(); }\n', 'join every thread'),
    ('src/shoal/base/d.cpp', 'void f() { std::this_thread::sleep_for(x); }\n', 'wait on a Condition'),
    ('src/shoal/base/e.cpp', 'void f() { usleep(1); }\n', 'wait on a Condition'),
    ('src/shoal/base/f.cpp', 'void f(volatile int* x);\n', 'std::atomic'),
    ('src/shoal/base/g.cpp', 'const char* f() { return std::getenv("A"); }\n', 'read in tools/ only'),
    ('src/shoal/base/h.cpp', 'using namespace std;\n', 'name what you use'),
    ('include/shoal/base/c.h', 'using namespace std::literals;\n', '"using namespace" in a header'),
    ('src/shoal/base/i.cpp', 'void f() { std::thread t([] {}); }\n', 'std::jthread'),
    ('src/shoal/base/j.cpp', 'struct A { std::mutex m; };\n', 'base/mutex.h'),
    ('src/shoal/base/k.cpp', 'int* f() { return new int(3); }\n', 'make_unique'),
    ('src/shoal/base/l.cpp', 'void f(int* p) { delete p; }\n', 'unique_ptr'),
    ('src/shoal/base/m.cpp', 'class GraphNode;\n', '"node" is not in the glossary'),
    ('src/shoal/base/n.cpp', 'int string_util(int x);\n', '"util" is not in the glossary'),
    ('src/shoal/base/o.cpp', 'namespace a {\nint counter = 0;\n}\n', 'o.cpp:2: data that is not const'),
    ('src/shoal/base/p.cpp', 'static std::map<int, int> table;\n', 'data that is not const'),
    ('src/shoal/base/q.cpp', 'int f() {\n  static int n{0};\n  return ++n;\n}\n', 'q.cpp:2: data that is not const'),
    ('src/shoal/base/r.cpp', 'struct A {\n public:\n  static inline int n = 0;\n};\n', 'r.cpp:3: data that is not const'),
    ('src/shoal/base/s.cpp', 'const char* name = "a";\n', 'data that is not const'),
    ('src/shoal/base/t.cpp', 'thread_local int n = 0;\n', 'thread_local'),
    ('src/shoal/base/u.cpp', '// TO' 'DO: later\n', 'finish it'),
    ('src/shoal/base/v.o', 'x', 'a build product'),
    ('src/shoal/base/v.cpp.bak', 'x', 'a build product'),
    ('examples/a.bin', 'a\0b', 'a binary file outside'),
    ('docs/big.txt', 'x' * 1_000_001, 'more than 1000000'),
    ('src/shoal/base/w.cpp', '\n' * 401, 'file of 401, more than 400'),
    ('include/shoal/base/d.h', '\n' * 401, 'public header of 401'),
    ('src/shoal/base/x.cpp', '//' + 'x' * 99 + '\n', 'line of 101, more than 100'),
    ('src/shoal/base/y.cpp', LONG_FUNCTION, 'y.cpp:1: function of 82'),
    ('src/shoal/base/z.cpp', LONG_METHOD, 'z.cpp:3: function of 82'),
    ('tests/a.cpp', LONG_FUNCTION, 'a.cpp:1: function of 82'),
    ('src/shoal/base/aa.cpp', '#include "error.h"\n', 'include by the full path'),
    ('src/shoal/base/ab.cpp', '#include "../base/error.h"\n', 'include by the full path'),
    ('src/shoal/base/ac.cpp', 'void f() {\n  a_ = a, b_ = b;\n}\n', 'ac.cpp:2: two statements joined'),
    ('src/shoal/base/ad.cpp', '// Who waits.\nint f();\n' * 1000, 'a comment begins with a verb or its subject, not with "Who"'),
    ('src/shoal/table/a.cpp', '// Who waits.\nint f();\n', 'a.cpp:1: a comment begins with a verb'),
    *(('tests/layers/a.cpp', f'// {word} order.\nint f();\n', f'not with "{word}"') for word in OPENINGS),
    ('tools/b.cpp', 'int g();\n  // Whether it is.\n  int f();\n', 'b.cpp:2: a comment begins with a verb or its subject, not with "Whether"'),
    ('src/shoal/tensor/b.cpp', '#include "shoal/base/secret.h"\n', 'shoal/base/secret.h is private to base'),
    ('include/shoal/base/e.h', '#include "shoal/base/secret.h"\n', 'shoal/base/secret.h is private to base'),
    ('include/shoal/base/f.h', 'int f();\n', 'f.h: no other module, tool or public header includes it'),
    ('src/shoal/INTERFACES', 'base: secret.h\n', 'no other module includes it'),
    ('src/shoal/optim/b.cpp', ('int ' + 'a' * 90 + ';\n') * 300, 'optim: 28200 characters of code, more than'),
    ('.clang-format', 'BasedOnStyle: Google\n', 'crop.cpp: run clang-format'),
    ('src/shoal/layers/tile.cpp', FACTORY % ('Tile', 'Tile'), 'make_Tile has no line in layers.def'),
    ('src/shoal/layers/layers.def', 'LAYER(Crop)\nLAYER(Concat)\n', 'the list is alphabetical'),
    ('src/shoal/layers/layers.def', 'LAYER(Concat)\nLAYER(Crop)\nLAYER(Data)\n', 'Data has no make_Data'),
]


def complaints(Style, files):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return Style(Path(folder)).wrong


def run(Style, subject_complaint):
    failures = []
    for path, text, expected in BAD:
        found = complaints(Style, {**TREE, path: text})
        if not any(expected in line for line in found):
            failures.append(f'{path}: expected a complaint with "{expected}", got {found}')
    for subject, expected in SUBJECTS:
        said = subject_complaint(subject)
        if bool(said) != bool(expected) or expected not in said:
            failures.append(f'subject "{subject}": expected "{expected}", got "{said}"')
    found = complaints(Style, {**TREE, 'src/shoal/base/good.cpp': GOOD, 'tests/table.cpp': TABLE,
                               'src/shoal/data/db.cpp': '#include <lmdb.h>\n'})
    if found:
        failures.append(f'the clean tree: expected no complaint, got {found}')
    print('\n'.join(failures) or f'style checker: {len(BAD)} broken rules seen, a clean tree left alone')
    return 1 if failures else 0
