#!/usr/bin/env python3
"""Checks the style rules that a machine can check: which module includes which, where a vendor's header may stand, names and
calls that are not used here, mutable data outside objects, sizes, formatting, comments. Run by `make check`. --self-test breaks
each rule once; --count prints the characters of code by module; --subject checks the first line of a commit message."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

CODE = ('.cpp', '.h', '.cu', '.cuh')
PRODUCT = ('src/', 'include/', 'tools/')                  # what a user's binary is made of
AIMS = {'file': 400, 'function': 40, 'public header': 200, 'line': 100}   # lines, lines, lines, columns
LIMITS = {'file': 400, 'function': 80, 'public header': 400, 'line': 100}
# Files that were longer than the limit when it became one. The list shrinks: a file that fits must be taken off it.
LONG_FILES = {
    'tests/support/layer_cases.cpp',
}
# Characters of code that each module may have, comments and white space aside. Raise one with a reason beside it.
# 2026-11-28: table, tests and tools grew by TLS, by second copies of rows and by jobs that outlive a process; base lost its own SHA-256;
# solver, parallel and simulate by the recovery of sums among workers after a loss, and by losses in virtual time. Tests lose processes at
# every message, and more than one. table grew by the coordinator's standbys, and by certificates.
# 2026-11-29: layers, ops, proto and tests grew by the layers and fields of Caffe's forks; net by what a net predicts.
# 2026-11-29: simulate, tests and tools grew by workers that fail and come back in a simulated job, and by the account of what that costs.
# net grew by passes from a layer to a layer, and blobs that a caller works on, as Python does.
# data, solver, tests and tools grew by SSD's records and boxes, its tests of detections and its converters.
# 2026-11-29: table, tests and tools grew by seven codecs and low rank, their payloads, damaged ones too, and bench_codecs.
BUDGETS = {
    'base': 44_500, 'compat': 17_000, 'data': 198_500, 'layers': 365_000, 'net': 98_000, 'onnx': 84_000,
    'ops': 450_000, 'optim': 10_200, 'parallel': 330_000, 'proto': 100_000, 'report': 37_500, 'simulate': 84_500,
    'solver': 163_000, 'status': 21_000, 'table': 512_000, 'tensor': 40_000, 'tests': 2_100_000, 'tools': 330_000,
}
SUBJECT = re.compile(r'[a-z][\w./+-]*(, [a-z][\w./+-]*)*: \S.*')
MAX_SUBJECT = 72
MAX_BYTES = 1_000_000

# A header, by a pattern of its name, and the only places that may include it.
VENDORS = [
    (r'glog/', ('include/shoal/base/log.h', 'src/shoal/base/log.cpp')),
    (r'gflags/', ('tools/',)),
    (r'(openblas/)?(cblas|openblas_config)\.h', ('src/shoal/ops/cpu/gemm.cpp', 'src/shoal/ops/blas_kernels.cpp')),
    (r'opencv2?/', ('src/shoal/data/', 'tests/net/opencv_test.cpp',)),
    (r'(lmdb\.h|leveldb/)', ('src/shoal/data/',)),
    (r'(boost/)?(asio|beast)', ('src/shoal/table/link/', 'tools/common/bare_asio', 'src/shoal/status/server')),
    (r'openssl/', ('src/shoal/base/sha256.cpp', 'src/shoal/base/hmac.cpp', 'src/shoal/base/signing.cpp', 'src/shoal/table/link/tls',
                  'tests/support/certificates.cpp')),
    (r'(dnnl|oneapi/)', ('src/shoal/ops/dnnl/',)),
    (r'pybind11/', ('src/python/', 'tools/common/python_layers.cpp')),
    (r'mpi\.h', ('src/shoal/parallel/sums/mpi_sum.cpp',)),
    (r'hdf5', ('src/shoal/proto/hdf5.cpp',)),
    (r'(cuda|cublas|cudnn|nccl)', ('src/shoal/ops/cuda/', 'src/shoal/tensor/cuda/')),
]
FEATURE_TESTS = ('src/shoal/onnx/write_model.cpp', 'src/shoal/ops/gpu.cpp', 'src/shoal/ops/cpu_kernels.cpp',
                 'src/shoal/ops/impls.cpp', 'src/shoal/parallel/sums/mpi_sum.cpp', 'src/shoal/proto/hdf5.cpp',
                 'src/shoal/status/prometheus.cpp', 'tools/common/python_layers.cpp')
# Data of their own: signal handlers are given a signal's number and nothing else; one lock guards the HDF5 library's own global data;
# which CPU kernels run is a choice of the whole process, as it is in the libraries of kernels, and each op of each context asks for it;
# a process has one interpreter of Python, which makes the layers of that type, and whose lock guards the list of its arrays.
OWN_DATA = ('tools/common/signals.cpp', 'src/shoal/proto/hdf5.cpp', 'src/shoal/ops/cpu_kernels.cpp', 'src/shoal/layers/layer.cpp',
            'src/python/arrays.cpp')
OP_VENDOR = re.compile(r'shoal/ops/(cpu|dnnl|cuda)/')

# A pattern over code without comments and strings, where it is allowed, and what to do instead.
CALLS = [
    (r'\bdetach\s*\(', (), 'join every thread (std::jthread)'),
    (r'\b(sleep_for|sleep_until)\b|\b(u|nano)?sleep\s*\(', ('src/shoal/base/timer.cpp',), 'wait on a Condition with a deadline'),
    (r'\bvolatile\b', (), 'use std::atomic'),
    (r'getenv\b', ('tools/', 'tests/'), 'the environment is read in tools/ only'),
    (r'\bthread_local\b', ('tests/',), 'pass it in'),
    (r'\bstd::thread\b(?!::)', ('tests/',), 'use std::jthread'),
    (r'\bstd::(recursive_|shared_)?(mutex|condition_variable|lock_guard|scoped_lock|unique_lock)\b',
     ('include/shoal/base/mutex.h', 'tests/'), 'use base/mutex.h, which clang checks'),
    (r'\busing\s+namespace\s+(?!std::(literals|\w+_literals)\b)', ('tests/support/guarded_device.cpp',), 'name what you use'),
    (r'(?<!operator )\bnew\b\s*[\w:(<]', (), 'own it: a value or std::make_unique'),
    (r'(?<!operator )(?<!=)(?<!= )\bdelete\b\s*(\[\s*\])?\s*[\w:(*]', (), 'own it: a value or std::unique_ptr'),
]
# Public headers that programs outside use and no other module does.
FOR_PROGRAMS = ('layers/memory_data.h',)
# Words no name is made of; the glossary in docs/internals/design.md has one for each idea.
NAMES = {'node', 'customer', 'app', 'bg', 'comm', 'mgr', 'util', 'utils'}
# LMDB's and ONNX's own nodes; MPI's and NCCL's own names; Caffe's bg_threshold.
NAMES_OF_OTHERS = ('src/shoal/onnx/write_model', 'src/shoal/data/lmdb_pages', 'src/shoal/layers/window_data', 'src/shoal/parallel/sums/mpi_sum', 'src/shoal/ops/cuda/nccl', 'tests/cuda/fake_nccl')
# Written in pieces, so that this file does not contain them.
UNFINISHED = re.compile(r'\b(%s)\b' % '|'.join(('TO' 'DO', 'FIX' 'ME', 'XX' 'X', 'HA' 'CK')))
# A comment begins with a verb ("Returns whether ...") or with the thing that it is about, and not with one of these words.
NO_SUBJECT = re.compile(r'\s*//\s*(In which|By which|Of|Whether|How|That|What|Where|Which|Those|Who|Whoever|Whence|Nobody|Somebody)\b')
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
JOINED = re.compile(r'[;{}]\s*\n([ \t]*(?!return\b|case\b)[\w.>\[\]-]+ [-+*/%|&]?= [^(){};"]*,\s+[\w.>\[\]-]+ [-+*/%|&]?= [^(){};]*;)')
LEFTOVERS = re.compile(r'\.(o|a|so|d|bak|orig|rej|swp|pyc|exe)$|~$')
BINARY_HOMES = ('tests/golden/', 'docs/')

TOKEN = re.compile(r'R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
                   r'|//[^\n]*|/\*.*?\*/', re.DOTALL)
PREPROCESSOR = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
NAMESPACE = re.compile(r'(inline\s+)?namespace\b|extern\s+""')
TYPE = re.compile(r'(template\s*<.*>\s*)?(class|struct|union|enum)\b', re.DOTALL)
NOT_DATA = re.compile(r'(using|typedef|namespace|static_assert|friend|template|class|struct|union|enum|return|goto)\b')
CONST = re.compile(r'\b(const|constexpr)\b')
POINTER_TO_CONST = re.compile(r'\bconst\s+[\w:]+\s*\*\s*\w+\s*(=|\[|$)')


def lines_of(text, offset):
    return text.count('\n', 0, offset) + 1


def without_text(source):
    """The same code with comments, strings and characters emptied; every newline stays where it was."""
    def empty(match):
        kept = '\n' * match.group().count('\n')
        return ('""' if match.group()[0] in '"R' else "''" if match.group()[0] == "'" else '') + kept
    return TOKEN.sub(empty, source)


class Scopes:
    """Walks code brace by brace; finds functions and their lengths, and data that is neither const nor local."""

    def __init__(self, code):
        # (first line, lines, lines but those of tables, head); (line, statement)
        self.functions, self.data = [], []
        stack, head, start, parens, line = [], '', 0, 0, 1
        table, tables, is_table = 0, 0, False             # first line of the outermost value; lines of the function's tables
        for char in PREPROCESSOR.sub(lambda m: '\n' * m.group().count('\n'), code):
            if char == '\n':
                line += 1
            if not head.strip():
                start = line
            if char in '()':
                parens += 1 if char == '(' else -1
            if char == '{':
                outer = not stack or stack[-1][0] != 'value'
                stack.append((self.kind(stack, head.strip(), parens), start, head))
                if stack[-1][0] != 'value':
                    head = ''
                elif outer:
                    table, is_table = line, True
                if stack[-1][0] == 'function':
                    tables = 0
            elif char == '}' and stack:
                kind, first, opened = stack.pop()
                if kind == 'function':
                    lines = line - first + 1
                    self.functions.append((first, lines, lines - tables, ' '.join(opened.split())))
                if kind == 'value' and (not stack or stack[-1][0] != 'value') and is_table:
                    tables += line - table
                head = opened + '{}' if kind == 'value' else ''
            elif char == ';' and stack and stack[-1][0] == 'value' and parens:
                is_table = False                          # a lambda's body
                head += char
            elif char == ';' and parens == 0:
                self.statement(stack, start, ' '.join(head.split()))
                head = ''
            elif char == ':' and re.fullmatch(r'\s*(public|private|protected)\s*', head):
                head = ''
            else:
                head += char

    @staticmethod
    def kind(stack, head, parens):
        if parens or (stack and stack[-1][0] == 'value'):
            return 'value'
        if any(scope[0] == 'function' for scope in stack):
            return 'value' if head.startswith('static') or head.endswith('=') else 'block'
        if NAMESPACE.match(head):
            return 'namespace'
        if TYPE.match(head):
            return 'type'
        before_paren = re.split(r'\boperator\s*\(\s*\)|\(', head)[0]
        if '(' not in head or re.search(r'(?<![=!<>])=(?!=)', re.sub(r'operator\S*', '', before_paren)):
            return 'value'
        return 'function'

    def statement(self, stack, line, text):
        where = stack[-1][0] if stack else 'namespace'
        inside = any(scope[0] == 'function' for scope in stack)
        if inside and not re.match(r'static\b', text) or where == 'value' or NOT_DATA.match(text) or not text:
            return
        if where == 'type' and not re.match(r'(inline\s+)?static\b', text):
            return
        plain = text
        while re.search(r'<[^<>]*>', plain):
            plain = re.sub(r'<[^<>]*>', '', plain)
        first = re.search(r'[=({\[]', plain)
        if not inside and first and first.group() == '(':
            return                                        # a function
        if not inside and not first and len(plain.split()) < 2:
            return                                        # a macro, an enumerator
        if not CONST.search(plain) or ("constexpr" not in plain and POINTER_TO_CONST.search(plain)):
            self.data.append((line, text))


class Style:
    def __init__(self, root):
        self.root, self.wrong, self.sizes = root, [], {kind: [] for kind in LIMITS}
        self.code_files = []
        self.allowed = self.read_layers()
        for path in self.files():
            self.check_file(path)
        self.check_layers_def()
        self.check_interfaces()
        self.check_budgets()
        for kind, limit in LIMITS.items():
            self.sizes[kind].sort(reverse=True)
            for size, where in self.sizes[kind]:
                if size > limit and not (kind == 'file' and where in LONG_FILES):
                    self.complain(where, f'{kind} of {size}, more than {limit}')
        self.check_format()

    def complain(self, where, what):
        self.wrong.append(f'{where}: {what}')

    def read_layers(self):
        allowed = {}
        for line in (self.root / 'src/shoal/LAYERS').read_text().splitlines():
            module, _, below = line.partition('#')[0].partition(':')
            if module.strip():
                allowed[module.strip()] = {module.strip(), *below.split()}
        return allowed

    def files(self):
        listed = subprocess.run(['git', '-C', str(self.root), 'ls-files', '-coz', '--exclude-standard'], capture_output=True)
        if listed.returncode == 0:
            names = [n for n in listed.stdout.decode().split('\0') if n]
        else:                                             # an unpacked archive
            names = [str(p.relative_to(self.root)) for p in self.root.rglob('*') if not str(p).startswith(str(self.root / 'build'))]
        return [n for n in sorted(names) if (self.root / n).is_file()]

    def check_file(self, path):
        content = (self.root / path).read_bytes()
        if LEFTOVERS.search(path):
            self.complain(path, 'a build product or a backup; it does not belong in the repository')
            return
        if len(content) > MAX_BYTES:
            self.complain(path, f'{len(content)} bytes, more than {MAX_BYTES}')
        if b'\0' in content:
            if not path.startswith(BINARY_HOMES):
                self.complain(path, 'a binary file outside ' + ' and '.join(BINARY_HOMES))
            return
        text = content.decode('utf-8', errors='replace')
        for number, line in enumerate(text.splitlines(), 1):
            if match := UNFINISHED.search(line):
                self.complain(f'{path}:{number}', f'"{match.group()}": finish it, or write it down elsewhere')
        if path.endswith(CODE) and path.startswith(PRODUCT + ('tests/',)):
            self.check_code(path, text)

    def check_code(self, path, text):
        code, lines = without_text(text), text.splitlines()
        foreign = {number for match in TOKEN.finditer(text) if match.group()[0] == 'R'   # prototxt in a raw string
                   for number in range(lines_of(text, match.start()), lines_of(text, match.end()) + 1)}
        self.code_files.append(path)
        self.sizes['file'].append((len(lines), path))
        if path.startswith('include/'):
            self.sizes['public header'].append((len(lines), path))
        for number, line in enumerate(lines, 1):
            if len(line) > LIMITS['line'] and number not in foreign:
                self.sizes['line'].append((len(line), f'{path}:{number}'))
            starts = number == 1 or not lines[number - 2].lstrip().startswith('//')
            if starts and (match := NO_SUBJECT.match(line)):
                self.complain(f'{path}:{number}', f'a comment begins with a verb or its subject, not with "{match.group(1)}"')
        for match in QUOTED.finditer(text):
            if '/' not in match.group(1) or match.group(1).startswith('.'):
                self.complain(f'{path}:{lines_of(text, match.start())}', f'"{match.group(1)}": include by the full path')
        for match in JOINED.finditer(code):
            self.complain(f'{path}:{lines_of(code, match.start(1))}', 'two statements joined by a comma')
        scopes = Scopes(code)
        self.sizes['function'] += [(own if path.startswith('tests/') else length, f'{path}:{line}')
                                   for line, length, own, _ in scopes.functions]
        for pattern, homes, instead in CALLS:
            for match in re.finditer(pattern, code):
                if not path.startswith(homes or ('-',)):
                    self.complain(f'{path}:{lines_of(code, match.start())}', f'"{match.group().strip()}": {instead}')
        if path.endswith(('.h', '.cuh')) and (match := re.search(r'\busing\s+namespace\b', code)):
            self.complain(f'{path}:{lines_of(code, match.start())}', '"using namespace" in a header')
        if not path.startswith(NAMES_OF_OTHERS):
            self.check_names(path, code)
        if path.startswith(PRODUCT):
            self.check_includes(path, text)
            for line, statement in scopes.data if path not in OWN_DATA else ():
                self.complain(f'{path}:{line}', f'data that is not const outside any object: "{statement[:60]}"')
            for match in re.finditer(r'^[ \t]*#[ \t]*(?:el)?if.*\bSHOAL_', text, re.MULTILINE):
                if path not in FEATURE_TESTS:
                    self.complain(f'{path}:{lines_of(text, match.start())}', '#if SHOAL_... belongs in ' + ' or '.join(FEATURE_TESTS))

    def check_names(self, path, code):
        seen = set()
        for match in re.finditer(r'(?<!::)\b[A-Za-z_]\w*', PREPROCESSOR.sub(lambda m: '\n' * m.group().count('\n'), code)):
            if match.group() in seen:
                continue
            seen.add(match.group())
            words = re.findall(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])', match.group())
            for word in NAMES.intersection(w.lower() for w in words):
                self.complain(f'{path}:{lines_of(code, match.start())}', f'"{match.group()}": "{word}" is not in the glossary')

    def check_includes(self, path, text):
        home = re.match(r'(?:src|include)/shoal/(\w+)/', path)
        module = home.group(1) if home else None
        if module and module not in self.allowed:
            self.complain(path, f'module "{module}" has no line in src/shoal/LAYERS')
        for match in INCLUDE.finditer(text):
            name, where = match.group(1), f'{path}:{lines_of(text, match.start())}'
            other = re.match(r'shoal/(\w+)/', name)
            if module and other and other.group(1) not in self.allowed.get(module, {other.group(1)}):
                self.complain(where, f'{module} may not include {other.group(1)} (src/shoal/LAYERS)')
            if path.startswith('include/') and (name.endswith('.pb.h') or name.startswith('google/')):
                self.complain(where, f'a public header includes {name}; declare the message instead')
            for pattern, homes in VENDORS:
                if re.match(pattern, name) and not path.startswith(homes):
                    self.complain(where, f'{name} belongs in ' + ' or '.join(homes))
            vendor = OP_VENDOR.match(name)
            if vendor and not path.startswith((f'src/shoal/ops/{vendor.group(1)}/', 'src/shoal/ops/impls.cpp', 'src/shoal/ops/gpu.cpp', 'src/shoal/ops/share_out.cpp')):
                self.complain(where, f'{name}: only src/shoal/ops/impls.cpp names an implementation')

    def check_format(self):
        """clang-format, over all C++; 14 is the version that install_packages.sh installs, and others differ in details."""
        if not (self.root / '.clang-format').exists():
            return
        try:
            ran = subprocess.run(['clang-format-14', '--dry-run', '-Werror', *self.code_files], cwd=self.root,
                                 capture_output=True, text=True)
        except FileNotFoundError:
            self.complain('clang-format-14', 'is not installed; scripts/install_packages.sh does that')
            return
        for path in sorted(set(re.findall(r'^(\S+?):\d+:\d+: error: ', ran.stderr, re.MULTILINE))):
            self.complain(path, 'run clang-format-14 -i on it')

    def counts(self):
        """Characters of code by module, comments and white space aside."""
        total = {}
        for path in self.code_files + [n for n in self.files() if n.endswith('.def')]:
            home = re.match(r'(?:src|include)/shoal/(\w+)/|(tools|tests)/', path)
            code = TOKEN.sub(lambda m: '' if m.group()[0] == '/' else m.group(), (self.root / path).read_text())
            if home:
                module = home.group(1) or home.group(2)
                total[module] = total.get(module, 0) + len(re.sub(r'\s', '', code))
        return total

    def report_counts(self):
        for module, count in sorted(self.counts().items()):
            print(f'{module:10} {count:8} of {BUDGETS.get(module, 0):8}')
        return True

    def check_budgets(self):
        for module, count in sorted(self.counts().items()):
            if count > BUDGETS.get(module, 0):
                self.complain(module, f'{count} characters of code, more than {BUDGETS.get(module, 0)} (BUDGETS in scripts/check_style.py)')

    def read_interfaces(self):
        """The headers in src/ that other modules may include."""
        listing, shared = self.root / 'src/shoal/INTERFACES', set()
        for line in listing.read_text().splitlines() if listing.exists() else ():
            module, _, headers = line.partition('#')[0].partition(':')
            shared.update(f'shoal/{module.strip()}/{header}' for header in headers.split())
        return shared

    def check_interfaces(self):
        """Who includes which header: one in include/ is for others, one in src/ for its own module unless src/shoal/INTERFACES has it."""
        shared, others = self.read_interfaces(), set()
        for path in self.code_files:
            home = re.match(r'(?:src|include)/shoal/(\w+)/', path)
            if path.startswith('tests/'):
                continue
            for match in INCLUDE.finditer((self.root / path).read_text()):
                name, owner = match.group(1), re.match(r'shoal/(\w+)/', match.group(1))
                if not owner or home and owner.group(1) == home.group(1) and not path.startswith('include/'):
                    continue
                others.add(name)
                if (self.root / 'src' / name).is_file() and name not in shared:
                    self.complain(path, f'{name} is private to {owner.group(1)}; src/shoal/INTERFACES lists what other modules may include')
        for name in sorted(shared - others):
            self.complain('src/shoal/INTERFACES', f'{name} is not there, or no other module includes it')
        for path in self.code_files:
            if path.startswith('include/') and path[len('include/'):] not in others and not path.endswith(FOR_PROGRAMS):
                self.complain(path, 'no other module, tool or public header includes it: it belongs in src/')

    def check_layers_def(self):
        listing = self.root / 'src/shoal/layers/layers.def'
        if not listing.exists():
            return
        listed = re.findall(r'^\s*LAYER\(\s*(\w+)', listing.read_text(), re.MULTILINE)
        for before, after in zip(listed, listed[1:]):
            if before.casefold() >= after.casefold():
                self.complain('src/shoal/layers/layers.def', f'{after} stands after {before}; the list is alphabetical')
        made = {}
        for source in sorted((self.root / 'src/shoal/layers').rglob('*.cpp')):
            for name in re.findall(r'unique_ptr<Layer>\s+make_([A-Z]\w*)\s*\(', without_text(source.read_text())):
                made[name] = source.relative_to(self.root)
        for name in sorted(made.keys() - set(listed)):
            self.complain(made[name], f'make_{name} has no line in layers.def')
        for name in sorted(set(listed) - made.keys()):
            self.complain('src/shoal/layers/layers.def', f'{name} has no make_{name} in src/shoal/layers')

    def report(self):
        for kind, limit in AIMS.items():
            worst = [f'{size} {where}' for size, where in self.sizes[kind][:5]]
            print(f'longest, {kind} (aim {limit}): ' + ('; '.join(worst) or 'none'))
        too_long = {path for lines, path in self.sizes['file'] if lines > LIMITS['file']}
        if fitting := sorted(LONG_FILES - too_long):
            print('take off LONG_FILES: ' + ', '.join(fitting))
        for line in self.wrong:
            print(line)
        print(f'style: {len(self.wrong)} complaint{"s" if len(self.wrong) != 1 else ""}')
        return not self.wrong


def subject_complaint(subject):
    """What is wrong with the first line of a commit message, or ''."""
    if len(subject) > MAX_SUBJECT:
        return f'subject of {len(subject)} characters, more than {MAX_SUBJECT}: "{subject}"'
    if not SUBJECT.fullmatch(subject):
        return f'subject is not "module: imperative": "{subject}"'
    first = subject.partition(': ')[2].split()[0].casefold()
    if re.fullmatch(r'(who|whoever|nobody|somebody|what|the|a|an|all|some|no|each)|\w+ed|\w+ing', first):
        return f'"{first}" is not an imperative: "{subject}"'
    return '.' == subject[-1] and f'subject ends with a full stop: "{subject}"' or ''


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--self-test', action='store_true', help='break each rule once in a scratch tree and expect a complaint')
    parser.add_argument('--count', action='store_true', help='print the characters of code by module')
    parser.add_argument('--subject', metavar='FILE', help="check the first line of this commit message (git's commit-msg hook)")
    arguments = parser.parse_args()
    if arguments.self_test:
        import check_style_test
        sys.exit(check_style_test.run(Style, subject_complaint))
    if arguments.subject:
        complaint = subject_complaint((Path(arguments.subject).read_text().splitlines() or [''])[0])
        print(complaint, end='\n' if complaint else '')
        sys.exit(1 if complaint else 0)
    style = Style(Path(__file__).resolve().parent.parent)
    sys.exit(0 if (style.report_counts() if arguments.count else style.report()) else 1)
