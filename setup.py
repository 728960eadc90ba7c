"""Builds the Python package: make compiles the extension, with the library in it, in build/release (or where BUILD says)."""
import os
import re
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# As make itself is given it: its objects are those of the same words.
BUILD = os.environ.get('BUILD', 'build/release')
if Path(BUILD).is_relative_to(ROOT):
    BUILD = str(Path(BUILD).relative_to(ROOT))


def version():
    return re.search(r'kVersion = "(.*)"', (ROOT / 'include/shoal/base/version.h').read_text()).group(1)


class MakeExtension(build_ext):
    def get_libraries(self, ext):
        return []

    def build_extension(self, ext):
        import pybind11
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        flags = ' '.join('-isystem ' + path for path in (sysconfig.get_path('include'), pybind11.get_include()))
        jobs = os.environ.get('JOBS', str(len(os.sched_getaffinity(0))))
        subprocess.run(['make', '-j' + jobs, 'BUILD=' + BUILD, 'PYTHON=0', 'PY_FLAGS=' + flags, 'PY_NAME=' + target.name,
                        'python_extension'], cwd=ROOT, check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        protos = target.parent / 'caffe/proto/caffe.protos'
        protos.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(ROOT / BUILD / 'python' / target.name), str(target))
        self.copy_file(str(ROOT / BUILD / 'python/caffe.protos'), str(protos))


setup(version=version(), ext_modules=[Extension('shoal._shoal', sources=[])], cmdclass={'build_ext': MakeExtension})
